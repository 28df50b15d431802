"""A service of systemd for tests: reads a unit file and runs its command with the unit's user, rights and folders.

It stands in for systemd where that is not process 1. The mount and network namespaces are the service's own: the file
system is read-only but for the folders that the unit asks for, and loopback is the only interface.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.paths import SOURCES
from support.waiting import PATIENCE_SECONDS

NOBODY = 64_999  # in place of a user of the unit, who need not exist here
INSTALLED = "/opt/zeus/bin/"
FOLDERS = {"RuntimeDirectory": "/run", "StateDirectory": "/var/lib", "LogsDirectory": "/var/log"}
ENTER = ["unshare", "--mount", "--net"]
SETTLE = """\
set -e
ip link set lo up
mount -o remount,bind,ro /
for folder in /tmp /run /var/lib /var/log; do mount -t tmpfs tmpfs $folder; done
"""


def _obstacle() -> str:
    missing = [name for name in ("unshare", "nsenter", "setpriv", "ip") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        return f"only root can run a unit, with unshare, nsenter and setpriv (util-linux) and ip (iproute2): {missing}"
    # /tmp is empty for the service, as with PrivateTmp, and its user must be able to read the project.
    tried = _start(["setpriv", f"--reuid={NOBODY}", "--clear-groups", sys.executable, "-c", "import zeus"], "", {})
    error = tried.communicate()[1]
    return f"a unit cannot be run here: {error.strip()[-200:]}" if tried.returncode else ""


def _start(command: list[str], prepare: str, env: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*ENTER, "sh", "-c", f'{SETTLE}{prepare}exec "$@"', "sh", *command],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCES), **env},
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@dataclass(frozen=True, slots=True)
class SystemdUnit:
    """The settings of one unit file, by section and name. A name may occur several times."""

    sections: Mapping[str, Mapping[str, list[str]]]

    @classmethod
    def read(cls, text: str, **specifiers: str) -> SystemdUnit:
        """Read a unit, with these values for its specifiers, as in `i="sentiment"` for %i."""
        for letter, value in specifiers.items():
            text = text.replace(f"%{letter}", value)
        sections: dict[str, dict[str, list[str]]] = {}
        for line in text.replace("\\\n", " ").splitlines():
            if line.startswith("["):
                settings = sections.setdefault(line.strip("[]"), {})
            elif line.strip() and not line.startswith(("#", ";")):
                name, _, value = line.partition("=")
                settings.setdefault(name, []).append(value)
        return cls(sections)

    def __getitem__(self, name: str) -> str:
        """The value of a setting in [Service], empty if it is not there."""
        return self.sections["Service"].get(name, [""])[-1]

    @property
    def environment(self) -> dict[str, str]:
        lines = self.sections["Service"].get("Environment", [])
        return dict(part.split("=", 1) for line in lines for part in shlex.split(line))

    def command(self, **variables: str) -> list[str]:
        """The words of ExecStart: ${NAME} is one word, $NAME as many as it has. Zeus is that of this interpreter."""
        values = {**self.environment, **variables}
        words: list[str] = []
        for word in shlex.split(self["ExecStart"]):
            if whole := re.fullmatch(r"\$(\w+)", word):
                words += values[whole[1]].split()
            else:
                words.append(re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], word))
        return [words[0].replace(INSTALLED, f"{Path(sys.executable).parent}/"), *words[1:]]

    def start(self, **variables: str) -> subprocess.Popen[str]:
        """Run the service, with these variables in addition. What is returned is its process."""
        is_root = not self["User"] and self["DynamicUser"] != "yes"
        user = [] if is_root else [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        granted = "".join(f",+{one.removeprefix('CAP_').lower()}" for one in self["CapabilityBoundingSet"].split())
        rights = ["setpriv", *user, f"--bounding-set=-all{granted}", "--inh-caps=-all", "--no-new-privs"]
        prepare = f"umask {self['UMask'] or '0022'}\n"
        for setting, parent in FOLDERS.items():
            mode = self[f"{setting}Mode"] or "0755"
            owner = 0 if is_root else NOBODY
            for name in self[setting].split():
                prepare += f"install -d -m {mode} -o {owner} -g {owner} {parent}/{name}\n"
        return _start([*rights, *self.command(**variables)], prepare, {**self.environment, **variables})


def beside(service: subprocess.Popen[str], *command: str, **variables: str) -> str:
    """What a command says that runs as root in the namespaces of a service."""
    done = subprocess.run(
        ["nsenter", f"--target={service.pid}", "--mount", "--net", *command],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCES), **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return done.stdout


_why_not = _obstacle()
needs_namespaces = pytest.mark.skipif(bool(_why_not), reason=_why_not or "a unit can be run here")
needs_systemd_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed (`apt-get install systemd`)"
)


def analyze(*arguments: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze, which needs no running systemd for what we ask."""
    words = ["systemd-analyze", *map(str, arguments)]
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False)
