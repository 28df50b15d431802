"""Whose fault crashes are: their batch sizes', or the script's own, which is not to be held against one after another.

Crashes are the script's own where each came before any epoch was done and for no want of memory, and one of them at a
size that has worked before, or in a job of which none ever has. One is not enough to say so: a size may fail for a
reason of its own. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

ENOUGH = 3  # different sizes that crashed so in one recurrence, unless no other is left to be tried
KILLED = 137  # by SIGKILL, as shells say; the kernel does it where memory ends
_MEMORY = re.compile(
    r"out.?of.?memory|\boom\b|memoryerror|bad_alloc|alloc\w*.?fail|(not|n't|failed to|unable to) allocate|"
    r"(not enough|insufficient) (\w+ )?memory|resource.?exhausted|sigkill|signal: killed",  # of a rank or a worker
    re.I,
)


@dataclass(frozen=True, slots=True)
class Crash:
    """A try that crashed."""

    batch_size: int
    epochs: int
    exit_code: int | None
    log: str  # its end

    @property
    def for_want_of_memory(self) -> bool:
        """Whether its log says so, or the kernel may have ended it.

        >>> Crash(64, 0, 1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB").for_want_of_memory
        True
        """
        return self.exit_code == KILLED or _MEMORY.search(self.log) is not None


def is_scripts_own(crashes: Sequence[Crash], worked: Collection[int], *, nothing_left: bool = False) -> bool:
    """Whether these crashes, all tries of one recurrence, are the script's.

    Args:
        crashes: The tries.
        worked: The sizes of which an epoch was ever done.
        nothing_left: There is no other size to be tried.
    """
    sizes = {one.batch_size for one in crashes}
    own = all(not one.epochs and not one.for_want_of_memory for one in crashes)
    known_good = not worked or not sizes.isdisjoint(worked)
    return own and known_good and bool(sizes) and (nothing_left or len(sizes) >= ENOUGH)
