"""`python -m zeus.device.keeper`: the private keeper of one trainer (`--fd`), or the system's (`--socket`).

It assembles a keeper from this machine's cards, this user's notes, the site's policy and a log.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Sequence
from logging.handlers import WatchedFileHandler
from pathlib import Path

from zeus import settings
from zeus.device import container
from zeus.device.gpu import Gpu
from zeus.device.keeper.audit import audit_log
from zeus.device.keeper.keeper import Keeper, log
from zeus.device.keeper.loan import RestoreResult
from zeus.device.keeper.notes import Notes
from zeus.device.keeper.policy import group_id, policy_of
from zeus.device.keeper.server import serve_private, serve_system
from zeus.errors import InputError, ZeusError, exit_status


def main() -> int:
    """Serve until no client is left."""
    parser = argparse.ArgumentParser(prog="python -m zeus.device.keeper", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--fd", type=int, help="serve the one client at the other end of this inherited socket")
    where.add_argument("--socket", type=Path, help="listen on this unix socket")
    parser.add_argument("--group", help="group whose members may take leases (default: zeus)")
    arguments = parser.parse_args()
    if arguments.fd is None:
        return run_system(arguments.socket, arguments.group)
    if os.fork():  # the trainer waits for this process, not for the keeper
        os._exit(0)
    return run_private(socket.socket(fileno=arguments.fd))


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
    policy = policy_of(settings.HERE.policy_file())
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
        _audit_to(policy_of(settings.HERE.policy_file()).audit)
        serve_system(path, Keeper(cards, notes), lambda: policy_of(settings.HERE.policy_file(), group))
    except ZeusError as e:
        log.error("%s", e)
        return exit_status(e)[0]
    except OSError as e:
        log.error("cannot serve %s: %s", path, e)
        return 1
    return 0


def restore() -> list[RestoreResult]:
    """Restore what dead keepers left behind, on GPUs that no live keeper holds."""
    _audit_to(policy_of(settings.HERE.policy_file()).audit)
    return Keeper(cards, Notes.here()).recover()


def _survive_shortage() -> None:
    """If memory runs out, the kernel should kill the trainer first: the keeper must restore its limits."""
    with contextlib.suppress(OSError):  # only root may do this
        Path("/proc/self/oom_score_adj").write_text("-900")


class _AuditFile(WatchedFileHandler):
    """The file for audit lines. If it cannot be written, limits are set and restored all the same."""

    _trouble = ""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # the folder is gone
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Complain once for each kind of trouble, not for each line."""
        if self._trouble != (trouble := str(sys.exc_info()[1])):
            self._trouble = trouble
            log.error("audit lines cannot be written: %s. They go to the log only.", trouble)


def _audit_to(path: str) -> None:
    """Write audit lines to this file too, if one is given. It may be moved away at any time, as logrotate does."""
    if path:
        _log_to(_AuditFile(path, delay=True), logging.INFO, audit_log, "%(message)s")


def _log_to(
    handler: logging.Handler,
    level: int,
    logger: logging.Logger = log,
    line: str = "keeper %(process)d %(levelname)s %(message)s",
) -> None:
    form = logging.Formatter(f"%(asctime)s {line}", "%Y-%m-%dT%H:%M:%SZ")
    form.converter = time.gmtime
    handler.setFormatter(form)
    handler.setLevel(level)
    logger.addHandler(handler)
    logger.setLevel(level)


if __name__ == "__main__":
    sys.exit(main())
