"""How the API reference reads our sources. They are parsed and never imported.

A doctest becomes a block of code, and the comment behind a field its description. What says nothing beyond a signature
is left out: special methods, fields that only repeat an argument, and constants of modules that list no public names.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import griffe

Place: TypeAlias = griffe.Module | griffe.Class

DOCTEST = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)
COMMENT = re.compile(r"""^[^#"']*(?:(?:"[^"]*"|'[^']*')[^#"']*)*#\s*(?P<text>.+)$""")
FOR_TOOLS = ("noqa", "type:", "fmt:", "pragma")


class ZeusDocstrings(griffe.Extension):
    """Goes over the package once all of it was parsed and dataclasses have their constructors."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Every module, class, function and field."""
        _edit(pkg)


def _edit(place: Place) -> None:
    _fence_doctests(place)
    for name, member in list(place.members.items()):
        if member.is_alias:
            continue
        if member.is_attribute and member.docstring is None:
            _describe_by_comment(member)
        if _says_nothing(name, member, place):
            del place.members[name]
        elif member.is_module or member.is_class:
            _edit(member)
        else:
            _fence_doctests(member)
            if member.labels & {"instance-attribute", "class-attribute"} == {"instance-attribute"}:
                member.value = None  # how a constructor computes it is nobody's business


def _fence_doctests(thing: griffe.Object) -> None:
    """Without a fence `>>>` would be a quotation."""
    if thing.docstring is not None:
        thing.docstring.value = DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", thing.docstring.value)


def _describe_by_comment(field: griffe.Attribute) -> None:
    if field.endlineno is None:
        return
    found = COMMENT.match(field.lines_collection[field.filepath][field.endlineno - 1])
    if found and not found["text"].startswith(FOR_TOOLS):
        text = found["text"]
        field.docstring = griffe.Docstring(text[0].upper() + text[1:], parent=field, lineno=field.lineno)


def _says_nothing(name: str, member: griffe.Object, place: Place) -> bool:
    if place.is_module:
        return member.is_attribute and "__all__" not in place.members
    if name.startswith("__"):
        return name not in ("__init__", "__call__")
    is_field = "dataclass" in place.labels or str(getattr(member, "value", None)) == name
    return member.is_attribute and member.docstring is None and is_field
