"""Settings: each stands once, and variables are read strictly."""

from __future__ import annotations

import importlib.util
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.paths import ROOT
from zeus.errors import InputError
from zeus.launcher_env import LauncherEnv, launcher_env
from zeus.settings import (
    SETTINGS,
    Mode,
    ProfilingPlan,
    mode,
    nodes,
    patience,
    profiling_plan,
    quiet,
    rank_patience,
    read_only,
    refuse_mistakes,
    runtime_folder,
    slurm_job,
    time_limits,
    why_read_only,
)
from zeus.settings.config_file import Layered
from zeus.settings.types import TimeLimits

NUMBERS = {
    "ZEUS_LEARNING_RATE": "learning_rate",
    "ZEUS_COST_THRESH": "cost_limit",
    "ZEUS_ETA_KNOB": "eta",
    "ZEUS_TARGET_METRIC": "target_metric",
    "ZEUS_SPENT_JOULES": "spent_joules",
    "ZEUS_SPENT_SECONDS": "spent_seconds",
}
WHOLE = {
    "ZEUS_TRIAL": ("trial", 0),
    "ZEUS_BATCH_SIZE": ("batch_size", 1),
    "ZEUS_MAX_EPOCHS": ("max_epochs", 1),
    "ZEUS_SEED": ("seed", 0),
    "ZEUS_PER_DEVICE_BATCH_SIZE": ("per_device_batch_size", 1),
    "ZEUS_ACCUMULATION_STEPS": ("accumulation_steps", 1),
}


def test_without_a_launcher_nothing_is_ordered() -> None:
    assert launcher_env({}) == LauncherEnv()
    assert launcher_env(dict.fromkeys([*NUMBERS, *WHOLE, "ZEUS_JOB_ID"], "")) == LauncherEnv()


def test_everything_a_launcher_says_is_heard() -> None:
    assert launcher_env(
        {
            "ZEUS_JOB_ID": "asr",
            "ZEUS_TRIAL": "3",
            "ZEUS_BATCH_SIZE": "128",
            "ZEUS_LEARNING_RATE": "1e-3",
            "ZEUS_COST_THRESH": "2.5e6",
            "ZEUS_ETA_KNOB": "0.5",
            "ZEUS_TARGET_METRIC": "40",
            "ZEUS_MAX_EPOCHS": "16",
            "ZEUS_SEED": "7",
            "ZEUS_HIGHER_IS_BETTER": "0",
            "ZEUS_OUTCOME_FILE": "outcome.json",
            "ZEUS_TRIAL_ID": "5f0c6f9e",
            "ZEUS_COST_INCLUDE": "gpu, cpu",
        }
    ) == LauncherEnv(
        "asr", 3, 128, 1e-3, 2.5e6, 0.5, 40.0, 16, 7, False, "outcome.json", "5f0c6f9e", include=("gpu", "cpu")
    )


def test_which_way_the_metric_goes_is_one_or_zero() -> None:
    assert launcher_env({"ZEUS_HIGHER_IS_BETTER": "1"}).higher_is_better is True
    with pytest.raises(InputError, match="ZEUS_HIGHER_IS_BETTER='up': give 1 or 0"):
        launcher_env({"ZEUS_HIGHER_IS_BETTER": "up"})


@given(st.sampled_from(sorted(NUMBERS)), st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_arrives_as_it_was_sent(name: str, value: float) -> None:
    assert getattr(launcher_env({name: repr(value)}), NUMBERS[name]) == value


@given(st.sampled_from(sorted(WHOLE)), st.integers(1, 2**31))
def test_a_whole_number_arrives_as_it_was_sent(name: str, value: int) -> None:
    assert getattr(launcher_env({name: str(value)}), WHOLE[name][0]) == value


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("text", ["fast", "nan", "1,5", "0x10"])
def test_what_is_no_number_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InputError, match=name):
        launcher_env({name: text})


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_number_is_whole_and_not_too_small(name: str) -> None:
    for text in ("1.5", str(WHOLE[name][1] - 1), "many"):
        with pytest.raises(InputError, match=name):
            launcher_env({name: text})


@pytest.mark.parametrize("text", ["inf", "+inf", "none", "None", " "])
def test_no_cost_limit_can_be_said_in_words(text: str) -> None:
    assert launcher_env({"ZEUS_COST_THRESH": text}).cost_limit is None


def test_the_mode_given_goes_before_the_variable_and_that_before_the_default() -> None:
    assert mode({}) is Mode.OPTIMIZE
    assert mode({"ZEUS_MODE": ""}) is Mode.OPTIMIZE
    assert mode({"ZEUS_MODE": "Observe"}) is Mode.OBSERVE
    assert mode({"ZEUS_MODE": "observe"}, given="off") is Mode.OFF
    assert mode({"ZEUS_MODE": "off"}, given=Mode.OBSERVE) is Mode.OBSERVE


@pytest.mark.parametrize("text", ["on", "observer", "0"])
def test_an_unknown_mode_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"^mode='{text}': give optimize, observe or off"):
        mode({}, given=text)
    with pytest.raises(InputError, match=f"^ZEUS_MODE='{text}': give optimize, observe or off"):
        mode({"ZEUS_MODE": text})


def test_the_plan_given_goes_before_the_variable_and_that_before_the_walk() -> None:
    assert profiling_plan({}) is ProfilingPlan.WALK
    assert profiling_plan({"ZEUS_PROFILING": ""}) is ProfilingPlan.WALK
    assert profiling_plan({"ZEUS_PROFILING": "Paper"}) is ProfilingPlan.PAPER
    assert profiling_plan({"ZEUS_PROFILING": "paper"}, given="walk") is ProfilingPlan.WALK


def test_an_unknown_plan_is_refused() -> None:
    with pytest.raises(InputError, match=r"^profiling='papre': give walk or paper\."):
        profiling_plan({}, given="papre")
    with pytest.raises(InputError, match=r"^ZEUS_PROFILING='all': give walk or paper\."):
        profiling_plan({"ZEUS_PROFILING": "all"})


@pytest.mark.parametrize("text", ["1", "true", "yes", "On", " YES "])
def test_a_switch_is_on(text: str) -> None:
    assert quiet({"ZEUS_QUIET": text}) and read_only({"ZEUS_READ_ONLY": text})
    assert slurm_job({"ZEUS_SLURM_COMMENT": text, "SLURM_JOB_ID": "9"}) == "9"
    assert launcher_env({"ZEUS_HIGHER_IS_BETTER": text}).higher_is_better is True


@pytest.mark.parametrize("text", ["0", "false", "no", "Off", "", " "])
def test_a_switch_is_off(text: str) -> None:
    assert not quiet({"ZEUS_QUIET": text}) and not read_only({"ZEUS_READ_ONLY": text})
    assert slurm_job({"ZEUS_SLURM_COMMENT": text, "SLURM_JOB_ID": "9"}) == ""
    assert not launcher_env({"ZEUS_HIGHER_IS_BETTER": text}).higher_is_better


def test_a_switch_that_is_neither_keeps_zeus_from_changing_anything() -> None:
    assert read_only({"ZEUS_READ_ONLY": "ja"})
    assert why_read_only({"ZEUS_READ_ONLY": "ja"}).startswith("ZEUS_READ_ONLY='ja': give 1 or 0.")
    assert not quiet({"ZEUS_QUIET": "ja"}), "what it prints harms nobody"


def test_patience_is_seconds_and_may_be_none() -> None:
    assert patience({}) == 20.0
    assert patience({"ZEUS_PATIENCE": "0"}) == 0.0
    with pytest.raises(InputError, match="ZEUS_PATIENCE='-1': give seconds of at least 0"):
        patience({"ZEUS_PATIENCE": "-1"})


def test_the_patience_with_a_rank_is_given_in_seconds_above_0() -> None:
    assert rank_patience({}) == 30.0
    assert rank_patience({"ZEUS_RANK_PATIENCE": "2.5"}) == 2.5
    for wrong in ("0", "-1", "soon"):
        with pytest.raises(InputError, match=f"ZEUS_RANK_PATIENCE='{wrong}': give seconds above 0"):
            rank_patience({"ZEUS_RANK_PATIENCE": wrong})


def test_a_batch_job_does_not_use_the_runtime_folder_of_the_login_node(tmp_path: Path) -> None:
    assert runtime_folder({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path
    assert runtime_folder({"XDG_RUNTIME_DIR": str(tmp_path / "of another node")}) is None
    assert runtime_folder({"XDG_RUNTIME_DIR": ""}) is runtime_folder({}) is None


@pytest.mark.parametrize("wrong", ["0", "two", "1.5", "-1", "²"])
def test_a_number_of_nodes_is_read_strictly(wrong: str) -> None:
    assert [nodes({}), nodes({"ZEUS_NODES": ""}), nodes({"ZEUS_NODES": "2"})] == [1, 1, 2]
    with pytest.raises(InputError, match="ZEUS_NODES"):
        nodes({"ZEUS_NODES": wrong})


def test_time_limits_are_the_usual_ones_but_for_those_that_are_given() -> None:
    assert time_limits({}) == TimeLimits()
    given = time_limits({"ZEUS_TIME_LIMITS": "grace=0.5 driver_answer=2"})
    assert given == TimeLimits(grace=0.5, driver_answer=2.0)
    for wrong in ("grace", "grace=soon", "patience=3"):
        with pytest.raises(InputError, match="ZEUS_TIME_LIMITS="):
            time_limits({"ZEUS_TIME_LIMITS": wrong})


def test_a_command_refuses_any_wrong_variable() -> None:
    refuse_mistakes(Layered({"ZEUS_CONFIG": "", "ZEUS_MODE": "observe", "ZEUS_QUIET": ""}, SETTINGS))
    for name in ("ZEUS_MODE", "ZEUS_READ_ONLY", "ZEUS_QUIET", "ZEUS_PATIENCE", "ZEUS_NODES", "ZEUS_RUN_ID"):
        with pytest.raises(InputError, match=f"^{name}='[?]': give "):
            refuse_mistakes(Layered({"ZEUS_CONFIG": "", name: "?"}, SETTINGS))


def test_what_says_what_zeus_may_change_is_never_guessed() -> None:
    for one in SETTINGS:
        if one.is_safety and one.unclear is None:
            with pytest.raises(InputError):
                one({one.variable: "?"})
    assert read_only({"ZEUS_READ_ONLY": "?"}), "whoever meant something by it meant yes"


def test_no_two_settings_share_a_key_or_a_variable() -> None:
    launcher = [one.metadata["variable"] for one in fields(LauncherEnv)]
    variables = [*(one.variable for one in SETTINGS), *launcher]
    assert len(set(variables)) == len(variables)
    assert len({one.key for one in SETTINGS}) == len(SETTINGS)


def test_the_reference_lists_the_settings() -> None:
    spec = importlib.util.spec_from_file_location("settings_tables", ROOT / "docs" / "assets" / "settings_tables.py")
    assert spec is not None and spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    page = tables.PAGE.read_text()
    assert tables.filled(page) == page, "run `make docs`"
    assert all(page.count(f"| `{one.variable}` |") == 1 for one in SETTINGS)
