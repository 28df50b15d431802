"""Names that callers still use. See `zeus.distributed.group`."""

from zeus.distributed.group import RankGroup as Board
from zeus.distributed.group import RankGroup as Crew
from zeus.distributed.group import SingleRank as Alone
from zeus.distributed.group import barrier, broadcast
from zeus.distributed.group import connected_group as board
from zeus.distributed.group import rank_group as crew
from zeus.distributed.group import sum_over_ranks as together

__all__ = ["Alone", "Board", "Crew", "barrier", "board", "broadcast", "crew", "together"]
