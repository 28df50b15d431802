"""Starts the command `zeus`, after a check that the package `zeus` is whole.

The distributions `zeus` and `zeus-ml` install a package of the same name into the same folder, and so overwrite or
remove its files. This module is beside that package, where the others have no file. It looks for a handful of files. If
something is wrong, the command ends with one sentence that says how to mend it.
"""

from __future__ import annotations

import os
import sys

DISTRIBUTION = "zeus-energy"
OTHERS = ("zeus", "zeus-ml")
THEIRS = ("exception.py", "_legacy/__init__.py", "metric.py", "util/__init__.py")  # the others have some, ours none

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.join(_HERE, "zeus")


def install_command(extra: str = "", *options: str) -> str:
    """A `pip install` of this distribution that works here, with an extra if one is named.

    An installation from a folder or a file says so in its metadata (PEP 610), so the same one is named again. Without
    metadata this is a checkout. Any other came from an index.
    """
    from_index = f"'{DISTRIBUTION}[{extra}]'" if extra else DISTRIBUTION
    path, is_editable = _origin()
    wanted = f"'{path}[{extra}]'" if path and extra else f"'{path}'" if path else from_index
    return " ".join(["pip", "install", *options, *(["-e"] if is_editable else []), wanted])


class Damage(str):
    """What is wrong with the package, in a sentence, and the commands that mend it."""

    commands: tuple[str, ...]

    def __new__(cls, sentence: str, *commands: str) -> Damage:
        found = super().__new__(cls, sentence)
        found.commands = commands
        return found


def damage() -> Damage | None:
    """What is wrong with the package beside this module. None if nothing is."""
    if not os.path.isfile(os.path.join(_PACKAGE, "__init__.py")):
        again = install_command("", "--force-reinstall", "--no-deps")
        return Damage(
            f"files of {DISTRIBUTION} are missing in {_PACKAGE}, because another distribution of that package was "
            f"removed: mend it with `{again}`",
            again,
        )
    if not any(os.path.exists(os.path.join(_PACKAGE, name)) for name in THEIRS):
        return None
    found = _others()
    named = " and ".join(f"{name} {version}" for name, version in found.items()) or "another distribution"
    remove, install = f"pip uninstall -y {' '.join([*(found or OTHERS), DISTRIBUTION])}", install_command()
    return Damage(
        f"{DISTRIBUTION} and {named} have overwritten each other's files in {_PACKAGE}: remove both with `{remove}`, "
        f"and install the one that you want, this one with `{install}`",
        remove,
        install,
    )


def hidden() -> Damage | None:
    """Which other package of the name `zeus` Python finds before ours. None if it finds ours."""
    from importlib.util import find_spec

    spec = find_spec("zeus")
    origin = None if spec is None else spec.origin
    if origin is not None and os.path.dirname(os.path.abspath(origin)) == _PACKAGE:
        return None
    found = _others()
    named = " and ".join(f"{name} {version}" for name, version in found.items()) or "another package"
    remove = f"pip uninstall -y {' '.join(found or OTHERS)}"
    return Damage(f"{named} at {origin} hides the package of {DISTRIBUTION}: remove it with `{remove}`", remove)


def main() -> None:
    """The command `zeus`."""
    wrong = damage() or hidden()
    if wrong is not None:
        sys.exit(f"zeus: {wrong}.")
    from zeus.cli.main import main as run

    run()


def _others() -> dict[str, str]:
    """The other distributions of the package that are installed, with their versions."""
    from importlib import metadata

    found = {}
    for name in OTHERS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _origin() -> tuple[str, bool]:
    """The folder or file that was installed, and whether it stays in use (`pip install -e`); empty: an index."""
    import json
    from importlib import metadata
    from urllib.parse import unquote, urlsplit

    try:
        text = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        checkout = os.path.dirname(_HERE)
        return (checkout, False) if os.path.isfile(os.path.join(checkout, "pyproject.toml")) else ("", False)
    origin = json.loads(text or "{}")
    url = urlsplit(origin.get("url", ""))
    path = unquote(url.path) if url.scheme == "file" else ""
    if not os.path.exists(path):
        return "", False
    return path, bool(origin.get("dir_info", {}).get("editable"))
