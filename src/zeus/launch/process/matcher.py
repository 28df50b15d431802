"""Looks for regular expressions in lines, in a process of its own: `matcher.py REGEX...`, with JSON in and out.

An expression that backtracks may take for ever on a line, and Python can do nothing else meanwhile, not even heed
Ctrl-C. So the kernel ends this process when one line takes too much of the processor's time, and another is started for
the lines that follow. Uses the standard library alone, so that it starts at once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import signal
import subprocess
import sys
from collections.abc import Sequence

log = logging.getLogger(__name__)

LINE_SECONDS = 1.0  # of the processor, for one line; a usual one takes microseconds
ENOUGH = 10  # lines that took too long, after which nobody waits for another

Found = list[str | None]  # the group of an expression that was found, where it took part


class TooSlow(Exception):
    """The expressions take too long for line after line."""


class Matcher:
    """Looks for these expressions, each of which has one group."""

    def __init__(self, *regexes: str) -> None:
        self._regexes = regexes
        self._slow = 0  # lines, one after the other
        self._ended_by = 0
        self._process = self._start()

    def search(self, lines: Sequence[str]) -> list[list[Found | None]]:
        """For each line and each expression: [what its group holds], or None where it is not found.

        A line that takes too long holds none of them.

        Raises:
            TooSlow: There were too many of those.

        >>> matcher = Matcher("acc=([0-9.]+)", "(a+)+b")
        >>> matcher.search(["acc=0.5", "", "aab"]), matcher.search(["a" * 40, "acc=0.6"])
        ([[['0.5'], None], [None, None], [None, ['aa']]], [[None, None], [['0.6'], None]])
        >>> matcher.close()
        """
        answers = self._ask(lines)
        if answers is None and self._ended_by != -signal.SIGVTALRM:  # somebody else ended it
            answers = self._ask(lines)
        if answers is not None:
            self._slow = 0
            return answers
        # which of them it was is found one by one
        return [answer for line in lines for answer in self._ask([line]) or self._pass_over(line)]

    def _pass_over(self, line: str) -> list[list[Found | None]]:
        self._slow += 1
        if self._slow > ENOUGH:
            raise TooSlow(line[:80])
        log.warning("a line that begins with %r takes too long to be looked at, and is passed over", line[:80])
        return [[None] * len(self._regexes)]

    def close(self) -> None:
        """End its process."""
        self._process.kill()
        with contextlib.suppress(OSError), self._process:  # what it was still to be told goes nowhere
            pass

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, *self._regexes],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
        )

    def _ask(self, lines: Sequence[str]) -> list[list[Found | None]] | None:
        """The answers; None where the process was ended over them."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(lines).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if not answer.endswith(b"\n"):  # not a whole one
            self._ended_by = self._process.wait()
            self.close()
            self._process = self._start()
            return None
        found: list[list[Found | None]] = json.loads(answer)
        return found


def main(regexes: list[str]) -> None:
    """Answer each line of texts with a line of what was found in them."""
    compiled = [re.compile(regex) for regex in regexes]
    for asked in sys.stdin:
        answers = []
        for text in json.loads(asked):
            signal.setitimer(signal.ITIMER_VIRTUAL, LINE_SECONDS)  # nobody handles its signal, so it ends the process
            found = [regex.search(text) for regex in compiled]
            answers.append([None if one is None else [one[1]] for one in found])
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        sys.stdout.write(json.dumps(answers) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
