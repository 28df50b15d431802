"""Assembles a keeper: this machine's cards, this user's notes, and a log."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from zeus.device.gpu import Gpu
from zeus.device.keeper import container
from zeus.device.keeper.core import Keeper
from zeus.device.keeper.notes import Notes
from zeus.device.keeper.restore import Returned
from zeus.device.keeper.server import serve_private, serve_system
from zeus.errors import ZeusError
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
    serve_private(sock, Keeper(cards, notes))
    return 0


def run_system(path: Path, group: str | None) -> int:
    """Serve a group of users in the foreground, and log each event to stderr."""
    _log_to(logging.StreamHandler(sys.stderr), logging.INFO)
    _survive_shortage()
    try:
        notes = Notes.here()
        if risk := container.risk(notes.folder):
            log.warning("%s Mount the host's /run/zeus at /run/zeus.", risk)
        serve_system(path, group, Keeper(cards, notes))
    except ZeusError as e:
        log.error("%s", e)
        return exit_status(e)[0]
    except OSError as e:
        log.error("cannot serve %s: %s", path, e)
        return 1
    return 0


def restore() -> list[Returned]:
    """Restore what dead keepers left behind, on GPUs that no live keeper holds."""
    return Keeper(cards, Notes.here()).recover()


def _survive_shortage() -> None:
    """If memory runs out, the kernel should kill the trainer first: the keeper must restore its limits."""
    with contextlib.suppress(OSError):  # only root may do this
        Path("/proc/self/oom_score_adj").write_text("-900")


def _log_to(handler: logging.Handler, level: int) -> None:
    form = logging.Formatter("%(asctime)s keeper %(process)d %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    form.converter = time.gmtime
    handler.setFormatter(form)
    log.addHandler(handler)
    log.setLevel(level)
