"""job.toml: what is written is what is meant, and what is wrong is said with its line and what to write instead."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.paths import EXAMPLES
from zeus.errors import InputError
from zeus.job import JobSpec
from zeus.job.wire import to_text
from zeus.launch.job_file.reader import parse_job_file, read_job_file
from zeus.launch.job_file.values import PLACEHOLDERS, JobFile, trial_seed
from zeus.launcher_env import LauncherEnv, launcher_env
from zeus.settings import Mode, ProfilingPlan

GOOD = r"""name = "sentiment"
command = "python train.py --batch-size {batch_size} --lr {learning_rate} --epochs {epochs} --seed {seed}"
batch_sizes = [8, 16, 32, 64, 128]
default_batch_size = 32
target_metric = 0.84
higher_is_better = true
max_epochs = 10
eta = 0.5
beta = 2.0
window = 0
policy = "structured"
power_limits = []
max_tries = 20
gpus = "all"
mode = "optimize"
[learning_rate]
base = 4e-5
rule = "sqrt"
[metrics]
regex = 'val_acc=([0-9.]+)'
epoch_regex = 'epoch (\d+) done'
file = ""
[env]
OMP_NUM_THREADS = "1"
"""


def test_a_cost_counts_gpus_unless_told_otherwise() -> None:
    assert read(GOOD).spec.include == ("gpu",)
    assert read(GOOD + '[cost]\ninclude = ["gpu", "cpu"]\n').spec.include == ("gpu", "cpu")


@pytest.mark.parametrize("value", ['"cpu"', '["cpu"]', "[]", '["gpu", "disk"]', '["gpu", "gpu"]', "true"])
def test_what_cannot_be_counted_is_refused_with_its_line(value: str) -> None:
    line = len(GOOD.splitlines()) + 2
    with pytest.raises(InputError, match=rf'line {line}: include = .*give \["gpu"\], or'):
        read(f"{GOOD}[cost]\ninclude = {value}\n")


def read(text: str) -> JobFile:
    return parse_job_file(text)


def change(key: str, to: str) -> str:
    """The good file with the line that begins so changed."""
    lines = GOOD.splitlines()
    lines[number(key) - 1] = to
    return "\n".join(lines)


def number(key: str) -> int:
    """Where that line stands."""
    return next(n for n, line in enumerate(GOOD.splitlines(), 1) if line.startswith(key))


def test_the_documented_file_says_what_it_says() -> None:
    job = read(GOOD)
    assert job.spec == JobSpec(
        job_id="sentiment",
        job_id_prefix="sentiment",
        batch_sizes=(8, 16, 32, 64, 128),
        default_batch_size=32,
        target_metric=0.84,
        max_epochs=10,
        command_id=job.spec.command_id,
        command="python train.py --batch-size {batch_size} --lr {learning_rate} --epochs {epochs} --seed {seed}",
    )
    assert len(job.spec.command_id) == 16
    assert (job.gpus, job.mode, job.max_tries, job.env) == (None, Mode.OPTIMIZE, 20, {"OMP_NUM_THREADS": "1"})
    assert job.arguments(128, 7)[1:] == [
        *("train.py", "--batch-size", "128", "--lr", "8e-05", "--epochs", "10", "--seed", "7")
    ]


def test_the_command_is_stored_with_the_job_but_nothing_of_the_environment() -> None:
    stored = to_text(read(change("OMP_NUM_THREADS", 'TOKEN = "s3cret"')).spec)
    assert "train.py --batch-size {batch_size}" in stored
    assert "TOKEN" not in stored and "s3cret" not in stored
    assert len(read(change("command", f'command = "train {{batch_size}} {"x" * 9000}"')).spec.command or "") == 4000


def test_the_way_of_profiling_is_left_to_the_environment_unless_it_is_given() -> None:
    assert read(GOOD).profiling is None
    assert read(change("mode", 'profiling = "paper"')).profiling is ProfilingPlan.PAPER


@pytest.mark.parametrize("name", ["job.toml", "ray_job.toml", "slurm_array.toml", "unmodified.toml"])
def test_the_examples_are_job_files(name: str) -> None:
    example = read_job_file(EXAMPLES / name)
    assert (EXAMPLES.parent / example.command[1]).exists()
    assert (example.metrics is None) == (name == "job.toml")


def test_the_page_shows_a_job_file() -> None:
    page = (EXAMPLES.parent / "docs" / "running.md").read_text()
    assert read(page.partition("```toml\n")[2].partition("```")[0]).spec == read(GOOD).spec


def test_everything_that_can_be_tuned_reaches_the_job() -> None:
    more = "mab_prior_mean = 1e6\nmab_prior_precision = 1e-9\nmab_seed = 3\nnum_pruning_rounds = 1\njob_id = 'x'\n"
    spec = read(more + change("power_limits", "power_limits = [150, 200.5]")).spec
    assert (spec.mab_prior_mean, spec.mab_prior_precision, spec.mab_seed) == (1e6, 1e-9, 3)
    assert (spec.num_pruning_rounds, spec.id, spec.power_limits) == (1, "x", (200.5, 150))


WRONG = [
    ("eta = 0.5", "etta = 0.5", "etta is not known. Did you mean 'eta'?"),
    ("eta = 0.5", "eta = 1.5", "eta = 1.5: give a number from 0 to 1"),
    ("eta = 0.5", 'eta = "half"', "eta = 'half': give a number"),
    ("beta = 2.0", "beta = 0.5", "beta = 0.5: give a number of at least 1"),
    ("window = 0", "window = 1.5", "window = 1.5: give a whole number"),
    ("default_batch_size = 32", "default_batch_size = 33", "give one of [8, 16, 32, 64, 128]"),
    ("batch_sizes", "batch_sizes = 8", "batch_sizes = 8: give a list of whole numbers"),
    ("batch_sizes", "batch_sizes = [8, 8, 32]", "each size once"),
    ("batch_sizes", 'batch_sizes = ["8", 32]', "give a list of whole numbers"),
    ("higher_is_better", 'higher_is_better = "yes"', "give true or false"),
    ("policy", 'policy = "papre"', "Did you mean 'paper'?"),
    ("policy", 'start = "best"', 'start = \'best\': give "default" or "profiled".'),
    ("power_limits", "power_limits = [100, 100]", "watts above 0, each once"),
    ("max_tries", "max_tries = 0", "a whole number from 1 to 2**53"),
    ("max_epochs", f"max_epochs = {2**60}", "give a whole number of at most 2**53 (9007199254740992)"),
    ("batch_sizes", f"batch_sizes = [8, {2**60}]", "each a whole number of at most 2**53 (9007199254740992)"),
    ("window = 0", "mab_seed = -1", "mab_seed = -1: give a whole number of at least 0."),
    ("gpus", "gpus = [0, 0]", 'give "all", or a list of different indices'),
    ("gpus", "gpus = 0", 'give "all", or a list of different indices'),
    ("mode", 'mode = "optimise"', 'give "optimize", "observe" or "off"'),
    ("mode", 'profiling = "papre"', "profiling='papre': give walk or paper."),
    ("mode", "profiling = true", "profiling = true: give a text"),
    ("mode", "micro_batch_size = -1", "micro_batch_size = -1: give a whole number of samples, 0 to split no batch"),
    ("mode", 'micro_batch_size = "atuo"', 'or "auto"'),
    ("mode", "micro_batch_size = true", 'or "auto"'),
    ("mode", "micro_batch_size = 8", "Add {per_device_batch_size} and {accumulation_steps} to the command"),
    ("command", 'command = "python {batch}"', "{batch} is not known. Did you mean 'batch_size'?"),
    ("command", 'command = "python {}"', "{} is not known. Known: batch_size"),
    ("command", "command = \"python -c 'print({0})'\"", "{0} is not known"),
    ("command", 'command = "python {batch_size"', "Write {{ and }} for literal braces"),
    ("command", 'command = "python {epochs:nonsense}"', "command: '{epochs:nonsense}'"),
    ("command", 'command = "python {learning_rate:d}"', "command: '{learning_rate:d}'"),
    ("command", 'command = "python \'x"', "Quote its parts as in a shell"),
    ("command", "command = ''", "give a text"),
    ("base = 4e-5", "base = 0", "base = 0: give a number above 0"),
    ("rule", 'rule = "squared"', 'give "sqrt" or "linear" or "none"'),
    ("rule", 'rule = ["sqrt"]', 'give "sqrt" or "linear" or "none"'),
    ("rule", 'rules = "sqrt"', "rules is not known in [learning_rate]. Did you mean 'rule'?"),
    ("regex", "regex = 'val_acc=[0-9.]+'", "has 0 groups"),
    ("regex", "regex = '(val|test)_acc=([0-9.]+)'", "use (?:...) for other groups"),
    ("regex", "regex = 'val_acc=('", "is not a regular expression"),
    ("regex", "regex = ''", "give regex or file"),
    ("epoch_regex", "epoch_regex = 'epoch'", "put only the number of the epoch in parentheses"),
    ("epoch_regex", "samples = '[0-9]+ samples'", "put only the number of samples in parentheses"),
    ("file", 'file = "metrics.jsonl"', "both regex and file are given"),
    ("OMP_NUM_THREADS", "OMP_NUM_THREADS = 1", 'OMP_NUM_THREADS: give a text in "quotes"'),
    ("OMP_NUM_THREADS", 'A = "\\u0000"', "no null character in name or value"),
    ("command", 'command = "python \\u0000"', "an argument cannot hold a null character"),
    ("OMP_NUM_THREADS", 'ZEUS_GPU = "virtual:v100"', "set it in the environment of `zeus run`"),
    ("OMP_NUM_THREADS", 'CUDA_VISIBLE_DEVICES = "0"', "choose GPUs with `gpus` instead"),
]


@pytest.mark.parametrize(("line", "to", "said"), WRONG, ids=[to for _, to, _ in WRONG])
def test_what_is_wrong_is_said_with_its_line_and_what_to_write(line: str, to: str, said: str) -> None:
    with pytest.raises(InputError) as wrong:
        read(change(line, to))
    first = str(wrong.value).splitlines()[0]
    expected = number("[metrics]") if "regex or file" in said or "both regex" in said else number(line)
    assert first.startswith(f"job.toml, line {expected}: ")
    assert said in first


@pytest.mark.parametrize(("digits", "said"), [(400, "give a number"), (5000, "is not valid TOML")])
def test_a_number_of_any_length_is_refused_and_not_a_crash(digits: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(change("eta = 0.5", f"eta = {'9' * digits}"))


def test_everything_wrong_is_said_at_once_in_the_order_of_the_file() -> None:
    text = change("eta = 0.5", "etta = 0.5").replace("[env]", "[enw]").replace("max_tries = 20", "max_tries = -1")
    with pytest.raises(InputError) as wrong:
        read(text)
    lines = [int(n) for n in re.findall(r"line (\d+)", str(wrong.value))]
    assert lines == sorted(lines)
    assert len(lines) == 3


@pytest.mark.parametrize("key", ["name", "command", "batch_sizes", "default_batch_size", "target_metric", "max_epochs"])
def test_what_is_needed_is_asked_for(key: str) -> None:
    text = "\n".join(line for line in GOOD.splitlines() if not line.startswith(f"{key} ="))
    with pytest.raises(InputError, match=f"{key} is missing: add a line"):
        read(text)


def test_a_key_below_a_table_by_mistake_is_shown_its_place() -> None:
    with pytest.raises(InputError, match=r"line 18: max_tries is below \[learning_rate\].*move it above"):
        read(change('rule = "sqrt"', "max_tries = 3"))


def test_a_learning_rate_needs_its_base() -> None:
    without = GOOD.replace('[learning_rate]\nbase = 4e-5\nrule = "sqrt"\n', "")
    with pytest.raises(InputError, match=r"line 2: command: \{learning_rate\} needs a \[learning_rate\] table"):
        read(without)
    with pytest.raises(InputError, match="base is missing"):
        read(change("base = 4e-5", ""))


def test_what_is_not_toml_is_said_with_its_line() -> None:
    with pytest.raises(InputError, match=r"is not valid TOML: .*line 8"):
        read(change("eta = 0.5", "eta = half"))


def test_a_file_that_is_not_there_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read: .*No such file"):
        read_job_file(tmp_path / "job.toml")


def test_an_environment_variable_may_have_any_name() -> None:
    assert read(change("OMP_NUM_THREADS", 'max_epochs = "3"')).env == {"max_epochs": "3"}


def test_a_variable_that_no_process_could_have_is_refused() -> None:
    with pytest.raises(InputError, match="'A=B': a variable needs a name without `=`"):
        read(change("OMP_NUM_THREADS", '"A=B" = "1"'))


def test_a_value_of_the_environment_is_never_repeated() -> None:
    with pytest.raises(InputError) as wrong:
        read(change("OMP_NUM_THREADS", "TOKEN = 271828"))
    assert "271828" not in str(wrong.value)
    with pytest.raises(InputError, match="env: give a table") as wrong:
        read(change("[env]", "[[env]]").replace("OMP_NUM_THREADS", "TOKEN").replace('"1"', '"271828"'))
    assert "271828" not in str(wrong.value)


def test_a_file_may_begin_with_the_mark_of_its_encoding(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert read_job_file(tmp_path / "job.toml") == read(GOOD)


def test_texts_over_several_lines_and_tables_in_one_line_do_not_shift_the_lines() -> None:
    text = GOOD.replace('[learning_rate]\nbase = 4e-5\nrule = "sqrt"\n', "").replace(
        "eta = 0.5\n", 'learning_rate = { base = 1.0, rulle = "sqrt" }\netta = 1\n'
    )
    text = text.replace("command = ", 'command = """sh -c \'\nbeta = 3\n\'"""\n#')
    with pytest.raises(InputError) as wrong:
        read(text)
    assert [int(n) for n in re.findall(r"line (\d+)", str(wrong.value))] == [11, 12]


@given(st.integers(1, 4096), st.integers(0, 2**31 - 1))
def test_every_placeholder_is_filled_and_double_braces_stay(batch_size: int, seed: int) -> None:
    words = " ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    job = read(change("command", f'command = "python {words} {{{{x}}}}"'))
    filled = job.arguments(batch_size, seed)
    assert (filled[1], *filled[3:]) == (
        *(str(batch_size), str(seed), "10", "0.84"),
        *(str(batch_size), "1", "1", sys.executable),
        "{x}",
    )
    assert float(filled[2]) == pytest.approx(4e-5 * (batch_size / 32) ** 0.5)


def test_a_batch_is_split_over_gpus_and_accumulation_steps_where_the_command_asks_for_it() -> None:
    words = "{batch_size} {per_device_batch_size} {accumulation_steps} {world_size}"
    job = read(change("command", f'command = "python {words}"').replace('mode = "optimize"', "micro_batch_size = 12"))
    assert job.micro_batch_size == 12
    assert job.arguments(128, 1, world_size=4, micro=12)[1:] == ["128", "8", "4", "4"]
    with pytest.raises(InputError, match="cannot be shared evenly by 3 GPUs"):
        job.arguments(128, 1, world_size=3)
    assert read(GOOD).arguments(128, 1, world_size=3)[3] == "128"  # a command that need not know


def test_what_a_placeholder_becomes_is_one_argument_whatever_stands_around_it() -> None:
    job = read(change("command", "command = \"sh -c 'train {batch_size}; echo done' x{seed}\""))
    assert job.arguments(8, 1) == ["sh", "-c", "train 8; echo done", "x1"]


@given(st.integers(0, 2**31), st.integers(1, 10_000))
def test_a_trials_seed_is_its_own_and_stays(job_seed: int, trial: int) -> None:
    assert trial_seed(job_seed, trial) == trial_seed(job_seed, trial) != trial_seed(job_seed, trial + 1)
    assert 0 <= trial_seed(job_seed, trial) < 2**31


numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
whole = st.none() | st.integers(1, 2**31)


@given(
    st.builds(
        LauncherEnv,
        job_id=st.none() | st.just("asr"),
        trial=whole,
        batch_size=whole,
        learning_rate=numbers,
        cost_limit=numbers,
        eta=numbers,
        target_metric=numbers,
        higher_is_better=st.none() | st.booleans(),
        max_epochs=whole,
        seed=whole,
        outcome_file=st.none() | st.just("x.json"),
    )
)
def test_what_a_launcher_writes_is_what_a_script_reads(said: LauncherEnv) -> None:
    assert launcher_env(said.variables()) == said
