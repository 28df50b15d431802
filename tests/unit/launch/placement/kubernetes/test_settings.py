"""[kubernetes]: what belongs together, and what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from zeus.errors import InputError
from zeus.launch.placement.kubernetes.settings import KubernetesSettings


def test_an_image_is_needed() -> None:
    with pytest.raises(InputError, match=r"no image is given.*--set image=NAME"):
        KubernetesSettings()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"kind": "cronjob"}, "needs a schedule"),
        ({"schedule": "@daily"}, "schedule is for kind"),
        ({"workers": 2}, "workers is for kind"),
    ],
)
def test_keys_of_one_kind_are_for_that_kind(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        KubernetesSettings(**{"image": "train", **given})
