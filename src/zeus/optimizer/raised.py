"""Whether a training is being left by an exception, for calls in a `finally` block."""

from __future__ import annotations

import sys

_SEEN = "_zeus_seen"  # an attribute of exceptions: a reference to one would keep the tensors of its frames alive


class RaisedSince:
    """Tells an exception that came after this was made from one that was being handled already.

    >>> try:
    ...     {}["checkpoint"]
    ... except KeyError:
    ...     since = RaisedSince()
    ...     print(since.error())
    None
    >>> try:
    ...     raise MemoryError("out of memory")
    ... except MemoryError:
    ...     since.error()
    MemoryError('out of memory')
    """

    def __init__(self) -> None:
        handled = sys.exc_info()[1]
        if handled is not None:
            vars(handled).setdefault(_SEEN, []).append(self)

    def error(self) -> BaseException | None:
        """The exception that is being handled now, or on its way through a `finally` block. None if there is none."""
        now = sys.exc_info()[1]
        return None if now is None or self in vars(now).get(_SEEN, ()) else now
