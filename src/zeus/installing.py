"""The command that installs Zeus with an extra: from where this one came, a checkout or a package index."""

from __future__ import annotations

DISTRIBUTION = "zeus-energy"


def install_command(extra: str = "", *more: str) -> str:
    """A command line that works here.

    An installation from a folder or a file says so in its metadata (PEP 610), so the same one is installed again. One
    from an index, or one without metadata, is found on the index.

    Args:
        extra: The extra to install; none if empty.
        more: Options of pip.
    """
    wanted = f"[{extra}]" if extra else ""
    words = ["pip", "install", *more]
    match _origin():
        case (path, True):
            return " ".join([*words, "-e", f"'{path}{wanted}'"])
        case (path, False):
            return " ".join([*words, f"'{path}{wanted}'"])
        case _:
            return " ".join([*words, f"'{DISTRIBUTION}{wanted}'"])


def _origin() -> tuple[str, bool] | None:
    """The folder or file that was installed, and whether it stays in use (`pip install -e`); None: an index."""
    import json
    from importlib import metadata
    from urllib.parse import unquote, urlsplit

    try:
        text = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    said = json.loads(text or "{}")
    url = urlsplit(said.get("url", ""))
    if url.scheme != "file":
        return None
    return unquote(url.path), bool(said.get("dir_info", {}).get("editable"))
