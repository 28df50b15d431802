"""A Ray cluster that others started: whether it answers at an address, and what its errors say."""

from __future__ import annotations

import socket

ANSWER_SECONDS = 10.0


def look_for(address: str) -> None:
    """Check that somebody listens there, because Ray itself would wait for minutes.

    Args:
        address: As Ray takes it: `10.0.0.7:6379`, `ray://head:10001` or `http://head:8265`. Others, such as `auto`,
            are not looked for.

    Raises:
        OSError: Nobody does.
    """
    host, colon, port = address.rstrip("/").rpartition("://")[2].rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except OverflowError as wrong:
        raise OSError(str(wrong)) from wrong


def first_line(error: BaseException) -> str:
    """What an error of Ray says, without the pages that follow.

    >>> first_line(RuntimeError("Connection refused.\\n  at ..."))
    'Connection refused'
    """
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")
