"""What every test may ask for."""

import signal
import sys
import threading
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))  # tests share their own helpers by name: `from nvml.fake import ...`

from amd.fake import amd
from nvml.fake import fake_nvml, nvml_library
from postgres import postgres
from store_places import place, reachable

# A shell starts what runs in its background with SIGINT ignored, and so would be every process that a test interrupts.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A law holds or not, however long that takes here and whatever the dice say today: the same examples every time.
# `pytest --hypothesis-profile=dice` looks for new ones.
settings.register_profile("dice", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("dice"), derandomize=True)
settings.load_profile("steady")

__all__ = ["amd", "fake_nvml", "nvml_library", "place", "postgres", "reachable"]
