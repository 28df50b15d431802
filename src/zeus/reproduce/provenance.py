"""What a report was made from: the software, the settings and the input files."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

import zeus
from zeus.reproduce.inputs import InputFile, counts

PACKAGES: Final = ("numpy", "matplotlib", "pillow")  # they compute, draw and write the pictures
CONSTRAINTS: Final = "constraints-reproduce.txt"  # in the repository: all versions behind the published report


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
