"""Finding my GPUs from end to end, on virtual cards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zeus.device.find import find, machine
from zeus.errors import InputError

A40X4 = {"ZEUS_GPU": "virtual:a40x4?clock=virtual"}


@pytest.fixture(autouse=True)
def own_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_VIRTUAL_STATE", str(tmp_path / "cards"))


def test_virtual_cards_obey_the_mask() -> None:
    assert [gpu.index for gpu in find(environ=A40X4).values()] == [0, 1, 2, 3]
    masked = {**A40X4, "CUDA_VISIBLE_DEVICES": "2,0"}
    assert {key: gpu.index for key, gpu in find(environ=masked).items()} == {0: 2, 1: 0}
    assert {key: gpu.index for key, gpu in find([1], masked).items()} == {1: 0}


def test_virtual_cards_can_be_named_by_uuid() -> None:
    uuid = machine(A40X4)[3].spec.uuid
    assert [gpu.index for gpu in find(environ={**A40X4, "CUDA_VISIBLE_DEVICES": uuid}).values()] == [3]


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**A40X4, "CUDA_VISIBLE_DEVICES": "1"}.items():
        monkeypatch.setenv(name, value)
    assert [gpu.index for gpu in find().values()] == [1]
    assert len(machine()) == 4, "the machine is not masked"


def test_virtual_cards_have_no_slices() -> None:
    with pytest.raises(InputError, match="no MIG slices"):
        find(environ={**A40X4, "CUDA_VISIBLE_DEVICES": "MIG-0"})


@pytest.mark.parametrize(
    ("mask", "told"),
    [
        (None, "there is no GPU 7: only GPUs 0 to 3 are visible (no mask is set)."),
        (
            "2",
            "there is no GPU 7: only GPU 0 is visible (CUDA_VISIBLE_DEVICES='2').",
        ),
        ("", "no GPU is visible (CUDA_VISIBLE_DEVICES='')."),
    ],
)
def test_an_index_beyond_the_visible_gpus_is_answered_with_those_there_are(mask: str | None, told: str) -> None:
    environ = A40X4 if mask is None else {**A40X4, "CUDA_VISIBLE_DEVICES": mask}
    for index in (7, -1):
        with pytest.raises(InputError) as wrong:
            find([index], environ)
        assert str(wrong.value).startswith(f"gpu_indices=[{index}]: {told.replace('GPU 7', f'GPU {index}')}")


@pytest.mark.parametrize("wrong", [[True], ["0"], [0.0], "01", 3, [None]])
def test_indices_that_are_no_integers_are_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="list of integers"):
        find(wrong, A40X4)


def test_an_index_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match=r"\[1\] given more than once"):
        find([1, 0, 1], A40X4)
