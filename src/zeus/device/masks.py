"""Which cards a mask such as CUDA_VISIBLE_DEVICES selects. Follows the driver's rules. Pure.

These rules of the CUDA driver were observed on a real card (CUDA 13, H200):

- An empty mask and `-1` select nothing. The first index out of range ends the list.
- Indices and UUIDs do not mix: a UUID after an index ends the list, and an index after a UUID too. AMD mixes them.
- If a card is named twice, the process sees no device at all.
- A UUID may be abbreviated, and its hex digits may be capitals. A UUID after a space is not seen.

One rule comes from NVIDIA's guide and was not observed: a process sees only the first MIG slice.

If the driver would silently show fewer cards than the mask names, a note says so. If an entry cannot be understood,
`InputError` names the entry and lists the cards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from zeus.errors import InputError, NoDevice

FORMS = "indices (0,1), UUIDs (GPU-8932f937, abbreviated if unique), or one MIG id (MIG-<uuid>)"


@dataclass(frozen=True, slots=True)
class CardId:
    """The names that a mask can use for a card. `aliases` are other ids of the same card, such as HIP's."""

    index: int
    uuid: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    shared: bool = False  # whether a mask selects only a slice of it (MIG)


@dataclass(frozen=True, slots=True)
class Visible:
    """The cards that a mask selects, in its order, and notes for whoever wrote the mask."""

    cards: tuple[CardId, ...]
    notes: tuple[str, ...] = ()


class _Kind(Enum):
    INDEX = "an index"
    UUID = "a UUID"
    MIG = "a MIG id"


@dataclass(frozen=True, slots=True)
class _Ends:
    """The driver ignores this entry and all after it. `why` is empty if the mask plainly intends that."""

    why: str = ""


def no_mig(uuid: str) -> int:
    """The `mig_parent` for machines without MIG: every uuid is unknown."""
    raise NoDevice(f"{uuid}: these cards have no MIG slices")


def resolve(
    mask: str | None,
    cards: Sequence[CardId],
    *,
    variable: str = "CUDA_VISIBLE_DEVICES",
    mig_parent: Callable[[str], int] = no_mig,
    mixed: bool = False,
) -> Visible:
    """The cards that `mask` selects.

    Args:
        mask: The variable's value. None means that it is not set, which selects every card.
        cards: Every card, in the order in which indices count them.
        variable: The variable that holds the mask, for messages.
        mig_parent: Returns the `index` of the card that holds a MIG uuid. Raises `NoDevice` for an unknown uuid.
        mixed: Whether a mask may hold both indices and UUIDs (AMD).

    Raises:
        InputError: An entry cannot be understood, matches no card or several, or repeats a card.
    """
    if mask is None:
        return Visible(tuple(cards))
    reader = _Reader(mask, cards, variable, mig_parent)
    named: dict[int, str] = {}
    chosen: list[CardId] = []
    first: _Kind | None = None
    entries = mask.split(",")
    for position, raw in enumerate(entries):
        entry = raw.strip()
        kind = reader.kind(entry)
        first = first or kind
        if kind and first and kind is not first and not (mixed and _Kind.MIG not in (kind, first)):
            found: CardId | _Ends = _Ends(f"{kind.value} follows {first.value}, which CUDA does not mix")
        else:
            found = reader.read(entry, kind)
        if isinstance(found, _Ends):
            rest = ",".join(entries[position:])
            note = f"{found.why}, so {rest!r} is ignored" if found.why else ""
            return Visible(tuple(chosen), reader.notes(note))
        if earlier := named.get(found.index):
            raise InputError(
                f"{reader.source} names GPU {found.index} ({found.uuid}) twice, as {earlier!r} and "
                f"{entry!r}. CUDA then shows no device at all. Name each GPU once."
            )
        named[found.index] = entry
        chosen.append(found)
        if kind is _Kind.MIG:  # CUDA shows a process only one slice
            rest = ",".join(entries[position + 1 :])
            note = f"CUDA shows only one MIG slice, so it ignores {rest!r}" if rest else ""
            return Visible(tuple(chosen), reader.notes(note))
        if kind is _Kind.UUID and raw[0].isspace():
            reader.remarks.append(f"remove the space before {entry!r}: CUDA ignores a UUID after a space")
    return Visible(tuple(chosen), reader.notes())


class _Reader:
    """Reads the entries of one mask against one list of cards."""

    def __init__(self, mask: str, cards: Sequence[CardId], variable: str, mig_parent: Callable[[str], int]) -> None:
        self.source = f"{variable}={mask!r}"
        self.remarks: list[str] = []
        self._cards = cards
        self._mig_parent = mig_parent

    def notes(self, last: str = "") -> tuple[str, ...]:
        return tuple(f"{self.source}: {remark}." for remark in [*self.remarks, last] if remark)

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

    def read(self, entry: str, kind: _Kind | None) -> CardId | _Ends:
        match kind:
            case None:
                return _Ends()
            case _Kind.INDEX:
                return self._index(int(entry))
            case _Kind.UUID:
                return self._uuid(entry)
            case _Kind.MIG:
                return replace(self._mig(entry), shared=True)

    def _index(self, index: int) -> CardId | _Ends:
        if index < 0:
            return _Ends()  # the documented way to end the list
        if index >= len(self._cards):
            return _Ends(f"there is no GPU {index} (number of GPUs: {len(self._cards)})")
        return self._cards[index]

    def _uuid(self, entry: str) -> CardId:
        for card in self._cards:
            if any(_same(entry, name) for name in _names(card)):
                return card
        found = [
            card
            for card in self._cards
            if entry != "GPU-" and any(name.lower().startswith(entry.lower()) for name in _names(card))
        ]
        if len(found) == 1:
            return found[0]
        problem = f"matches {len(found)} GPUs: give more digits" if found else "matches no GPU"
        raise InputError(f"{self.source}: {entry!r} {problem}. The GPUs are {self._inventory()}.")

    def _mig(self, entry: str) -> CardId:
        older_form = re.fullmatch(r"MIG-(GPU-[^/]+)/[0-9]+/[0-9]+", entry)
        if older_form:
            return self._uuid(older_form[1])
        try:
            parent = self._mig_parent(entry)
        except NoDevice as error:
            raise InputError(
                f"{self.source}: {entry!r} matches no MIG slice ({error}). `nvidia-smi -L` lists them. "
                f"The GPUs are {self._inventory()}."
            ) from error
        for card in self._cards:
            if card.index == parent:
                return card
        raise InputError(
            f"{self.source}: {entry!r} is a slice of GPU {parent}, which is not among {self._inventory()}."
        )

    def _inventory(self) -> str:
        return ", ".join(f"{index}: {card.uuid} ({card.name})" for index, card in enumerate(self._cards)) or "no GPUs"


def _names(card: CardId) -> Iterator[str]:
    yield from (name for name in (card.uuid, *card.aliases) if name)


def _same(entry: str, name: str) -> bool:
    return entry.lower() == name.lower() and entry[:4] == name[:4]  # case matters in `GPU-`, not in the digits


def slurm_share(text: str, cards: Sequence[CardId], *, variable: str) -> Visible:
    """The cards that Slurm gave to this job or step. `text` lists positions in the driver's order: `0,2` or `0-3`.

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
    shown = {card.index: card for card in cards}
    if any(position > max(shown, default=-1) for position in positions):
        return Visible(tuple(cards))
    return Visible(tuple(shown[position] for position in dict.fromkeys(positions) if position in shown))
