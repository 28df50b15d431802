"""What the client of a service asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from zeus.client.catalog import open_jobs
from zeus.errors import InputError


@pytest.mark.parametrize("name", ["", ".", "..", "a\nb", "a\udcff", pytest.param("x" * 5000, id="long")])
def test_a_name_that_no_service_has_is_refused_before_anything_is_sent(name: str) -> None:
    jobs = open_jobs("http://127.0.0.1:9")  # nobody listens there
    for call in (jobs.full, jobs.forget, jobs.restart):
        with pytest.raises(InputError, match=r"job_id=.*1 to 200 characters"):
            call(name)


def test_a_job_named_in_broken_utf_8_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot hold"):
        open_jobs(f"sqlite:///{tmp_path}/zeus.db").find("a\udcff").trial(1)
