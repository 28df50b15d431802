"""`zeus run --on kubernetes`: prints manifests for a Job, a CronJob or a PyTorchJob. It applies nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from zeus.errors import InputError
from zeus.launch.job_file.placements import KubernetesSettings
from zeus.launch.job_file.values import PLACEHOLDERS, JobFile, uses
from zeus.launch.placement.kubernetes_manifests import JOB_FILE, Work, render
from zeus.launch.placement.placement import Placement
from zeus.launch.placement.submission import Submission
from zeus.lazy import optional

SUFFIX_LETTERS = 6
# Surely a text for every reader of YAML. Those of kubectl and of Python disagree about 1e3, 0o17, y and n.
PLAIN = re.compile(r"[A-Za-z/][\w./-]+", re.ASCII)
SAME_EVERYWHERE = ("epochs", "target_metric", "python")  # placeholders whose value does not depend on the trial


class Kubernetes(Placement):
    """Renders manifests. Nothing is applied, and nothing is asked of a cluster or a store."""

    def __init__(self, submission: Submission) -> None:
        settings = KubernetesSettings(**submission.settings)
        together = settings.kind == "pytorchjob"
        work = Work(
            job_id=submission.name,
            job_file=submission.path.read_text(encoding="utf-8-sig"),
            command=replace(submission, path=Path(JOB_FILE)).command(None if together else 1, python="python3"),
            training=_training(submission.file) if settings.workers else (),
            variables={**submission.file.env, **submission.file.prices},
            recurrences=submission.recurrences,
        )
        self._manifests = render(settings, work, submission.unique[:SUFFIX_LETTERS])

    def plan(self, as_json: bool) -> str:
        """The manifests."""
        return _json(self._manifests) if as_json else to_yaml(self._manifests)


def _training(file: JobFile) -> list[str]:
    """The command of a worker, which learns the batch size from the first rank."""
    unknown = [name for name in PLACEHOLDERS if name not in SAME_EVERYWHERE and uses(file.command, name)]
    if unknown or file.metrics is not None:
        what = f"{{{unknown[0]}}} in the command" if unknown else "[metrics]"
        raise InputError(
            f"--on kubernetes: {what} is only known to the master of a pytorchjob. With workers, the script must take "
            "its batch size from Zeus, as ZeusDataLoader does. Leave that out, or leave out workers."
        )
    values = {"epochs": file.spec.max_epochs, "target_metric": file.spec.target_metric, "python": "python3"}
    return [part.format(**values) for part in file.command]


def _json(manifests: Sequence[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)}, indent=2) + "\n"


def to_yaml(manifests: Sequence[dict[str, Any]]) -> str:
    """One YAML document for each manifest."""
    with optional("--on kubernetes without --json", "kubernetes", "PyYAML"):
        import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        """Writes what appears twice twice, without anchors. Texts of several lines are blocks, odd ones in quotes."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    def style(text: str) -> str | None:
        return "|" if "\n" in text else None if PLAIN.fullmatch(text) else '"'

    Dumper.add_representer(
        str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style(text))
    )
    return "---\n".join(yaml.dump(one, Dumper=Dumper, sort_keys=False, allow_unicode=True) for one in manifests)
