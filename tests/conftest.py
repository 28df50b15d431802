"""What every test may ask for."""

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))  # tests share their helpers: `from support.stories import ...`

from support import doctests
from support.amd.fake import amd
from support.built import built
from support.cards import virtual_cards
from support.launched import launched, launched_store
from support.nvml.fake import fake_nvml, nvml_library
from support.postgres import postgres
from support.store_places import place, reachable
from support.warm.fixtures import cold, warm, warm_frameworks, warm_torch

# One thread for each process of PyTorch: the models are small, and several processes wait for the same cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts what runs in its background with SIGINT ignored, nohup with SIGHUP. Every process that a test
# interrupts would inherit that.
if threading.current_thread() is threading.main_thread():
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)

# A law holds or not, however long that takes here and whatever the dice say today: the same few examples every time.
# HYPOTHESIS_PROFILE=thorough tries many more, `pytest --hypothesis-profile=dice` looks for new ones.
settings.register_profile("dice", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("dice"), max_examples=300, derandomize=True)
settings.register_profile("steady", settings.get_profile("dice"), max_examples=30, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


def pytest_configure(config: pytest.Config) -> None:
    """Let the plugin of doctests see src too, which hooks of this file do not."""
    config.pluginmanager.register(doctests)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from what stays until the end: a Trainer runs it many times."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def own_data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test leaves anything in the data folder of whoever runs it, where messages to a test's store would wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        patch.setenv("ZEUS_CONFIG", "")  # nor does a configuration file of this machine decide
        yield


__all__ = [
    "amd",
    "built",
    "cold",
    "fake_nvml",
    "launched",
    "launched_store",
    "nvml_library",
    "place",
    "postgres",
    "reachable",
    "virtual_cards",
    "warm",
    "warm_frameworks",
    "warm_torch",
]
