"""Old modules are found where their names are now; what is not here ends with a sentence."""

from __future__ import annotations

import importlib
import inspect
import sys

import pytest

from zeus.compat import finder
from zeus.errors import NotHere


@pytest.mark.parametrize("old", finder.FOUND)
def test_an_old_module_has_the_names_of_the_new_one(old: str) -> None:
    module, source = importlib.import_module(old), importlib.import_module(finder.FOUND[old])
    names = [name for name in vars(source) if not name.startswith("_")]
    assert all(getattr(module, name) is getattr(source, name) for name in names)
    assert not hasattr(module, "nonsense") and not hasattr(module, "__wrapped__")
    with pytest.raises(AttributeError, match=rf"{old}\.nonsense .* docs/migrating\.md"):
        _ = module.nonsense
    with pytest.raises(NotHere, match=rf"{old}\.nonsense .* docs/migrating\.md"):
        exec(f"from {old} import nonsense")
    assert inspect.getmembers(module)


@pytest.mark.parametrize("old", finder.INSTEAD)
def test_an_old_module_that_is_not_here_says_what_to_use(old: str) -> None:
    for name in (old, f"{old}.below"):
        with pytest.raises(NotHere, match=r"is not here: .*\.$") as raised:
            importlib.import_module(name)
        assert isinstance(raised.value, ImportError)


def test_what_never_was_is_a_plain_error() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"zeus\.nonsense"):
        importlib.import_module("zeus.nonsense")


def test_it_is_asked_last_and_once() -> None:
    finder.install()
    found = [isinstance(one, finder.OldModules) for one in sys.meta_path]
    assert found.count(True) == 1
