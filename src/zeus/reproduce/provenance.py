"""What a report was made from: the software, the settings, and the input files.

Each input file has the published contents, differs from them, or is absent.
"""

from __future__ import annotations

import hashlib
import platform
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from importlib.resources import files as resources
from pathlib import Path
from typing import Any, Final

import zeus

PACKAGES: Final = ("numpy", "matplotlib", "pillow")  # they compute, draw and write the pictures
CONSTRAINTS: Final = "constraints-reproduce.txt"  # in the repository: all versions behind the published report
TRACES: Final = "nsdi23_traces"  # the one folder that may have another name


class Match(StrEnum):
    """How a file compares with the published one."""

    SAME = "same"
    DIFFERS = "differs"
    ABSENT = "absent"


WORDS: Final = {Match.SAME: "as published", Match.DIFFERS: "different", Match.ABSENT: "absent"}


@dataclass(frozen=True, slots=True)
class DataSource:
    """Where the files of one folder come from. The head of inputs.toml explains the fields."""

    folder: str
    what: str
    repository: str
    path: str
    commit: str
    licence: str
    read_by: tuple[str, ...]
    files: Mapping[str, str]  # SHA-256 by path

    def needed_by(self, figures: Collection[str]) -> bool:
        return not self.read_by or any(name in figures for name in self.read_by)


@dataclass(frozen=True, slots=True)
class InputFile:
    """One input file, and how it compares with the published one."""

    source: DataSource
    path: str  # in the folder of its source
    sha256: str | None  # None: absent

    @property
    def published_sha256(self) -> str:
        return self.source.files[self.path]

    @property
    def match(self) -> Match:
        if self.sha256 is None:
            return Match.ABSENT
        return Match.SAME if self.sha256 == self.published_sha256 else Match.DIFFERS

    @property
    def name(self) -> str:
        return f"{self.source.folder}/{self.path}"

    def to_json(self) -> dict[str, Any]:
        source = self.source
        return {
            "file": self.name,
            "match": self.match.value,
            "sha256": self.sha256,
            "published_sha256": self.published_sha256,
            "repository": source.repository,
            "path": source.path,
            "commit": source.commit or None,
            "licence": source.licence,
        }


def sources() -> list[DataSource]:
    """Read inputs.toml."""
    tables = tomllib.loads((resources(__package__) / "inputs.toml").read_text(encoding="utf-8"))
    return [DataSource(folder, **{**table, "read_by": tuple(table["read_by"])}) for folder, table in tables.items()]


def check(traces: Path, data: Path, figures: Collection[str]) -> list[InputFile]:
    """Look at every published file that these figures read."""
    return [
        InputFile(source, path, _sha256((traces if source.folder == TRACES else data / source.folder) / path))
        for source in sources()
        if source.needed_by(figures)
        for path in source.files
    ]


def counts(found: Iterable[InputFile]) -> str:
    """One sentence: how many files are as published, differ, or are absent."""
    matches = [one.match for one in found]
    return "Input files: " + ", ".join(f"{matches.count(one)} {word}" for one, word in WORDS.items()) + "."


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a report was made from. It has no date and no host, so the same run gives the same file."""

    seeds: int
    gpus: tuple[str, ...]
    figures: tuple[str, ...]
    inputs: tuple[InputFile, ...]
    software: Mapping[str, str]  # version by name

    def to_json(self) -> dict[str, Any]:
        return {
            "software": dict(self.software),
            "seeds": self.seeds,
            "gpus": list(self.gpus),
            "figures": list(self.figures),
            "inputs": [one.to_json() for one in self.inputs],
        }

    @property
    def sentences(self) -> tuple[str, str]:
        """The software and the input files, for people."""
        made = ", ".join(f"{name} {number}" for name, number in self.software.items())
        return f"Software: {made}.", counts(self.inputs)


def of(seeds: int, gpus: Sequence[str], figures: Sequence[str], inputs: Sequence[InputFile]) -> Provenance:
    """The provenance of a run in this environment."""
    software = {"zeus": zeus.__version__, "Python": platform.python_version()}
    software |= {package: version(package) for package in PACKAGES}
    return Provenance(seeds, tuple(gpus), tuple(figures), tuple(inputs), software)


def _sha256(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
