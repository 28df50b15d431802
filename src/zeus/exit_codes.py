"""How commands end: the exit codes that all of them share, and the one rule that maps an error to its code.

0 done · 1 failed · 2 bad input or usage · 3 the target was not reached · 128 + N ended by signal N
"""

from __future__ import annotations

from typing import Final

from zeus.errors import InputError, ZeusError

DONE: Final = 0
FAILED: Final = 1
BAD_INPUT: Final = 2
NOT_REACHED: Final = 3
INTERRUPTED: Final = 130  # by Ctrl-C
TERMINATED: Final = 143  # by SIGTERM


def exit_status(error: ZeusError) -> tuple[int, str]:
    """How a command ends with this error: its exit code, and its line on standard error.

    >>> exit_status(InputError("--port 0: give 1 to 65535."))
    (2, 'zeus: --port 0: give 1 to 65535.')
    >>> exit_status(ZeusError("the store did not answer."))
    (1, 'zeus: the store did not answer.')
    """
    return BAD_INPUT if isinstance(error, InputError) else FAILED, f"zeus: {error}"
