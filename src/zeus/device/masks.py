"""Which cards a mask such as CUDA_VISIBLE_DEVICES selects. Follows the driver's rules. Pure.

These rules of the CUDA driver were observed on a real card (CUDA 13, H200):

- An empty mask and `-1` select nothing. The first index out of range ends the list.
- Indices and UUIDs do not mix: a UUID after an index ends the list, and an index after a UUID too. AMD mixes them.
- If a card is named twice, the process sees no device at all.
- A UUID may be abbreviated, and its hex digits may be capitals. A UUID after a space is not seen.

One rule comes from NVIDIA's guide and was not observed: a process sees only the first MIG slice.

If the driver would silently show fewer cards than the mask names, `note` is called with the reason. If an entry cannot
be understood, `InputError` names the entry and lists the cards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Protocol

from zeus.errors import InputError, NoDevice

FORMS = "indices (0,1), UUIDs (GPU-8932f937, abbreviated if unique), or one MIG id (MIG-<uuid>)"


class MaskedCard(Protocol):
    """The names that a mask can use for a card. A `GpuSpec` has them."""

    @property
    def uuid(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def aliases(self) -> tuple[str, ...]: ...


class _Kind(Enum):
    INDEX = "an index"
    UUID = "a UUID"
    MIG = "a MIG id"


def no_mig(uuid: str) -> str:
    """The `mig_parent` for machines without MIG: every uuid is unknown."""
    raise NoDevice(f"{uuid}: these cards have no MIG slices")


def resolve(
    mask: str | None,
    cards: Sequence[MaskedCard],
    note: Callable[[str], None],
    *,
    variable: str = "CUDA_VISIBLE_DEVICES",
    mig_parent: Callable[[str], str] = no_mig,
    mixed: bool = False,
) -> list[int]:
    """The positions in `cards` that `mask` selects, in its order.

    Args:
        mask: The variable's value. None means that it is not set, which selects every card.
        cards: Every card, in the order in which indices count them.
        note: Is called with a warning for the person who wrote the mask.
        variable: The variable that holds the mask, for messages.
        mig_parent: Returns the UUID of the card that holds a MIG uuid. Raises `NoDevice` for an unknown uuid.
        mixed: Whether a mask may hold both indices and UUIDs (AMD).

    Raises:
        InputError: An entry cannot be understood, matches no card or several, or repeats a card.
    """
    if mask is None:
        return list(range(len(cards)))
    reader = _Reader(f"{variable}={mask!r}", cards, mig_parent)
    chosen: dict[int, str] = {}  # position -> the entry that selected it
    first: _Kind | None = None
    entries = mask.split(",")
    for place, raw in enumerate(entries):
        entry, rest = raw.strip(), ",".join(entries[place:])
        kind = reader.kind(entry)
        first = first or kind
        if kind is None or first is None:
            break
        if kind is not first and not (mixed and _Kind.MIG not in (kind, first)):
            why = f"{kind.value} follows {first.value}, which CUDA does not mix"
            note(f"{reader.source}: {why}, so {rest!r} is ignored.")
            break
        if kind is _Kind.INDEX and not 0 <= int(entry) < len(cards):
            if int(entry) >= 0:  # a negative one is the documented way to end the list
                why = f"there is no GPU {int(entry)} (number of GPUs: {len(cards)})"
                note(f"{reader.source}: {why}, so {rest!r} is ignored.")
            break
        position = reader.position(entry, kind)
        if earlier := chosen.get(position):
            raise InputError(
                f"{reader.source} names GPU {position} ({cards[position].uuid}) twice, as {earlier!r} and "
                f"{entry!r}. CUDA then shows no device at all. Name each GPU once."
            )
        chosen[position] = entry
        if kind is _Kind.MIG:
            if rest := ",".join(entries[place + 1 :]):
                note(f"{reader.source}: CUDA shows only one MIG slice, so it ignores {rest!r}.")
            break
        if kind is _Kind.UUID and raw[0].isspace():
            note(f"{reader.source}: remove the space before {entry!r}: CUDA ignores a UUID after a space.")
    return list(chosen)


class _Reader:
    """Reads the entries of one mask against one list of cards."""

    def __init__(self, source: str, cards: Sequence[MaskedCard], mig_parent: Callable[[str], str]) -> None:
        self.source = source
        self._cards = cards
        self._mig_parent = mig_parent

    def kind(self, entry: str) -> _Kind | None:
        """None for an empty entry. Raises `InputError` for one that cannot be understood."""
        if not entry or entry == "NoDevFiles":  # Slurm writes this for a job that asked for no GPU
            return None
        if re.fullmatch(r"[+-]?[0-9]+", entry):
            return _Kind.INDEX
        if entry.startswith("MIG-"):
            return _Kind.MIG
        if entry.startswith("GPU-") or any(_same(entry, name) for card in self._cards for name in _names(card)):
            return _Kind.UUID
        raise InputError(f"{self.source}: {entry!r} is not understood. Give {FORMS}. The GPUs are {self._inventory()}.")

    def position(self, entry: str, kind: _Kind) -> int:
        """Where the card of this entry is in the list."""
        match kind:
            case _Kind.INDEX:
                return int(entry)
            case _Kind.UUID:
                return self._uuid(entry)
            case _Kind.MIG:
                return self._mig(entry)

    def _uuid(self, entry: str) -> int:
        for position, card in enumerate(self._cards):
            if any(_same(entry, name) for name in _names(card)):
                return position
        found = [
            position
            for position, card in enumerate(self._cards)
            if entry != "GPU-" and any(name.lower().startswith(entry.lower()) for name in _names(card))
        ]
        if len(found) == 1:
            return found[0]
        problem = f"matches {len(found)} GPUs: give more digits" if found else "matches no GPU"
        raise InputError(f"{self.source}: {entry!r} {problem}. The GPUs are {self._inventory()}.")

    def _mig(self, entry: str) -> int:
        if older_form := re.fullmatch(r"MIG-(GPU-[^/]+)/[0-9]+/[0-9]+", entry):
            return self._uuid(older_form[1])
        try:
            return self._uuid(self._mig_parent(entry))
        except NoDevice as error:
            raise InputError(
                f"{self.source}: {entry!r} matches no MIG slice ({error}). `nvidia-smi -L` lists them. "
                f"The GPUs are {self._inventory()}."
            ) from error

    def _inventory(self) -> str:
        return ", ".join(f"{index}: {card.uuid} ({card.name})" for index, card in enumerate(self._cards)) or "no GPUs"


def _names(card: MaskedCard) -> Iterator[str]:
    yield from (name for name in (card.uuid, *card.aliases) if name)


def _same(entry: str, name: str) -> bool:
    return entry.lower() == name.lower() and entry[:4] == name[:4]  # case matters in `GPU-`, not in the digits


def slurm_share(text: str, indices: Sequence[int], *, variable: str) -> list[int]:
    """Which of these cards Slurm gave to this job or step. `text` lists positions in the driver's order: `0,2`, `0-3`.

    Slurm can hide the other cards from the job (ConstrainDevices). The driver then numbers the visible cards from 0, so
    a position may lie beyond them. In that case, every visible card belongs to the job.
    """
    positions: list[int] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        span = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", entry)
        if not span or int(span[2] or span[1]) < int(span[1]):
            raise InputError(
                f"{variable}={text!r}: {entry!r} is not understood. Expected positions such as 0,2 or 0-3. "
                "Set CUDA_VISIBLE_DEVICES to say which GPUs are yours."
            )
        positions += range(int(span[1]), int(span[2] or span[1]) + 1)
    if any(position > max(indices, default=-1) for position in positions):
        return list(indices)
    return [position for position in dict.fromkeys(positions) if position in indices]
