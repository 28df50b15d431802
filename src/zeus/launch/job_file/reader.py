"""Reads and checks job.toml. All mistakes are reported at once, each with its line number, before anything runs."""

from __future__ import annotations

import hashlib
import re
import shlex
import string
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import regex

from zeus.cost import GPU_ONLY
from zeus.errors import InputError, suggest
from zeus.job import MAX_TRIES, JobSpec
from zeus.launch.job_file.placements import PLACEMENTS, SECRET
from zeus.launch.job_file.schema import NEEDED, SPEC, TABLES, TOP
from zeus.launch.job_file.values import PLACEHOLDERS, JobFile, LearningRate, MetricsSource, uses
from zeus.policy.registry import find_policy
from zeus.settings import Mode, ProfilingPlan, currency, gco2e_per_kwh, gco2e_token, price_per_kwh, profiling_plan
from zeus.tariff.rates import HourlyRate
from zeus.tariff.settings import read_rate
from zeus.toml_reader import TomlReader, shown

LONGEST_COMMAND = 4000  # letters of it that are stored with the job
_SECRET = re.compile(
    r"""(?ix) (?<![a-z0-9]) ((?:token|secret|password|passwd|credentials?|(?:api|access|private|secret)[-_]?key) ["']?
    (?: \s*[=:]\s* | \s+ )) (?!-) ("[^"]*" | '[^']*' | [^\s"']+) | (?<=://) ([^\s/@]+) (?=@)"""
)


def read_job_file(path: Path) -> JobFile:
    """Read and check a job file.

    Raises:
        InputError: The file is wrong. The message lists each mistake with its line number and how to fix it.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors write a byte order mark
    except (OSError, UnicodeDecodeError) as failed:
        raise InputError(f"{path} cannot be read: {failed}. Give a job file, as in `zeus run job.toml`.") from failed
    return parse_job_file(text, str(path))


def parse_job_file(text: str, name: str = "job.toml") -> JobFile:
    """Like `read_job_file`, for the text of a file of this name."""
    try:
        data = tomllib.loads(text)
    except ValueError as wrong:  # also a number of more digits than Python reads
        raise InputError(
            f"{name} is not valid TOML: {wrong}. Write texts in quotes and lists in [brackets]."
        ) from wrong
    return _Reader(name, text, TOP, secret=("env", SECRET)).read(data)


class _Reader(TomlReader):
    """Reads a job file."""

    def read(self, data: dict[str, Any]) -> JobFile:
        self._check(data, TOP)
        for table, known in TABLES.items():
            if isinstance(data.get(table), dict):
                self._check(data[table], known, table)
        for key in NEEDED:
            if key not in data:
                self._say(0, f"{key} is missing: add a line `{key} = ...` before the first [table].")
        self._raise()
        rates, metrics = data.get("learning_rate"), data.get("metrics")
        if rates is not None and "base" not in rates:
            self._blame(("learning_rate",), "base is missing: give the learning rate at default_batch_size.")
        self._check_env(data.get("env", {}))
        if metrics is not None:
            self._check_metrics(metrics)
        command = self._command(data["command"], rates is not None)
        sizes = data["batch_sizes"]
        if not self._wrong and metrics is not None:
            self._check_sizes(command, len(sizes) > 1, data.get("micro_batch_size", 0) != 0)
        profiling = self._profiling(data.get("profiling"))
        prices = self._prices(data.get("cost", {}))
        spec = self._spec(data)
        self._raise()
        assert spec is not None
        gpus = data.get("gpus", "all")
        return JobFile(
            spec=spec,
            command=command,
            learning_rate=None if rates is None else LearningRate(**rates),
            metrics=None if metrics is None else MetricsSource(**metrics),
            env=data.get("env", {}),
            gpus=None if gpus == "all" else tuple(gpus),
            mode=None if "mode" not in data else Mode(data["mode"]),
            profiling=profiling,
            max_tries=data.get("max_tries", MAX_TRIES),
            prices=prices,
            micro_batch_size=data.get("micro_batch_size", 0),
            places={name: data[name] for name in PLACEMENTS if name in data},
        )

    def _check_sizes(self, command: Sequence[str], several: bool, micro: bool) -> None:
        """Check that an unmodified script, which sees only its arguments, gets the batch sizes from them."""
        whole, part = uses(command, "batch_size"), uses(command, "per_device_batch_size")
        if several and not (whole or part):
            self._blame(
                ("command",),
                "command: an unmodified script gets its batch size only from its arguments. Add {batch_size} to the "
                "command, as in `--batch-size {batch_size}`.",
            )
        elif micro and not (part and (whole or uses(command, "accumulation_steps"))):
            self._blame(
                ("micro_batch_size",),
                "micro_batch_size: an unmodified script learns only from its arguments how its batches are split. Add "
                "{per_device_batch_size} and {accumulation_steps} to the command.",
            )

    # ------------------------------------------------------------------ keys and kinds

    def _check_env(self, env: dict[str, Any]) -> None:
        for key, value in env.items():
            if not isinstance(value, str):
                self._blame(("env", key), f'{key}: give a text in "quotes".')  # the value may be a secret
            elif not key or "=" in key or "\0" in key + value:
                self._blame(
                    ("env", key),
                    f"{key!r}: a variable needs a name without `=`, and no null character in name or value.",
                )
            elif key.startswith("ZEUS_"):
                self._blame(("env", key), f"{key} is a variable of Zeus: set it in the environment of `zeus run`.")
            elif key in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
                self._blame(
                    ("env", key), f"{key}: choose GPUs with `gpus` instead, so that Zeus measures the same ones."
                )

    # ------------------------------------------------------------------ values

    def _spec(self, data: dict[str, Any]) -> JobSpec | None:
        given = {name: data[key] for key, name in SPEC.items() if key in data}
        given.setdefault("job_id", data["name"])
        given["baseline_every"] = data.get("baseline", {}).get("every", 0)
        given["include"] = data.get("cost", {}).get("include", GPU_ONLY)
        given["command"] = without_secrets(data["command"])[:LONGEST_COMMAND]
        given["command_id"] = hashlib.sha256(data["command"].encode()).hexdigest()[:16]
        try:
            if "policy" in given:
                find_policy(given["policy"])
        except InputError as wrong:
            self._blame(("policy",), str(wrong))
            return None
        try:
            return JobSpec(**given)
        except InputError as wrong:  # "eta_knob=2: give ...": the job file calls this field `eta`
            field, _, rest = str(wrong).partition("=")
            key = next((key for key, name in SPEC.items() if name == field), field)
            self._blame((key,), f"{key} = {rest}")
            return None

    def _profiling(self, given: str | None) -> ProfilingPlan | None:
        try:
            return None if given is None else profiling_plan(given=given)
        except InputError as wrong:
            self._blame(("profiling",), str(wrong))
            return None

    def _prices(self, cost: dict[str, Any]) -> dict[str, str]:
        """The price and the carbon intensity, checked, as the variables of the environment."""
        found = {}
        for key, variable in (("price", price_per_kwh.variable), ("carbon", gco2e_per_kwh.variable)):
            if key not in cost:
                continue
            text = str(cost[key]).strip()
            try:
                rate = read_rate(text, key, carbon=key == "carbon", token=gco2e_token())
            except InputError as wrong:
                self._blame(("cost", key), str(wrong))
                continue
            found[variable] = str(Path(text).absolute()) if isinstance(rate, HourlyRate) else text
        return found | ({currency.variable: cost["currency"].strip()} if "currency" in cost else {})

    def _check_metrics(self, metrics: dict[str, Any]) -> None:
        sources = [key for key in ("regex", "file") if metrics.get(key)]
        if len(sources) != 1:
            what = "both regex and file are given: leave one out" if sources else "give regex or file"
            self._blame(("metrics",), f"[metrics]: {what}, so that Zeus knows where to find the metric.")
        if metrics.get("file") and (metrics.get("epoch_regex") or metrics.get("epoch_line")):
            self._blame(("metrics", "file"), "file: each of its lines ends an epoch, so leave out the epoch_ keys.")
        if metrics.get("file") and metrics.get("samples"):
            self._blame(("metrics", "samples"), 'samples: with file, write "samples" into its lines instead.')
        for key, meaning in _MEANS.items():
            try:
                groups = regex.compile(metrics.get(key, "()") or "()").groups
            except regex.error as wrong:
                self._blame(("metrics", key), f"{key} = {shown(metrics[key])} is not a regular expression: {wrong}.")
                continue
            if groups != 1:
                self._blame(
                    ("metrics", key),
                    f"{key} = {shown(metrics[key])} has {groups} groups, not 1: put only the {meaning} in "
                    "parentheses, and use (?:...) for other groups.",
                )

    def _command(self, text: str, has_rate: bool) -> tuple[str, ...]:
        try:
            parts = tuple(shlex.split(text))
        except ValueError as wrong:
            self._blame(("command",), f"command: {wrong}. Quote its parts as in a shell.")
            return ()
        if "\0" in text:
            self._blame(("command",), "command: an argument cannot hold a null character.")
        for part in parts:
            self._check_placeholders(part, has_rate)
        return parts

    def _check_placeholders(self, part: str, has_rate: bool) -> None:
        values: dict[str, float | str] = dict.fromkeys(PLACEHOLDERS, 1)
        values |= {"learning_rate": 0.5, "target_metric": 0.5, "python": "python"}
        try:
            names = [name for _, name, _, _ in string.Formatter().parse(part) if name is not None]
            strange = next((name for name in names if name not in PLACEHOLDERS), None)
            if strange is None:
                part.format(**values)
        except ValueError as wrong:
            self._blame(("command",), f"command: {part!r}: {wrong}. Write {{{{ and }}}} for literal braces.")
            return
        if strange is not None:
            self._blame(("command",), f"command: {{{strange}}} is not known. {suggest(strange, PLACEHOLDERS)}")
        elif "learning_rate" in names and not has_rate:
            self._blame(("command",), "command: {learning_rate} needs a [learning_rate] table with a `base`.")


_MEANS = {"regex": "metric", "epoch_regex": "number of the epoch", "samples": "number of samples"}


def without_secrets(command: str) -> str:
    """A command as it may be stored and shown: what looks like a password, token or key is left out.

    >>> without_secrets("sh -c 'WANDB_API_KEY=ab12 python train.py --hub-token cd34 --tokenizer bert'")
    "sh -c 'WANDB_API_KEY=*** python train.py --hub-token *** --tokenizer bert'"
    >>> without_secrets("python train.py https://me:pw@example.org/x --password='a b' --seed {seed}")
    'python train.py https://***@example.org/x --password=*** --seed {seed}'
    """
    return _SECRET.sub(lambda found: f"{found[1] or ''}***", command)
