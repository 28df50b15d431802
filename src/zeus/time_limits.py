"""How long Zeus waits before it gives up, in one place, so that tests need not wait as long (`env.time_limits`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Waits, in seconds. The defaults are what every user gets."""

    # a driver
    driver_answer: float = 5.0  # for a reading, which takes milliseconds
    driver_opening: float = 60.0  # for opening a driver, which takes seconds for each card that sleeps

    # a keeper
    keeper_greeting: float = 5.0  # a running keeper answers at once: this needs no driver
    keeper_answer: float = 10.0  # setting the limits of a whole machine takes a second or two
    keeper_recovery: float = 5.0  # how often the system keeper looks for limits left behind by a dead private keeper

    # the command of a trial
    grace: float = 10.0  # between asking a command to end and killing it
    leftovers: float = 2.0  # for processes that it left behind, which free the GPU as they end
    killed: float = 10.0  # a killed process that lives longer stays: another user's, or stuck in a driver
    line: float = 1.0  # to match an expression of [metrics] against one line; usually microseconds

    # a database
    database_busy: float = 30.0  # how long a writer waits for the others before it gives up
    database_silent: float = 5.0  # how much longer than that a silent server is waited for
    database_connect: float = 10.0  # how long a server may take to accept a connection

    # a store or service that is unreachable
    store_retry: float = 3.0  # for all tries together, in the middle of a run
    store_answer: float = 3.0  # for the answer to one of them
    store_rest: float = 15.0  # before a training loop tries again; twice as long each time
    store_longest_rest: float = 120.0  # no longer than the time between two renewals
    delivery: float = 10.0  # longest delivery at one contact; the remaining messages wait for the next
    outcome_retry: float = 300.0  # for an outcome that can be neither sent nor written; training is over by then
    outcome_pause: float = 5.0  # between two such tries
