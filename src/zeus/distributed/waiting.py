"""Names that callers still use. See `zeus.distributed.group`."""

from zeus.distributed.group import RankWait, WaitRecord

__all__ = ["RankWait", "WaitRecord"]
