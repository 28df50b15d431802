"""What the chaos suite shares: a seed that is printed, a time to run for, and a count of what was done.

In `make test` each test here runs one round, the same every time. `make chaos MINUTES=30` draws a seed for each, gives
them that long together, and prints what they did: kills, trials, requests, faults, and violations, of which there must
be none.
"""

import os
import random
import time
from collections import Counter

import pytest

SEED = 1  # where no chaos was asked for

_DONE = "chaos"


class Chaos:
    """One test's dice, time and tally."""

    def __init__(self, seed: int, seconds: float) -> None:
        self.seed = seed
        self.seconds = seconds
        self.dice = random.Random(seed)
        self.did: dict[str, int] = {}
        self._end = time.monotonic() + seconds

    def going(self) -> bool:
        """Whether there is time for another round. The first round is always there."""
        self.count("rounds")
        return self.did["rounds"] == 1 or time.monotonic() < self._end

    def count(self, what: str, times: int = 1) -> None:
        """Take down that something was done: kills, trials, requests, faults."""
        self.did[what] = self.did.get(what, 0) + times

    def held(self, true: object, promise: str) -> None:
        """A promise, checked now. Where it is broken the test fails, and its seed says how to see it again."""
        self.count("checks")
        if not true:
            self.count("violations")
            pytest.fail(f"{promise} (ZEUS_CHAOS_SEED={self.seed} shows it again)")


def _minutes() -> float:
    return float(os.environ.get("ZEUS_CHAOS_MINUTES") or 0)


def _seed() -> int:
    given = os.environ.get("ZEUS_CHAOS_SEED")
    return int(given) if given else random.SystemRandom().randrange(1_000_000) if _minutes() else SEED


_SECONDS = pytest.StashKey[float]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """How long each test may run: the minutes asked for, shared out between the tests and the workers."""
    here = [item for item in items if "chaos" in getattr(item, "fixturenames", ())]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT") or 1)
    config.stash[_SECONDS] = _minutes() * 60 * workers / max(1, len(here))


@pytest.fixture
def chaos(request: pytest.FixtureRequest) -> Chaos:
    """The dice, time and tally of one test."""
    made = Chaos(_seed(), request.config.stash[_SECONDS])
    request.node.user_properties.append((_DONE, made.did))
    print(f"ZEUS_CHAOS_SEED={made.seed}, {made.seconds:.0f} s")
    return made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was done by all tests together, where chaos was asked for."""
    if "ZEUS_CHAOS_MINUTES" not in os.environ:
        return
    together: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for did in (did for name, did in report.user_properties if name == _DONE):
                together.update(did)
                terminalreporter.write_line(f"{report.nodeid}: {_said(did)}")
    terminalreporter.write_line(f"chaos in all: {_said(together)}, {together['violations']} violations")


def _said(did: dict[str, int]) -> str:
    return ", ".join(f"{times} {what}" for what, times in sorted(did.items()) if what != "violations") or "nothing"
