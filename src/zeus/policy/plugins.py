"""Policies that other packages bring: found by an entry point, or as `module:name`."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from zeus.errors import InputError, suggest

HERE = ""  # the current folder, in Python's path


def installed(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group, by name."""
    return {one.name: one for one in entry_points(group=group)}


def load(what: str, path: str) -> Any:
    """The object at `module:name`. The module may also be a file in the current folder.

    Args:
        what: What it is, for messages, such as `policy 'mine:Mine'`.
        path: The module and the name in it.

    Raises:
        InputError: It cannot be imported, or has no such name.
    """
    module_name, _, name = path.partition(":")
    if HERE not in sys.path:
        sys.path.append(HERE)  # last, so that it hides nothing
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name is not None and f"{module_name}.".startswith(f"{missing.name}."):
            raise InputError(
                f"{what}: there is no module {missing.name!r}, neither installed nor in the current folder. Install "
                "it, set PYTHONPATH, or start from the folder that holds it."
            ) from missing
        raise InputError(f"{what}: module {module_name!r} needs {missing.name!r}, which is not installed.") from missing
    except Exception as wrong:
        raise InputError(f"{what}: module {module_name!r} cannot be imported: {_said(wrong)}.") from wrong
    if not hasattr(module, name):
        public = sorted(one for one in vars(module) if not one.startswith("_"))
        raise InputError(f"{what}: module {module_name!r} has no {name!r}. {suggest(name, public)}")
    return getattr(module, name)


def made(what: str, found: Any) -> Any:
    """The object itself, or one of this class, which is made without arguments."""
    if not isinstance(found, type):
        return found
    try:
        return found()
    except Exception as wrong:
        raise InputError(f"{what}: {found.__name__}() failed: {_said(wrong)}.") from wrong


def _said(wrong: Exception) -> str:
    return f"{type(wrong).__name__}: {wrong}" if str(wrong) else type(wrong).__name__
