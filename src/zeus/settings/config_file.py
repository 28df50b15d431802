"""The configuration files of a site and of a user, below the environment.

    /etc/zeus/config.toml  ◀  $XDG_CONFIG_HOME/zeus/config.toml  ◀  the environment        (the right one wins)

ZEUS_CONFIG names one file to read instead of both, or none if it is empty. Files are read once, when a setting is first
needed. A mistake in a file never stops a training: it is logged, and the wrong setting is ignored. If that leaves open
whether Zeus may change GPUs, it does not (`Layered.doubt`). Commands refuse to start instead (`refuse_mistakes`).
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zeus.settings.types import PATH, SWITCH, TEXT, as_text
from zeus.toml_reader import Kind, TomlReader, shown

if TYPE_CHECKING:
    from zeus.settings import Setting

log = logging.getLogger(__name__)

SYSTEM = Path("/etc/zeus/config.toml")
VARIABLE = "ZEUS_CONFIG"
KEEPER = "keeper"
MOST_BYTES = 1_000_000


def limit_of(value: Any) -> tuple[float, str] | None:
    """A limit as its number and its unit, "W" or "%". None if it is no limit.

    >>> limit_of(150), limit_of("60 %"), limit_of("60%"), limit_of("0 %"), limit_of("sixty")
    ((150.0, 'W'), (60.0, '%'), (60.0, '%'), None, None)
    """
    if not isinstance(value, str):
        return (float(value), "W") if type(value) in (int, float) and 1 <= value < 1e9 else None
    digits, sign, rest = value.partition("%")
    try:
        return (float(digits), "%") if sign and not rest.strip() and 1 <= float(digits) <= 100 else None
    except ValueError:
        return None


TABLE: Kind = (lambda value: isinstance(value, dict), "a table")
LIMIT: Kind = (limit_of, 'watts such as 150, or a share of the card\'s highest limit such as "60 %"')

# [keeper]: who may set which power limits. Only a system's file may say so.
POLICY: Mapping[str, Kind] = {
    "group": TEXT.in_file,
    "floor": LIMIT,
    "ceiling": LIMIT,
    "audit": PATH.in_file,
    "groups": TABLE,
    "users": TABLE,
}
# [keeper.groups.NAME], [keeper.users.NAME]
RULE: Mapping[str, Kind] = {"floor": LIMIT, "ceiling": LIMIT, "allow": SWITCH.in_file}


@dataclass(frozen=True, slots=True)
class Value:
    """A value in a file, as the variable would have it."""

    text: str
    path: Path
    line: int

    @property
    def origin(self) -> str:
        return f"{self.path}, line {self.line}" if self.line else str(self.path)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file that was read. Wrong settings are left out of `values`."""

    path: Path
    values: Mapping[str, Value] = field(default_factory=dict)  # by variable
    policy: Mapping[str, Any] = field(default_factory=dict)  # the keys of POLICY in [keeper]
    mistakes: tuple[str, ...] = ()
    policy_mistakes: tuple[str, ...] = ()  # those that leave open what the policy is
    doubts: Mapping[str, str] = field(default_factory=dict)  # by variable: where the file leaves a safety setting open
    mend: str = ""  # the command after which the file can be used; empty: only its text has mistakes


class Layered(Mapping[str, str]):
    """The variables of an environment, and below them the settings of files.

    >>> Layered({"ZEUS_CONFIG": "", "ZEUS_MODE": "observe"}, [])["ZEUS_MODE"]
    'observe'
    """

    def __init__(self, environ: Mapping[str, str], settings: Sequence[Setting[Any]]) -> None:
        self._environ = environ
        self._settings = settings
        self._variables = {one.variable for one in settings if one.in_files}
        self._read: dict[tuple[str | None, ...], tuple[ConfigFile, ...]] = {}

    def __getitem__(self, name: str) -> str:
        found = self._environ.get(name)
        if found is not None:
            return found
        if name not in self._variables:
            raise KeyError(name)
        return self._below()[name].text

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self._environ), **self._below()})

    def __len__(self) -> int:
        return len(list(iter(self)))

    def origin(self, name: str) -> str:
        """Where the value of this variable comes from: "environment", a file with its line, or "default"."""
        if name in self._environ:
            return "environment"
        found = self._below().get(name)
        return "default" if found is None else found.origin

    def doubt(self, name: str) -> str:
        """The file, and the line, that leaves open what this safety setting is. Empty if it is clear."""
        if name in self._environ:
            return ""
        told = (file for file in reversed(self.files()) if name in file.doubts or name in file.values)
        return next((file.doubts.get(name, "") for file in told), "")

    def files(self) -> tuple[ConfigFile, ...]:
        """The files that exist, lowest first. They are read once."""
        names = tuple(map(self._environ.get, (VARIABLE, "XDG_CONFIG_HOME", "HOME")))
        if names not in self._read:
            found = [self._file(path) for path in config_paths(self._environ)]
            self._read[names] = files = tuple(one for one in found if one is not None)
            for mistake in (mistake for file in files for mistake in file.mistakes):
                log.warning("%s This setting is ignored.", mistake)
        return self._read[names]

    def policy_file(self) -> ConfigFile:
        """The file with the policy of this machine's keeper, read again each time. Empty if there is none."""
        paths = config_paths(self._environ)
        return (self._file(paths[0]) if paths else None) or ConfigFile(paths[0] if paths else SYSTEM)

    def mistakes(self) -> list[str]:
        """Everything that is wrong with the files."""
        return [mistake for file in self.files() for mistake in file.mistakes]

    def _file(self, path: Path) -> ConfigFile | None:
        is_named = bool(self._environ.get(VARIABLE))
        found = read_config(path, self._settings, is_system=is_named or path == SYSTEM)
        if found is None and is_named:
            why = f"{VARIABLE} names this file, but it does not exist. Create it, or unset {VARIABLE}."
            return _broken(path, why, self._settings)
        return found

    def _below(self) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for file in self.files():
            found.update(file.values)
        return found


def config_paths(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The files to read, lowest first, whether or not they exist.

    >>> config_paths({"XDG_CONFIG_HOME": "/home/me/.config"})
    (PosixPath('/etc/zeus/config.toml'), PosixPath('/home/me/.config/zeus/config.toml'))
    >>> config_paths({"ZEUS_CONFIG": ""})
    ()
    """
    given = environ.get(VARIABLE)
    if given is not None:
        return (Path(given).absolute(),) if given.strip() else ()
    if folder := environ.get("XDG_CONFIG_HOME"):
        return SYSTEM, Path(folder) / "zeus" / "config.toml"
    try:
        return SYSTEM, Path.home() / ".config" / "zeus" / "config.toml"
    except RuntimeError:  # the user has no home, as in some containers
        return (SYSTEM,)


def read_config(path: Path, settings: Sequence[Setting[Any]], *, is_system: bool) -> ConfigFile | None:
    """Read and check a file. None if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for a writer
        try:
            found = os.fstat(descriptor)
            trouble, mend = _danger(found, path)
            content = b"" if trouble else os.read(descriptor, MOST_BYTES)
        finally:
            os.close(descriptor)
        text = content.decode("utf-8-sig")  # some editors write a byte order mark
    except (FileNotFoundError, NotADirectoryError):
        trouble, mend = _replaceable(path)  # somebody may have removed it
        return _broken(path, trouble, (), mend) if trouble else None
    except UnicodeDecodeError:
        return _broken(path, "it is not text in UTF-8. Save it as UTF-8.", settings)
    except OSError as failed:
        why = f"it cannot be read: {failed.strerror}. Let every user read it:"
        return _broken(path, why, settings, f"chmod a+r {path}")
    if trouble:
        return _broken(path, trouble, () if _is_strange(found) else settings, mend)
    import tomllib  # imported late: most machines have no such file

    try:
        data = tomllib.loads(text)
    except ValueError as wrong:
        why = f"it is not valid TOML: {wrong}. Write texts in quotes and lists in [brackets]."
        return _broken(path, why, settings)
    return _Reader(str(path), text, settings, is_system).read(path, data)


def _broken(path: Path, why: str, settings: Sequence[Setting[Any]], mend: str = "") -> ConfigFile:
    """A file of which nothing can be used, and which may have meant any of these settings.

    If a command mends it, the reason `why` ends where the command follows.
    """
    doubts = {one.variable: str(path) for one in settings if one.is_safety}
    mistakes = (f"{path}: {why} `{mend}`." if mend else f"{path}: {why}",)
    return ConfigFile(path, mistakes=mistakes, policy_mistakes=mistakes, doubts=doubts, mend=mend)


def _danger(found: os.stat_result, path: Path) -> tuple[str, str]:
    """Why the file cannot be trusted, and the command that mends it. Both are empty if it can."""
    if not stat.S_ISREG(found.st_mode):
        return "it is not a file. Move it away:", f"mv {path} {path}.old"
    if found.st_size > MOST_BYTES:
        size = f"it has {found.st_size} bytes, and settings need at most {MOST_BYTES}"
        return f"{size}. Move it away:", f"mv {path} {path}.old"
    if found.st_mode & stat.S_IWOTH:
        return "every user can change it, so it is ignored. Run", f"chmod go-w {path}"
    if _is_strange(found):
        return f"it belongs to user {found.st_uid}, so root ignores it. Run", f"chown root {path}"
    if os.geteuid() == 0 and found.st_mode & stat.S_IWGRP:
        return f"group {found.st_gid} can change it, so root ignores it. Run", f"chmod g-w {path}"
    return _replaceable(path)


def _replaceable(path: Path) -> tuple[str, str]:
    """Why others can replace or remove a file of root, and the command that mends it. Both are empty if they cannot."""
    try:
        folder = path.parent.stat()
        is_fixed = os.statvfs(path.parent).f_flag & os.ST_RDONLY  # as Kubernetes mounts a ConfigMap
    except OSError:
        return "", ""
    mends = [f"chown root {path.parent}"] if folder.st_uid != 0 else []
    if folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not folder.st_mode & stat.S_ISVTX:
        mends.append(f"chmod go-w {path.parent}")
    if os.geteuid() != 0 or is_fixed or not mends:
        return "", ""
    return "other users can write to its folder, so root ignores it. Run", " && ".join(mends)


def _is_strange(found: os.stat_result) -> bool:
    """Whether this is root, and the file somebody else's: what it says is not for root."""
    return os.geteuid() == 0 and found.st_uid != 0


class _Reader(TomlReader):
    """Reads a configuration file."""

    def __init__(self, name: str, text: str, settings: Sequence[Setting[Any]], is_system: bool) -> None:
        self._settings = settings = [one for one in settings if one.in_files]
        self._tables: dict[str, dict[str, Kind]] = {KEEPER: {**POLICY}}
        top: dict[str, Kind] = {}
        for one in settings:
            *table, key = one.path
            (self._tables.setdefault(table[0], {}) if table else top)[key] = one.type.in_file
        secret = [one.key for one in settings if one.is_secret]
        super().__init__(name, text, {**top, **dict.fromkeys(self._tables, TABLE)}, secret)
        self._is_system = is_system
        self._doubts: dict[str, str] = {}

    def read(self, path: Path, data: dict[str, Any]) -> ConfigFile:
        self._check({key: value for key, value in data.items() if key != KEEPER}, self._top)
        for table, known in self._tables.items():
            if table != KEEPER and isinstance(data.get(table), dict):
                self._check(data[table], known, table)
        others = len(self._wrong)
        policy = self._policy(data.get(KEEPER, {}))
        return ConfigFile(
            path,
            self._values(path, data),
            policy,
            tuple(self._mistakes()),
            tuple(self._mistakes(since=others)),
            self._doubts,
        )

    def _check(self, data: Mapping[str, Any], known: Mapping[str, Kind], *table: str) -> None:
        super()._check(data, known, *table)
        for key, value in data.items():
            if key not in known or not known[key][0](value):
                self._doubt(key, value, Value("", Path(self._name), self._line((*table, key))).origin)

    def _doubt(self, key: str, value: Any, origin: str) -> None:
        """Note which safety settings may have been meant by a key that is wrong, or by one inside it."""
        from difflib import get_close_matches  # slow to import, and seldom needed

        for one in (one for one in self._settings if one.is_safety):
            if get_close_matches(key.lower(), (one.path[-1], one.variable.lower())):
                self._doubts[one.variable] = origin
        for inner, inside in value.items() if isinstance(value, dict) else ():
            self._doubt(inner, inside, origin)

    def _policy(self, keeper: Any) -> dict[str, Any]:
        if not isinstance(keeper, dict):
            self._check({KEEPER: keeper}, self._top)
            return {}
        self._check(keeper, self._tables[KEEPER], KEEPER)
        self._check_order(keeper, KEEPER)
        policy = {key: value for key, value in keeper.items() if key in POLICY}
        if policy and not self._is_system:
            key = next(iter(policy))
            self._blame((KEEPER, key), f"{key} is part of the keeper's policy, which only {SYSTEM} can set.")
            return {}
        for kind in ("groups", "users"):
            rules = policy.get(kind)
            for name, rule in rules.items() if isinstance(rules, dict) else ():
                if isinstance(rule, dict):
                    self._check(rule, RULE, KEEPER, kind, name)
                    self._check_order(rule, KEEPER, kind, name)
                else:
                    self._blame((KEEPER, kind, name), f"{name}: write `[keeper.{kind}.{name}]`, and its limits below.")
        return policy

    def _check_order(self, rule: Mapping[str, Any], *table: str) -> None:
        floor, ceiling = (limit_of(rule.get(name)) for name in ("floor", "ceiling"))
        if floor is not None and ceiling is not None and floor[1] == ceiling[1] and floor > ceiling:
            what = f"floor = {shown(rule['floor'])} is above ceiling = {shown(rule['ceiling'])}"
            self._blame((*table, "floor"), f"{what}: give a floor of at most the ceiling.")

    def _values(self, path: Path, data: Mapping[str, Any]) -> dict[str, Value]:
        """The right values, by variable."""
        found = {}
        for one in self._settings:
            value: Any = data
            for key in one.path:
                value = value.get(key) if isinstance(value, dict) else None
            if value is not None and one.type.in_file[0](value):
                found[one.variable] = Value(as_text(value), path, self._line(one.path))
        return found
