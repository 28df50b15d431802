"""Decides whether crashes are the fault of the script or of its batch sizes. Pure.

The script is at fault if no crashed trial had completed an epoch or run out of memory, and either one of the sizes
worked before or no size of the job ever did. One crash is not enough: a size may fail for a reason of its own. A syntax
error is enough, because no size can cause it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

ENOUGH = 3  # different sizes that must crash in one recurrence, unless no other is left to try
KILLED = 137  # a shell's exit code for SIGKILL, which the kernel sends when memory runs out
# Repeats are bounded, so that the time grows with the length of the log alone, whatever is in it.
_MEMORY = re.compile(
    r"out.?of.?memory|\boom\b|memoryerror|bad_alloc|alloc\w{0,30}.?fail|(not|n't|failed to|unable to) allocate|"
    r"(not enough|insufficient) (\w{1,30} )?memory|resource.?exhausted|sigkill|signal: killed",  # of a rank or a worker
    re.I,
)
_SYNTAX = re.compile(r"\b(SyntaxError|IndentationError|TabError): ")


@dataclass(frozen=True, slots=True)
class Crash:
    """A trial that crashed."""

    batch_size: int
    epochs: int
    exit_code: int | None
    log: str  # the end of its output

    @property
    def for_want_of_memory(self) -> bool:
        """Whether its log reports it, or the kernel may have killed it.

        >>> Crash(64, 0, 1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB").for_want_of_memory
        True
        """
        return self.exit_code == KILLED or _MEMORY.search(self.log) is not None

    @property
    def for_its_syntax(self) -> bool:
        """Whether Python could not read the script."""
        return _SYNTAX.search(self.log) is not None


def is_scripts_own(crashes: Sequence[Crash], worked: Collection[int], *, nothing_left: bool = False) -> bool:
    """Whether the script is at fault for these crashes.

    Args:
        crashes: All trials of one recurrence.
        worked: Batch sizes that ever completed an epoch.
        nothing_left: Whether no other size is left to try.
    """
    sizes = {one.batch_size for one in crashes}
    own = all(not one.epochs and not one.for_want_of_memory for one in crashes)
    if own and any(one.for_its_syntax for one in crashes):
        return True
    known_good = not worked or not sizes.isdisjoint(worked)
    return own and known_good and bool(sizes) and (nothing_left or len(sizes) >= ENOUGH)
