"""A virtual GPU of your own, from a TOML file: a known card, with what is different about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from zeus.device.virtual import presets
from zeus.device.virtual.physics import Card, Load
from zeus.simulate.workload_file import ABOVE_0, NAME, Check, TableReader, read_toml

SUFFIX: Final = ".toml"
_CARD: Final[dict[str, Check]] = {
    "like": NAME,
    "name": NAME,
    "min_watts": ABOVE_0,
    "max_watts": ABOVE_0,
    "idle_watts": ABOVE_0,
    "compute_speed": ABOVE_0,
    "memory_speed": ABOVE_0,
}


@dataclass(frozen=True, slots=True)
class VirtualCard:
    """A card, and how its loads differ from those of a known card."""

    name: str
    card: Card
    like: str
    compute_speed: float = 1.0
    memory_speed: float = 1.0

    def load(self, name: str) -> Load:
        """A workload as it runs on this card."""
        known = presets.load(self.like, name)
        if self.compute_speed == self.memory_speed == 1.0:
            return known
        return replace(
            known,
            compute_seconds_per_sample=known.compute_seconds_per_sample / self.compute_speed,
            memory_seconds_per_sample=known.memory_seconds_per_sample / self.memory_speed,
        )


def find(gpu: str) -> VirtualCard:
    """The card of this name, or of this file.

    >>> find("a100").card.max_watts
    400
    """
    return read(gpu) if gpu.endswith(SUFFIX) else VirtualCard(gpu, presets.card(gpu), gpu)


def read(path: Path | str) -> VirtualCard:
    """Read a card. The keys that are left out are those of the card `like`."""
    text, data = read_toml(path)
    reader = TableReader(str(path), text, _CARD)
    reader.table(data, _CARD, needed=("like",))
    reader.end()
    return _card(path, data)


def _card(path: Path | str, data: Mapping[str, Any]) -> VirtualCard:
    known = presets.card(data["like"])
    own = {key: data[key] for key in ("name", "min_watts", "max_watts", "idle_watts") if key in data}
    card = replace(known, **own, default_watts=own.get("max_watts", known.default_watts))
    speeds = {key: float(data.get(key, 1.0)) for key in ("compute_speed", "memory_speed")}
    return VirtualCard(Path(path).stem, card, data["like"], **speeds)
