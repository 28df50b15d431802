"""The batch script: its options, its quoting, and what must not be in it."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.errors import InputError
from zeus.launch.job_file.placements import SlurmSettings
from zeus.launch.placement.slurm_script import BatchJob, batch_script
from zeus.launch.placement.submission import plain_name

PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=40)


def job(command: list[str] | None = None, folder: str = "/home/me", name: str = "asr", **settings: Any) -> BatchJob:
    return BatchJob(
        name=name,
        folder=folder,
        command=command or ["zeus", "run", "job.toml"],
        run_id="5f0c",
        settings=SlurmSettings(**settings),
    )


def options(script: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH ")]


def read_by_sbatch(line: str) -> str:
    """The first word of a #SBATCH line as sbatch 22.05 reads it.

    A space ends the word even after a backslash, unless it is in quotes. A # begins a comment, unless it is in quotes.
    In quotes and outside, a backslash lets the next character be itself.
    """
    word, quote, letters = "", "", iter(line)
    for letter in letters:
        if not quote and (letter.isspace() or letter == "#"):
            break
        if letter == "\\":
            word += next(letters, "")
        elif letter == quote or (not quote and letter in "\"'"):
            quote = "" if quote else letter
        else:
            word += letter
    return word


def test_flags_and_keys_become_options() -> None:
    given = {"partition": "gpu", "gres": "gpu:2", "time": "1:00:00", "constraint": "a100&ib", "array": "1-10%2"}
    said = options(batch_script(job(**given, options=["--qos=x"])))
    wanted = {"--partition=gpu", "--gres=gpu:2", "--time=1:00:00", "--constraint=a100&ib", "--array=1-10%2", "--qos=x"}
    assert wanted <= set(said)
    assert said[-1] == "--qos=x"  # what the user adds comes last, and so counts


def test_what_is_not_given_is_left_to_slurm() -> None:
    names = {one.partition("=")[0] for one in options(batch_script(job(partition=None)))}
    assert not names & {"--partition", "--gres", "--time", "--constraint", "--array", "--nodes", "--output"}


def test_no_variable_of_sbatch_wins_over_what_is_given() -> None:
    left_out = job(time="10", partition=None).overridden
    assert {"SBATCH_TIMELIMIT", "SBATCH_EXPORT", "SBATCH_NO_REQUEUE"} <= left_out
    assert not left_out & {"SBATCH_PARTITION", "SBATCH_ACCOUNT", ""}


def test_a_job_is_requeued_and_told_before_its_time_is_over() -> None:
    assert {"--requeue", "--open-mode=append", "--signal=B:TERM@60"} <= set(options(batch_script(job())))


def test_several_nodes_get_one_task_each() -> None:
    assert {"--nodes=2", "--ntasks-per-node=1"} <= set(options(batch_script(job(nodes=2))))
    assert "--ntasks-per-node=1" not in options(batch_script(job(nodes=1)))


def test_zeus_takes_the_place_of_the_shell() -> None:
    assert batch_script(job()).splitlines()[-1].startswith("exec ")


@given(st.lists(PRINTABLE, min_size=1, max_size=4))
def test_the_command_is_quoted_for_the_shell(command: list[str]) -> None:
    last = batch_script(job(command)).splitlines()[-1]
    assert shlex.split(last) == ["exec", *command]


@given(PRINTABLE)
def test_a_folder_of_any_name_is_one_word_of_its_line(folder: str) -> None:
    line = next(one for one in options(batch_script(job(folder=folder))) if one.startswith("--chdir="))
    assert read_by_sbatch(line) == f"--chdir={folder}"


@given(st.text(max_size=20))
def test_a_job_of_any_name_has_a_plain_name_in_slurm(name: str) -> None:
    assert re.fullmatch(r"--job-name=zeus-[\w.-]*", options(batch_script(job(name=plain_name(name))))[0], re.ASCII)


@pytest.mark.parametrize("given", [{"folder": "/home\nrm -rf /"}, {"command": ["zeus", "run\n"]}])
def test_what_would_break_the_script_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="control characters"):
        job(**given)
