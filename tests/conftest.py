"""What every test may ask for."""

import signal
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # tests share their own helpers by name: `from nvml.fake import ...`

from amd.fake import amd
from nvml.fake import fake_nvml, nvml_library
from postgres import postgres
from store_places import place, reachable

# A shell starts what runs in its background with SIGINT ignored, and so would be every process that a test interrupts.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

__all__ = ["amd", "fake_nvml", "nvml_library", "place", "postgres", "reachable"]
