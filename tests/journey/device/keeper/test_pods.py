"""A keeper and a training in two pods of one node, with the rights that our manifests give them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from support.keeper_container import ENTER, contained, needs_unshare
from support.keeper_place import Place, nvidia, says
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.launch.job_file.placements import KubernetesSettings

USUAL = KubernetesSettings(image="train")
# Speaks the protocol by hand: the user of a pod cannot read this project's folder on every machine.
TRAINER = """
import json, os, socket, sys
print("capabilities", [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")], flush=True)
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
try:
    sock.connect(sys.argv[1])
except PermissionError:
    sys.exit(print("no permission"))
uuids = sys.argv[3:]
watts = dict.fromkeys(uuids, float(sys.argv[2]))
for request in ({"op": "hello", "zeus": 1}, {"op": "lease", "gpus": uuids}, {"op": "set", "watts": watts}):
    sock.send(json.dumps(request).encode())
    answer = json.loads(sock.recv(65536))
    assert answer["ok"], answer
print("lowered", flush=True)
try:
    open(os.path.dirname(sys.argv[1]) + "/mine", "w")
except OSError as refused:
    print("refused", refused.errno, flush=True)
sys.stdin.readline()
"""
needs_setpriv = pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is needed to give up rights")


def pod(place: Place, group: int) -> subprocess.Popen[str]:
    """A training in its own pid and mount namespaces, as the user and groups of a rendered pod, with no capability."""
    mounts = "mount -t tmpfs tmpfs /run && mkdir /run/zeus && mount --bind $1 /run/zeus"
    mounts += " && mount -o remount,bind,ro /run/zeus && shift"
    user = ["--reuid", str(USUAL.user), "--regid", str(USUAL.user), "--groups", str(group)]
    rights = ["setpriv", *user, "--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs"]
    uuids = [gpu.spec.uuid for gpu in place.gpus]
    command = ["python3", "-I", "-c", TRAINER, USUAL.keeper_socket, str(place.low), *uuids]
    process = subprocess.Popen(
        [*ENTER, "sh", "-c", f'{mounts} && exec "$@"', "sh", str(place.folder / "run"), *rights, *command],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    place.running.append(process)
    return process


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the first process of a pod, and so all of them. It does not die with unshare, since it changed its user."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in map(int, children):
        os.kill(child, signal.SIGKILL)
    process.wait(PATIENCE_SECONDS)


@needs_unshare
@needs_setpriv
@pytest.mark.skipif(not os.access("/usr/bin/python3", os.X_OK), reason="a Python that any user may run is needed")
@pytest.mark.parametrize("place", [nvidia], ids=["nvidia"], indirect=True)
def test_a_pod_without_rights_gets_its_limit_from_the_keepers_pod_and_loses_it_when_it_is_killed(place: Place) -> None:
    command = ("-m", "zeus.device.keeper", "--socket", USUAL.keeper_socket, "--group", str(USUAL.keeper_group))
    contained(place, *command, shared=True)
    eventually((place.folder / "run" / "keeper.sock").is_socket)
    stranger = pod(place, group=USUAL.keeper_group + 1)
    says(stranger, "no permission")
    assert place.is_untouched()
    trainer = pod(place, group=USUAL.keeper_group)
    assert says(trainer, "capabilities") == "['0000000000000000']"
    says(trainer, "lowered")
    assert place.is_lowered()
    assert says(trainer, "refused") == "30"  # read-only file system: the socket is all that it gets
    kill(trainer)
    eventually(place.is_untouched)
