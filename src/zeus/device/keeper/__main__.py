"""`python -m zeus.device.keeper`: the private keeper of one trainer (`--fd`), or the system's (`--socket`)."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from pathlib import Path


def main() -> int:
    """Serve until no client is left."""
    parser = argparse.ArgumentParser(prog="python -m zeus.device.keeper", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--fd", type=int, help="serve the one client at the other end of this inherited socket")
    where.add_argument("--socket", type=Path, help="listen on this unix socket")
    parser.add_argument("--group", help="group whose members may take leases (default: zeus)")
    arguments = parser.parse_args()
    if arguments.fd is None:
        from zeus.device.keeper.run import run_system

        return run_system(arguments.socket, arguments.group)
    if os.fork():  # before anything is loaded: the trainer waits for this process, not for the keeper
        os._exit(0)
    from zeus.device.keeper.run import run_private

    return run_private(socket.socket(fileno=arguments.fd))


if __name__ == "__main__":
    sys.exit(main())
