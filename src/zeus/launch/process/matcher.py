"""Matches regular expressions against lines in a process of its own: `matcher.py SECONDS REGEX...`.

An expression that backtracks may take for ever on a line, and Python cannot interrupt it, not even by Ctrl-C. So the
kernel ends this process when a line takes this much CPU time, and a new process takes the lines that follow. It reads
and writes JSON, and uses only the standard library, so that it starts fast.
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

ENOUGH = 10  # slow lines in a row, after which the expressions are given up

Found = list[str | None]  # the one group of a match; None: the group took no part in it


class TooSlow(Exception):
    """The expressions take too long on line after line."""


class Matcher:
    """Matches expressions of one group each, with `seconds` of CPU time for each line."""

    def __init__(self, *regexes: str, seconds: float) -> None:
        self._regexes, self._seconds = regexes, seconds
        self._slow = 0  # slow lines in a row
        self._ended_by = 0
        self._process = self._start()

    def search(self, lines: Sequence[str]) -> list[list[Found | None]]:
        """For each line and each expression, [the text of its group], or None if it does not match.

        A line that takes too long matches none.

        Raises:
            TooSlow: Too many lines in a row took too long.

        >>> matcher = Matcher("acc=([0-9.]+)", "(a+)+b", seconds=0.1)
        >>> matcher.search(["acc=0.5", "", "aab"]), matcher.search(["a" * 40, "acc=0.6"])
        ([[['0.5'], None], [None, None], [None, ['aa']]], [[None, None], [['0.6'], None]])
        >>> matcher.close()
        """
        answers = self._ask(lines)
        if answers is None and self._ended_by != -signal.SIGVTALRM:  # not by its timer: try once more
            answers = self._ask(lines)
        if answers is not None:
            self._slow = 0
            return answers
        # One of the lines is too slow: match them one by one.
        return [answer for line in lines for answer in self._ask([line]) or self._pass_over(line)]

    def _pass_over(self, line: str) -> list[list[Found | None]]:
        self._slow += 1
        if self._slow > ENOUGH:
            raise TooSlow(line[:80])
        log.warning("a line that begins with %r is ignored: [metrics] takes too long to match it", line[:80])
        return [[None] * len(self._regexes)]

    def close(self) -> None:
        self._process.kill()
        with contextlib.suppress(OSError), self._process:  # unsent input is dropped
            pass

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(self._seconds), *self._regexes],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # it must not get Ctrl-C
        )

    def _ask(self, lines: Sequence[str]) -> list[list[Found | None]] | None:
        """The answers, or None if the process was ended meanwhile."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(lines).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if not answer.endswith(b"\n"):  # incomplete
            self._ended_by = self._process.wait()
            self.close()
            self._process = self._start()
            return None
        found: list[list[Found | None]] = json.loads(answer)
        return found


def main(seconds: float, regexes: list[str]) -> None:
    """Read JSON lists of texts from stdin and answer each with a line of matches."""
    compiled = [re.compile(regex) for regex in regexes]
    for asked in sys.stdin:
        answers = []
        for text in json.loads(asked):
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds)  # has no handler, so it ends the process
            found = [regex.search(text) for regex in compiled]
            answers.append([None if one is None else [one[1]] for one in found])
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        sys.stdout.write(json.dumps(answers) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
