"""Finds modules of the existing package: what is here under another name, and a sentence for what is not.

It comes last on `sys.meta_path`, so it is asked only for modules that do not exist.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from zeus.errors import NotHere

if TYPE_CHECKING:
    from importlib.abc import Loader  # slow to import

_GPUS, _CPUS, _UTILS = "zeus.compat.gpus", "zeus.compat.cpus", "zeus.compat.utils"

FOUND = {  # old module: where its names are now
    "zeus.device.cpu.common": _CPUS,
    "zeus.device.cpu.rapl": _CPUS,
    "zeus.device.exception": "zeus.compat.exceptions",
    "zeus.device.gpu.amd": _GPUS,
    "zeus.device.gpu.common": _GPUS,
    "zeus.device.gpu.nvidia": _GPUS,
    "zeus.device.soc": _CPUS,
    "zeus.device.soc.common": _CPUS,
    "zeus.exception": "zeus.compat.exceptions",
    "zeus.metric": "zeus.compat.prometheus",
    "zeus.monitor.carbon": "zeus.compat.priced_windows",
    "zeus.monitor.power": "zeus.monitor.timeline",
    "zeus.monitor.price": "zeus.compat.priced_windows",
    "zeus.monitor.temperature": "zeus.monitor.timeline",
    "zeus.optimizer.batch_size.client": "zeus.optimizer.batch_size",
    "zeus.optimizer.batch_size.common": "zeus.compat.batch_size",
    "zeus.optimizer.batch_size.exceptions": "zeus.compat.batch_size",
    "zeus.utils.env": _UTILS,
    "zeus.utils.framework": _UTILS,
    "zeus.utils.lat_lon": _UTILS,
    "zeus.utils.metric": _UTILS,
}
INSTEAD = {  # old module and all below it, or a name in a module that is found: what to use
    "zeus._legacy": "use `zeus simulate` and `zeus reproduce`, which replay the traces of the paper",
    "zeus.device.common": "use `zeus env`, which says whether this user can set limits",
    "zeus.device.soc.apple": "use a machine with NVIDIA or AMD GPUs: no SoC is measured here",
    "zeus.device.soc.jetson": "use a machine with NVIDIA or AMD GPUs: no SoC is measured here",
    "zeus.monitor.power_streaming": "use `zeus monitor --prometheus PORT` on each node, or `zeus monitor --json`",
    "zeus.monitor.price.OpenEIClient": "no tariff is looked up online. Set ZEUS_PRICE_PER_KWH to a number or a file of "
    "hourly values, or write an ElectricityPriceProvider",
    "zeus.optimizer.batch_size.migrations": "use `zeus serve`, which upgrades its database itself",
    "zeus.optimizer.batch_size.server": "use `zeus serve`",
    "zeus.optimizer.pipeline_frequency": "use zeus.optimizer.power_limit: no GPU frequencies are set here",
    "zeus.utils.async_utils": "use asyncio.create_task",
    "zeus.utils.logging": "use the module logging of Python",
    "zeus.utils.multiprocessing": "nothing is needed: monitors here survive a fork",
    "zeus.utils.pydantic_v1": "use pydantic.v1",
    "zeus.utils.testing": "use virtual GPUs (ZEUS_GPU=virtual:v100)",
    "zeus.utils.zeusd": "use `zeus keeper`, the system service that sets limits for users",
}


class OldModules:
    """A finder for `sys.meta_path`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module of this old name; None if there was none; NotHere if it was not brought along.

        `from module import name` ends here too where the module has no such name: to Python, each of these modules is
        a package, and the name may be a module in it.
        """
        if name in FOUND:
            return ModuleSpec(name, cast("Loader", _Alias(FOUND[name])), is_package=True)
        reason = _why_not_here(name)
        if reason is not None:
            raise NotHere(reason)
        return None


class _Alias:
    """Loads an old module: its names are looked up in another one."""

    def __init__(self, source: str) -> None:
        self._source = source

    def create_module(self, spec: ModuleSpec) -> None:
        """Python makes the module."""

    def exec_module(self, module: ModuleType) -> None:
        source, old = import_module(self._source), module.__name__

        def look_up(name: str) -> Any:
            if not name.startswith("_") and hasattr(source, name):
                return getattr(source, name)
            raise AttributeError(_why_not_here(f"{old}.{name}"))

        public = [name for name in vars(source) if not name.startswith("_")]
        vars(module).update(__doc__=source.__doc__, __all__=getattr(source, "__all__", public), __getattr__=look_up)


def _why_not_here(name: str) -> str | None:
    """What to use in place of an old module or of a name in one. None if the existing package has no such module."""
    sentence = f"{name} of the existing package is not here"
    above = name
    while above.startswith("zeus."):
        if above in INSTEAD:
            return f"{sentence}: {INSTEAD[above]}."
        above = above.rpartition(".")[0]
        if above in FOUND:
            return f"{sentence}. docs/migrating.md lists what is."
    return None


def install() -> None:
    """Let old modules be found, once."""
    if not any(isinstance(finder, OldModules) for finder in sys.meta_path):
        sys.meta_path.append(OldModules())
