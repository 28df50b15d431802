"""Assembles a keeper: this machine's cards, this user's notes, and a log."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import time
from collections.abc import Sequence
from functools import partial
from logging.handlers import WatchedFileHandler
from pathlib import Path

from zeus import env
from zeus.device import container
from zeus.device.gpu import Gpu
from zeus.device.keeper import audit
from zeus.device.keeper.core import Keeper
from zeus.device.keeper.notes import Notes
from zeus.device.keeper.peer import group_id
from zeus.device.keeper.policy import KeeperPolicy, policy_of
from zeus.device.keeper.restore import Returned
from zeus.device.keeper.server import serve_private, serve_system
from zeus.errors import InputError, ZeusError
from zeus.exit_codes import exit_status

log = logging.getLogger("zeus.device.keeper")


def cards() -> Sequence[Gpu]:
    """Every card of this machine, whatever masks this process has."""
    from zeus.device.find import machine  # imported late: it opens the driver

    return machine()


def run_private(sock: socket.socket) -> int:
    """Serve one trainer. There is no terminal, so problems are logged to a file next to the notes."""
    _survive_shortage()
    notes = Notes.here()
    with contextlib.suppress(OSError):
        _log_to(logging.FileHandler(notes.folder / "keeper.log"), logging.WARNING)
    policy = site_policy()
    _audit_to(policy.audit)
    serve_private(sock, Keeper(cards, notes), policy)
    return 0


def run_system(path: Path, group: str | None) -> int:
    """Serve a group of users in the foreground, and log each event to stderr."""
    _log_to(logging.StreamHandler(sys.stderr), logging.INFO)
    _survive_shortage()
    try:
        notes = Notes.here()
        if risk := container.risk(notes.folder):
            log.warning("%s Mount the host's /run/zeus at /run/zeus.", risk)
        if group is not None and group_id(group) is None:
            raise InputError(
                f"there is no group '{group}'. Create it with `groupadd --system {group}`, or name another."
            )
        _audit_to(site_policy().audit)
        serve_system(path, Keeper(cards, notes), partial(site_policy, group))
    except ZeusError as e:
        log.error("%s", e)
        return exit_status(e)[0]
    except OSError as e:
        log.error("cannot serve %s: %s", path, e)
        return 1
    return 0


def site_policy(group: str | None = None) -> KeeperPolicy:
    """The policy of this machine, as its file says now."""
    return policy_of(env.HERE.policy_file(), group)


def restore() -> list[Returned]:
    """Restore what dead keepers left behind, on GPUs that no live keeper holds."""
    _audit_to(site_policy().audit)
    return Keeper(cards, Notes.here()).recover()


def _survive_shortage() -> None:
    """If memory runs out, the kernel should kill the trainer first: the keeper must restore its limits."""
    with contextlib.suppress(OSError):  # only root may do this
        Path("/proc/self/oom_score_adj").write_text("-900")


class _AuditFile(WatchedFileHandler):
    """The file for audit lines. If it cannot be written, limits are set and restored all the same."""

    def __init__(self, path: str) -> None:
        super().__init__(path, delay=True)
        self._trouble = ""
        try:
            self.stream = self._open()
            self._statstream()
        except OSError as e:
            self._complain(e)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.reopenIfNeeded()
            if self.stream is None:
                self.stream = self._open()
            self.stream.write(f"{self.format(record)}\n")
            self.flush()
        except OSError as e:  # the folder is gone, or the disk is full
            self._complain(e)
        else:
            self._trouble = ""

    def _complain(self, error: OSError) -> None:
        """Once for each kind of trouble, not for each line."""
        if self._trouble != str(error):
            self._trouble = str(error)
            path, why = self.baseFilename, error.strerror
            log.error("audit lines cannot be written to %s: %s. They go to the log only.", path, why)


def _audit_to(path: str) -> None:
    """Write audit lines to this file too, if one is given. It may be moved away at any time, as logrotate does."""
    if not path:
        return
    handler = _AuditFile(path)
    handler.setFormatter(_with_time("%(message)s"))
    audit.log.addHandler(handler)
    audit.log.setLevel(logging.INFO)


def _log_to(handler: logging.Handler, level: int) -> None:
    handler.setFormatter(_with_time("keeper %(process)d %(levelname)s %(message)s"))
    handler.setLevel(level)
    log.addHandler(handler)
    log.setLevel(level)


def _with_time(text: str) -> logging.Formatter:
    form = logging.Formatter(f"%(asctime)s {text}", "%Y-%m-%dT%H:%M:%SZ")
    form.converter = time.gmtime
    return form
