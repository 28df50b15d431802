"""What a training came to is not lost because its store is away for a moment: it is told until it is heard."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from zeus.device.gpu import Clock
from zeus.errors import StoreError

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 300.0  # a database is restarted in that; half of a lease
AGAIN_SECONDS = 5.0
T = TypeVar("T")


def patiently(say: Callable[[], T], clock: Clock) -> T:
    """The answer to what does no harm said twice.

    Raises:
        StoreError: There was none in all that time.
    """
    deadline, warned = clock.now() + PATIENCE_SECONDS, False
    while True:
        try:
            return say()
        except StoreError as away:
            if clock.now() >= deadline:
                raise
            if not warned:
                log.warning("%s It is asked again for %g s.", away, PATIENCE_SECONDS)
            warned = True
            clock.sleep(AGAIN_SECONDS)
