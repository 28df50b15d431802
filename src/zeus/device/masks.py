"""Which cards a mask names: CUDA_VISIBLE_DEVICES and its kin, read as the driver reads them. Pure.

What the CUDA driver does was seen on one real card (CUDA 13, H200), and is kept here:

- an empty mask and `-1` show nothing; the first entry that is out of range ends the list, later ones are not looked at;
- indices and UUIDs do not mix: after an index a UUID ends the list, and the other way round (AMD's runtime mixes them);
- a card named twice is an error, and the process sees no device at all;
- a UUID may be abbreviated and its hex digits may be capitals, but a space before it hides it.

Not seen, but taken from NVIDIA's guide: of MIG slices a process is shown one, the first.

Where the driver would quietly show fewer cards than were meant, a note says so; where it would show none because an
entry cannot be understood, `InputError` says which entry and what there is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from zeus.errors import InputError, NoDevice

FORMS = "indices (0,1), UUIDs (GPU-8932f937, abbreviated if unique), or one MIG id (MIG-<uuid>)"


@dataclass(frozen=True, slots=True)
class CardId:
    """What a mask can call a card by. `aliases` are other ids of the same card, such as HIP's."""

    index: int
    uuid: str
    name: str = ""
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """A card that the mask shows, whole or a slice of it (MIG)."""

    card: CardId
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Visible:
    """What a mask shows, in its order, and what its author should know."""

    choices: tuple[Choice, ...]
    notes: tuple[str, ...] = ()


class _Kind(Enum):
    INDEX = "an index"
    UUID = "a UUID"
    MIG = "a MIG id"


@dataclass(frozen=True, slots=True)
class _Ends:
    """This entry, and all after it, are not seen by the driver; `why` is empty where that is plainly meant."""

    why: str = ""


def no_mig(uuid: str) -> int:
    """The `mig_parent` of machines without MIG."""
    raise NoDevice(f"{uuid}: these cards have no MIG slices")


def resolve(
    mask: str | None,
    cards: Sequence[CardId],
    *,
    variable: str = "CUDA_VISIBLE_DEVICES",
    mig_parent: Callable[[str], int] = no_mig,
    mixed: bool = False,
) -> Visible:
    """The cards that `mask` shows.

    Args:
        mask: The variable's value, or None where it is not set: then every card is shown.
        cards: Every card, in the order in which indices count them.
        variable: Where the mask was read, for messages.
        mig_parent: From a MIG uuid to the `index` of its card; raises `NoDevice` for a stranger.
        mixed: Whether indices and UUIDs may stand side by side (AMD).

    Raises:
        InputError: An entry that cannot be understood, matches no card or several, or repeats a card.
    """
    if mask is None:
        return Visible(tuple(Choice(card) for card in cards))
    reader = _Reader(mask, cards, variable, mig_parent)
    chosen: dict[int, str] = {}
    choices: list[Choice] = []
    first: _Kind | None = None
    entries = mask.split(",")
    for place, raw in enumerate(entries):
        entry = raw.strip()
        kind = reader.kind(entry)
        first = first or kind
        if kind and first and kind is not first and not (mixed and _Kind.MIG not in (kind, first)):
            found: Choice | _Ends = _Ends(f"{kind.value} follows {first.value}, which CUDA does not mix")
        else:
            found = reader.read(entry, kind)
        if isinstance(found, _Ends):
            rest = ",".join(entries[place:])
            note = f"{found.why}; {rest!r} is not seen" if found.why else ""
            return Visible(tuple(choices), reader.notes(note))
        if earlier := chosen.get(found.card.index):
            raise InputError(
                f"{reader.where} names GPU {found.card.index} ({found.card.uuid}) twice, as {earlier!r} and {entry!r}. "
                "CUDA then shows no device at all. Name each GPU once."
            )
        chosen[found.card.index] = entry
        choices.append(found)
        if kind is _Kind.MIG:  # CUDA shows one slice to a process
            rest = ",".join(entries[place + 1 :])
            note = f"CUDA shows one MIG slice; {rest!r} is not seen" if rest else ""
            return Visible(tuple(choices), reader.notes(note))
        if kind is _Kind.UUID and raw[0].isspace():
            reader.remarks.append(f"remove the space before {entry!r}: CUDA does not see a UUID that follows a space")
    return Visible(tuple(choices), reader.notes())


class _Reader:
    """One entry at a time, against one list of cards."""

    def __init__(self, mask: str, cards: Sequence[CardId], variable: str, mig_parent: Callable[[str], int]) -> None:
        self.where = f"{variable}={mask!r}"
        self.remarks: list[str] = []
        self._cards = cards
        self._mig_parent = mig_parent

    def notes(self, last: str = "") -> tuple[str, ...]:
        return tuple(f"{self.where}: {remark}." for remark in [*self.remarks, last] if remark)

    def kind(self, entry: str) -> _Kind | None:
        """None for an empty entry; `InputError` for one that nobody could understand."""
        if not entry or entry == "NoDevFiles":  # Slurm's word for a job that asked for no GPU
            return None
        if re.fullmatch(r"[+-]?[0-9]+", entry):
            return _Kind.INDEX
        if entry.startswith("MIG-"):
            return _Kind.MIG
        if entry.startswith("GPU-") or any(_same(entry, name) for card in self._cards for name in _names(card)):
            return _Kind.UUID
        raise InputError(f"{self.where}: {entry!r} is not understood. Give {FORMS}; there are {self._inventory()}.")

    def read(self, entry: str, kind: _Kind | None) -> Choice | _Ends:
        match kind:
            case None:
                return _Ends()
            case _Kind.INDEX:
                return self._index(int(entry))
            case _Kind.UUID:
                return Choice(self._uuid(entry))
            case _Kind.MIG:
                return Choice(self._mig(entry), shared=True)

    def _index(self, index: int) -> Choice | _Ends:
        if index < 0:
            return _Ends()  # the documented way to end the list
        if index >= len(self._cards):
            return _Ends(f"there is no GPU {index}, there are {len(self._cards)}")
        return Choice(self._cards[index])

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
        trouble = f"matches {len(found)} GPUs: give more digits" if found else "matches no GPU"
        raise InputError(f"{self.where}: {entry!r} {trouble}. There are {self._inventory()}.")

    def _mig(self, entry: str) -> CardId:
        old = re.fullmatch(r"MIG-(GPU-[^/]+)/[0-9]+/[0-9]+", entry)
        if old:
            return self._uuid(old[1])
        try:
            parent = self._mig_parent(entry)
        except NoDevice as error:
            raise InputError(
                f"{self.where}: {entry!r} matches no MIG slice ({error}). `nvidia-smi -L` lists them; "
                f"the cards are {self._inventory()}."
            ) from error
        for card in self._cards:
            if card.index == parent:
                return card
        raise InputError(f"{self.where}: {entry!r} is a slice of GPU {parent}, which is not among {self._inventory()}.")

    def _inventory(self) -> str:
        return ", ".join(f"{place}: {card.uuid} ({card.name})" for place, card in enumerate(self._cards)) or "no GPUs"


def _names(card: CardId) -> Iterator[str]:
    yield from (name for name in (card.uuid, *card.aliases) if name)


def _same(entry: str, name: str) -> bool:
    return entry.lower() == name.lower() and entry[:4] == name[:4]  # capitals are free in the digits, not in `GPU-`


def slurm_share(text: str, cards: Sequence[CardId], *, variable: str) -> Visible:
    """The cards that Slurm gave to this job or step: `0,2` or `0-3`, places on the node in the driver's order.

    Where Slurm locks the other cards away (ConstrainDevices), the driver shows this job's cards alone and numbers them
    anew; then a place can lie beyond what is shown, and all that is shown is ours.
    """
    places: list[int] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        span = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", entry)
        if not span or int(span[2] or span[1]) < int(span[1]):
            raise InputError(
                f"{variable}={text!r}: {entry!r} is not understood; places such as 0,2 or 0-3 were expected. "
                "Set CUDA_VISIBLE_DEVICES to say which GPUs are yours."
            )
        places += range(int(span[1]), int(span[2] or span[1]) + 1)
    shown = {card.index: card for card in cards}
    if any(place > max(shown, default=-1) for place in places):
        return Visible(tuple(Choice(card) for card in cards))
    return Visible(tuple(Choice(shown[place]) for place in dict.fromkeys(places) if place in shown))
