"""A real nginx with an example of `deploy/nginx` on loopback, for as long as a `with` block lasts."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.waiting import PATIENCE_SECONDS, eventually

EXAMPLES = Path(__file__).parents[2] / "deploy/nginx"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed: apt-get install nginx-light")


@contextmanager
def nginx(folder: Path, service: str, example: str = "zeus.conf", **changes: str) -> Iterator[str]:
    """The address of an nginx before the service at this address.

    Args:
        folder: Where nginx keeps its files.
        service: Address of the service.
        example: The example in `deploy/nginx`.
        changes: Settings of the example that are replaced, by name.
    """
    assert NGINX is not None
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    text = (EXAMPLES / example).read_text()
    changes = {"listen": f"127.0.0.1:{port}", "server_name": "127.0.0.1", "server": urlsplit(service).netloc, **changes}
    for name, value in changes.items():
        text, count = re.subn(rf"^( +{name}) [^{{\n]*?;", rf"\1 {value};", text, flags=re.MULTILINE)
        assert count == 1, name
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi"))
    user = "user root;\n" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user}daemon off;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}{text}\n}}\n"
    )
    command = [NGINX, "-p", str(folder), "-e", f"{folder}/error.log", "-c", str(folder / "nginx.conf")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            eventually(lambda: _listens(port) or server.poll() is not None)
            assert server.poll() is None, server.stderr.read() if server.stderr else ""
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(PATIENCE_SECONDS)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS).close()
    except OSError:
        return False
    return True
