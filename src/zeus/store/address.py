"""The store that the user means: ZEUS_STORE, or a file under the user's data folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from zeus import env
from zeus.errors import InputError
from zeus.store.api import Store

# File systems of this machine alone, on which all processes share memory. What is not here may be anything.
LOCAL = re.compile(
    r"ext[234]|xfs|btrfs|zfs|bcachefs|f2fs|jfs|nilfs2|reiserfs|ufs|apfs|hfsplus|vfat|exfat|ntfs3?|fuseblk|udf"
    r"|tmpfs|ramfs|rootfs|devtmpfs|overlay|aufs|ecryptfs|fuse\.(fuse-overlayfs|gocryptfs|encfs)"
)

ADDRESS = re.compile(
    r"[\w+.-]+://(?:(?P<user>[^@/?#]*)@)?(?P<host>(?:[\w.-]*|\[[\da-fA-F:.]*\])(?::\d+)?(?:,[\w.-]+(?::\d+)?)*)"
    r"(?P<path>(?:/[^@?#]*)?)(?:\?(?P<query>[^@#]*))?"
)
NO_SECRETS = {"host", "hostaddr", "port", "dbname", "user", "sslmode", "connect_timeout", "application_name"}
SECRETS = {"password", "sslpassword", "token"}  # whose names are shown


def open_store(
    url: str | None = None,
    *,
    environ: Mapping[str, str] = env.HERE,
    wall: Callable[[], float] | None = None,
    connections: int | None = None,
) -> Store:
    """The store at this address, made if there is none, and upgraded if it is old.

    `connections`: how many a process holds at most, where it has many threads; by default a few. `wall`: a clock in
    place of the database's own.

    Raises:
        InputError: Not an address of a store, or a place where SQLite would lose data.
        StoreError: It does not answer; it may do so later.
    """
    url = resolve(url, environ)
    if is_service(url):
        raise InputError(f"{shown(url)} is a service; here the address of a database is needed.")
    if (path := file_of(url)) is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as wrong:
            raise InputError(f"{url}: its folder cannot be made: {wrong}. Set ZEUS_STORE to another.") from wrong

    from zeus.store.sql.store import SqlStore  # a quarter of a second that those who need no database are spared

    return SqlStore(url, wall) if connections is None else SqlStore(url, wall, connections=connections)


def resolve(url: str | None = None, environ: Mapping[str, str] = env.HERE) -> str:
    """The address that is meant, checked as far as it can be without touching anything; a file's is absolute."""
    url = url or env.store(environ) or f"sqlite:///{default_path(environ)}"
    scheme, colon, _ = url.partition("://")
    if not colon or scheme not in ("sqlite", "postgresql", "postgresql+psycopg", "http", "https"):
        raise InputError(
            f"ZEUS_STORE={shown(url)!r}: give sqlite:///path, postgresql+psycopg://user@host/name or http://host:port."
        )
    if scheme != "sqlite":
        # The host would be taken to begin within the password, and be told.
        if url.count("@") > 1 or re.match(r"[^@/?#]*//[^@/?#]*[/?#][^@]*@", url):
            raise InputError(
                f"ZEUS_STORE={shown(url)!r}: in a password, and in all that follows it, write @ as %40, / as %2F, "
                "? as %3F and # as %23."
            )
        return url.replace(scheme, "postgresql+psycopg", 1) if scheme == "postgresql" else url
    path = Path(url.partition(":///")[2]).expanduser()
    if path.name in ("", ":memory:"):
        raise InputError(f"ZEUS_STORE={shown(url)!r}: give a file, as in sqlite:////home/me/zeus.db.")
    refuse_network(path)
    return f"sqlite:///{path.resolve()}"


def file_of(url: str) -> Path | None:
    """The file behind a resolved address; None where it is a server's.

    >>> file_of("sqlite:////home/me/zeus.db")
    PosixPath('/home/me/zeus.db')
    """
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else None


def address_of(url: str) -> str:
    """What a resolved address names, with nothing in it that is secret or that a new password would change.

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
    """Whether a resolved address is that of a service.

    >>> is_service("http://:token@host:7070")
    True
    """
    return url.startswith(("http://", "https://"))


def log_folder(job_id: str, life: str = "", environ: Mapping[str, str] = env.HERE) -> Path:
    """Where the logs of one life of a job lie: in ZEUS_LOG_DIR, or beside the store where that is a file.

    No two lives share a folder, so that no log is added to that of an older trial.

    >>> log_folder("a/b", "5f0c6f9e1d2c3b4a", {"ZEUS_STORE": "sqlite:////srv/zeus.db"})
    PosixPath('/srv/logs/a%2Fb/5f0c6f9e1d2c')
    """
    given, (scheme, _, place) = env.log_dir(environ), env.store(environ).partition(":///")
    beside = Path(place).expanduser() if scheme == "sqlite" else default_path(environ)
    name = quote(job_id, safe=" ").replace(".", "%2E")  # `..` would be another folder
    return (Path(given) if given else beside.parent / "logs").absolute() / name / life[:12]


def log_file(folder: Path, number: int, trial_id: str, *, written: bool = False) -> Path:
    """The log of a trial, to be begun or already written.

    Where another trial had this number, before a backup of the store was restored, each has a log of its own.
    """
    plain, own = folder / f"{number}.log", folder / f"{number}-{trial_id[:8]}.log"
    is_own = own.exists() if written else plain.exists()
    return own if trial_id and is_own else plain


def default_path(environ: Mapping[str, str] = env.HERE) -> Path:
    """`$XDG_DATA_HOME/zeus/zeus.db`."""
    return env.data_folder(environ) / "zeus.db"


def refuse_network(path: Path, mounts: str | None = None) -> None:
    """SQLite's write-ahead log needs memory that all its processes share, as only local disks give."""
    if mounts is None:
        try:
            mounts = Path("/proc/mounts").read_text()
        except OSError:  # not Linux: nothing is known, so nothing is refused
            return
    found = mount_of(path.resolve(), mounts)
    if found is not None and not LOCAL.fullmatch(found[1]):
        raise InputError(
            f"{path} is on a network file system, or on one that Zeus does not know ({found[1]} at {found[0]}). "
            "SQLite's locks do not hold between machines there, and its data may be lost. Set ZEUS_STORE to a file on "
            "a local disk (ext4, xfs, btrfs, zfs, tmpfs, ...), to Postgres or to a service."
        )


def mount_of(path: Path, mounts: str) -> tuple[str, str] | None:
    """The mount point that holds a path and its file system, from the text of /proc/mounts.

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
    """An address as anybody may read it: of what might be a password or a token, nothing is left.

    Of a query only what is known to be no secret is shown. Of what is no well-formed address nothing is shown, as the
    secret may lie anywhere in it.

    >>> shown("postgresql://me:secret@host/zeus?password=secret&sslmode=require"), shown("http://secret@host:7070")
    ('postgresql://me:***@host/zeus?password=***&sslmode=require', 'http://***@host:7070')
    >>> shown("postgresql://me:se@cret@host/zeus")
    'postgresql://***'
    """
    if url.startswith("sqlite:///"):
        return url
    scheme, colon, _ = url.partition("://")
    parts = ADDRESS.fullmatch(url)
    if parts is None:
        return f"{scheme}://***" if colon else url if re.fullmatch(r"[\w./~-]*", url) else "***"
    user, host, path, query = parts["user"], parts["host"], parts["path"], parts["query"]
    if user is not None:
        name, password, _ = user.partition(":")
        user = "***@" if is_service(url) else f"{name}:***@" if password else f"{name}@"
    query = "?" + "&".join(map(_shown, query.split("&"))) if query else ""
    return f"{scheme}://{user or ''}{host}{path}{query}"


def _shown(setting: str) -> str:
    name, _, _ = setting.partition("=")
    return setting if name in NO_SECRETS else f"{name}=***" if name in SECRETS else "***"
