"""How the API reference reads our docstrings: a doctest is a block of code, a field's comment is its description."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)
COMMENT = re.compile(r"""^[^#"']*(?:(?:"[^"]*"|'[^']*')[^#"']*)*#\s*(?P<text>.+)$""")
FOR_TOOLS = ("noqa", "type:", "fmt:", "pragma")


class ZeusDocstrings(griffe.Extension):
    """Sees every object once it is read from its source; nothing is imported."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Put doctests into fences: without them `>>>` would be a quotation."""
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Leave out special methods that have nothing to say, such as `__post_init__`."""
        for name, member in list(cls.members.items()):
            if name.startswith("__") and name != "__init__" and not member.is_alias and member.docstring is None:
                del cls.members[name]

    def on_attribute(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Take the comment at the end of a field's line for its docstring, where it has none."""
        if attr.docstring is not None or attr.lineno is None or attr.endlineno is None or not attr.lines_collection:
            return
        last = attr.lines_collection[attr.filepath][attr.endlineno - 1]
        found = COMMENT.match(last)
        if found and not found["text"].startswith(FOR_TOOLS):
            text = found["text"]
            attr.docstring = griffe.Docstring(text[0].upper() + text[1:], parent=attr, lineno=attr.lineno)
