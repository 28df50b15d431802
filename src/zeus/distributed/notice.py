"""Names that callers still use. See `zeus.distributed.group`."""

from functools import partial

from zeus.distributed.group import print_notice as say

say_here = partial(say, every_rank=True)

__all__ = ["say", "say_here"]
