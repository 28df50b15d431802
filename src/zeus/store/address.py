"""Finds and opens the user's store: ZEUS_STORE, or a file in the user's data folder."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from zeus import settings
from zeus.errors import InputError
from zeus.store.api import Store

# Local file systems, on which all processes share memory. Any other may be a network file system.
LOCAL = re.compile(
    r"ext[234]|xfs|btrfs|zfs|bcachefs|f2fs|jfs|nilfs2|reiserfs|ufs|apfs|hfsplus|vfat|exfat|ntfs3?|fuseblk|udf"
    r"|tmpfs|ramfs|rootfs|devtmpfs|overlay|aufs|ecryptfs|fuse\.(fuse-overlayfs|gocryptfs|encfs)"
)

LONGEST_NAME, LONGEST_PATH = 200, 4000  # in bytes: a file system allows 255 and 4,096, with endings of our own
IN_MEMORY = "sqlite://"  # a store that ends with its process
ADDRESS = re.compile(
    r"[\w+.-]+://(?:(?P<user>[^@/?#]*)@)?(?P<host>(?:[\w.-]*|\[[\da-fA-F:.]*\])(?::\d+)?(?:,[\w.-]+(?::\d+)?)*)"
    r"(?P<path>(?:/[^@?#]*)?)(?:\?(?P<query>[^@#]*))?"
)
NO_SECRETS = {"host", "hostaddr", "port", "dbname", "user", "sslmode", "connect_timeout", "application_name"}
SECRETS = {"password", "sslpassword", "token"}  # shown by name, without their values


def open_store(
    url: str | None = None,
    *,
    environ: Mapping[str, str] = settings.HERE,
    wall: Callable[[], float] | None = None,
    connections: int | None = None,
) -> Store:
    """Open the store at this address. It is created if there is none, and upgraded if it is old.

    Args:
        url: Its address. Default: ZEUS_STORE, or a file in the user's data folder.
        environ: The environment to read.
        wall: A clock to use instead of the database's own.
        connections: The most connections that this process may hold.

    Raises:
        InputError: This is not the address of a store, or SQLite could lose data there.
        StoreError: The store does not answer now, but may later.
    """
    url = resolve(url, environ)
    if is_service(url):
        raise InputError(f"{shown(url)} is a service, but a database is needed here. Give sqlite:/// or postgresql://.")
    if (path := file_of(url)) is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as wrong:
            raise InputError(f"{url}: cannot create its folder: {wrong}. {instead(url, 'another file')}") from wrong

    from zeus.store.sql.store import SqlStore  # imported late: it takes a quarter of a second

    return SqlStore(url, wall) if connections is None else SqlStore(url, wall, connections=connections)


def resolve(url: str | None = None, environ: Mapping[str, str] = settings.HERE) -> str:
    """The address of the user's store, checked without opening anything. The path of a file becomes absolute."""
    given, name = bool(url), "store=" if url else "ZEUS_STORE="
    url = url or settings.store(environ) or f"sqlite:///{default_path(environ)}"
    scheme, colon, _ = url.partition("://")
    if not colon or scheme not in ("sqlite", "postgresql", "postgresql+psycopg", "http", "https"):
        raise InputError(f"{name}{shown(url)!r}: give {settings.store.type.words}.")
    if scheme != "sqlite":
        # A parser would take part of the password for the host, and show it.
        if url.count("@") > 1 or re.match(r"[^@/?#]*//[^@/?#]*[/?#][^@]*@", url):
            raise InputError(
                f"{name}{shown(url)!r}: in the password and everything after it, write @ as %40, / as %2F, "
                "? as %3F and # as %23."
            )
        return url.replace(scheme, "postgresql+psycopg", 1) if scheme == "postgresql" else url
    path = Path(url.partition(":///")[2]).expanduser()
    if path.name in ("", ":memory:"):
        raise InputError(f"{name}{shown(url)!r}: give a file, as in sqlite:////home/me/zeus.db.")
    if len(os.fsencode(path.name)) > LONGEST_NAME or len(os.fsencode(path)) > LONGEST_PATH:
        raise InputError(f"{name}{shown(url)!r}: the name of the file is too long. Give a shorter one.")
    refuse_network(path, given=given)
    return f"sqlite:///{path.resolve()}"


def named(url: str, environ: Mapping[str, str] = settings.HERE) -> str:
    """How the user chose the store at this resolved address, in words for a message.

    >>> named("sqlite:////srv/zeus.db", {"ZEUS_STORE": "sqlite:////srv/zeus.db"}), named("sqlite:////srv/zeus.db", {})
    ('ZEUS_STORE', 'the address of the store')
    """
    try:
        return "ZEUS_STORE" if url == resolve(None, environ) else "the address of the store"
    except InputError:  # ZEUS_STORE is not the address of a store, so this store was chosen in another way
        return "the address of the store"


def instead(url: str, other: str, environ: Mapping[str, str] = settings.HERE) -> str:
    """Advice to use another store than the one at this resolved address.

    >>> instead("sqlite:////srv/zeus.db", "another file", {})
    'Give another file.'
    """
    return f"Set ZEUS_STORE to {other}." if named(url, environ) == "ZEUS_STORE" else f"Give {other}."


def file_of(url: str) -> Path | None:
    """The file of a resolved address; None if it is the address of a server.

    >>> file_of("sqlite:////home/me/zeus.db")
    PosixPath('/home/me/zeus.db')
    """
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else None


def address_of(url: str) -> str:
    """A resolved address without its password or other secrets. A new password does not change it.

    >>> address_of("postgresql+psycopg://me:secret@host/zeus?password=secret&sslmode=require")
    'postgresql+psycopg://me@host/zeus?sslmode=require'
    """
    if file_of(url) is not None:
        return url
    parts = urlsplit(url)
    user, host = parts.username, parts.netloc.rpartition("@")[2]
    query = urlencode([(name, value) for name, value in parse_qsl(parts.query) if name in NO_SECRETS], safe="/")
    return f"{parts.scheme}://{f'{user}@' if user else ''}{host}{parts.path}{f'?{query}' if query else ''}"


def is_service(url: str) -> bool:
    """Whether a resolved address belongs to a service.

    >>> is_service("http://:token@host:7070")
    True
    """
    return url.startswith(("http://", "https://"))


def log_folder(job_id: str, generation: str = "", environ: Mapping[str, str] = settings.HERE) -> Path:
    """The folder for the logs of one generation of a job: in ZEUS_LOG_DIR, or beside the store if that is a file.

    Each generation has its own folder, so that a new trial never appends to the log of an older one.

    >>> log_folder("a/b", "5f0c6f9e1d2c3b4a", {"ZEUS_STORE": "sqlite:////srv/zeus.db"})
    PosixPath('/srv/logs/a%2Fb/5f0c6f9e1d2c')
    """
    given, (scheme, _, path) = settings.log_dir(environ), settings.store(environ).partition(":///")
    beside = Path(path).expanduser() if scheme == "sqlite" else default_path(environ)
    name = quote(job_id, safe=" ").replace(".", "%2E")  # `..` would leave the folder
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME - 20]}-{hashlib.sha256(job_id.encode()).hexdigest()[:16]}"
    return (given if given else beside.parent / "logs").absolute() / name / generation[:12]


def log_file(folder: Path, number: int, trial_id: str, *, written: bool = False) -> Path:
    """The log of a trial: the file to create, or with `written` the one that exists.

    After a restored backup, two trials may have the same number. Then each has its own log.
    """
    plain, own = folder / f"{number}.log", folder / f"{number}-{trial_id[:8]}.log"
    is_own = own.exists() if written else plain.exists()
    return own if trial_id and is_own else plain


def default_path(environ: Mapping[str, str] = settings.HERE) -> Path:
    """`$XDG_DATA_HOME/zeus/zeus.db`."""
    return settings.data_folder(environ) / "zeus.db"


def refuse_network(path: Path, mounts: str | None = None, *, given: bool = False) -> None:
    """Raise InputError if the file is not on a local disk: SQLite's write-ahead log needs shared memory."""
    if mounts is None:
        try:
            mounts = Path("/proc/mounts").read_text()
        except OSError:  # not Linux: the file system is unknown, so accept it
            return
    found = mount_of(path.resolve(), mounts)
    if found is not None and not LOCAL.fullmatch(found[1]):
        raise InputError(
            f"{path} is on a network file system, or on one that Zeus does not know ({found[1]} at {found[0]}). "
            "SQLite's locks do not work between machines there, so data could be lost. "
            f"{'Give' if given else 'Set ZEUS_STORE to'} a file on a local disk (ext4, xfs, btrfs, zfs, tmpfs, ...), "
            "a Postgres database or a service."
        )


def mount_of(path: Path, mounts: str) -> tuple[str, str] | None:
    """The mount point of a path and its file system, from the text of /proc/mounts.

    >>> mount_of(Path("/home/me/zeus.db"), "/dev/sda / ext4 rw 0 0\\nserver:/h /home nfs4 rw 0 0")
    ('/home', 'nfs4')
    """
    best: tuple[str, str] | None = None
    for line in mounts.splitlines():
        words = line.split(" ")
        if len(words) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), words[1])
        if path.is_relative_to(point) and (best is None or len(point) >= len(best[0])):  # a later mount hides others
            best = (point, words[2])
    return best


def shown(url: str) -> str:
    """An address that is safe to show: anything that might be a password or a token is replaced by ***.

    Of a query only settings known to be harmless are shown. A malformed address is not shown at all, because the secret
    may be anywhere in it.

    >>> shown("postgresql://me:secret@host/zeus?password=secret&sslmode=require"), shown("http://secret@host:7070")
    ('postgresql://me:***@host/zeus?password=***&sslmode=require', 'http://***@host:7070')
    >>> shown("postgresql://me:se@cret@host/zeus")
    'postgresql://***'
    >>> shown("host=db password=se://cret")
    '***'
    """
    if url.startswith("sqlite:///"):
        return url
    scheme, colon, _ = url.partition("://")
    parts = ADDRESS.fullmatch(url)
    if parts is None:
        is_scheme = colon and re.fullmatch(r"[a-z][a-z0-9.+-]*", scheme)
        return f"{scheme}://***" if is_scheme else url if re.fullmatch(r"[\w./~-]*", url) else "***"
    user, host, path, query = parts["user"], parts["host"], parts["path"], parts["query"]
    if user is not None:
        name, password, _ = user.partition(":")
        user = "***@" if is_service(url) else f"{name}:***@" if password else f"{name}@"
    query = "?" + "&".join(map(_shown, query.split("&"))) if query else ""
    return f"{scheme}://{user or ''}{host}{path}{query}"


def _shown(setting: str) -> str:
    name, _, _ = setting.partition("=")
    return setting if name in NO_SECRETS else f"{name}=***" if name in SECRETS else "***"
