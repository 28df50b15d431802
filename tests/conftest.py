"""What every test may ask for."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # tests share their own helpers by name: `from nvml.fake import ...`

from amd.fake import amd
from nvml.fake import fake_nvml, nvml_library
from postgres import postgres
from store_places import place, reachable

__all__ = ["amd", "fake_nvml", "nvml_library", "place", "postgres", "reachable"]
