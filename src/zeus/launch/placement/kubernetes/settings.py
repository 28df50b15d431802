"""[kubernetes] of a job file and its flags, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zeus.errors import InputError

KINDS = ("job", "cronjob", "pytorchjob")
JOB_FOLDER, TEMPORARY, SHARED_MEMORY = "/etc/zeus-job", "/tmp", "/dev/shm"
# A pod gets the whole folder of the socket. Any other folder of a node, such as /run/containerd, may give it the node.
KEEPER_FOLDER = re.compile(r"(/var)?/run/zeus(-[\w.-]+)?")
MOST_ID, MOST_WORKERS = 2**31 - 2, 10_000
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
IMAGE = re.compile(r"[\w.-]+(:\d+)?(/[\w.-]+)*(:[\w.-]+)?(@[\w+.-]+:[0-9a-fA-F]{32,})?")
SELECTOR_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
SELECTOR_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
MACROS = ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
CRON = ((0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, MONTHS), (0, 6, DAYS))


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """How the pods of a job are made.

    Raises:
        InputError: A value cannot be used. The message says which, and what to give.
    """

    image: str = ""
    namespace: str = ""  # empty: the one that kubectl uses
    kind: str = "job"
    schedule: str = ""  # for a CronJob
    gpus: float = 1  # of each pod; a float, because a flag of another place has the same name
    gpu_resource: str = "nvidia.com/gpu"
    workers: int = 0  # pods of a PyTorchJob beside its master
    secret: str = "zeus-store"
    keeper_socket: str = "/run/zeus/keeper.sock"
    keeper_group: int = 7070  # as in deploy/kubernetes/keeper.yaml
    user: int = 1000
    node_selector: Mapping[str, str] = field(default_factory=dict)
    service_account: str = ""
    claims: Mapping[str, str] = field(default_factory=dict)  # name of a PersistentVolumeClaim -> folder in the pod

    def __post_init__(self) -> None:
        self._check_image()
        _check(self.kind in KINDS, "kind", self.kind, f"give one of {', '.join(KINDS)}")
        self._check_kind()
        for name in ("namespace", "service_account"):
            text = getattr(self, name)
            parts = text.split(".") if name == "service_account" else [text]
            good = not text or all(_is_label(part) for part in parts)
            _check(good, name, text, "use small letters, digits and dashes, at most 63 of them")
        if not all(_is_label(part) for part in self.secret.split(".")):
            raise InputError(  # somebody may have given the secret itself
                "--on kubernetes: secret is not the name of a Secret (its value is not shown here). Create a Secret "
                "that holds ZEUS_STORE, and give its name, such as zeus-store."
            )
        _check(self.gpus == int(self.gpus) and self.gpus >= 0, "gpus", self.gpus, "give a whole number of at least 0")
        _check(
            _is_qualified(self.gpu_resource, True), "gpu_resource", self.gpu_resource, "give a name such as amd.com/gpu"
        )
        for name in ("user", "keeper_group"):
            number = getattr(self, name)
            _check(1 <= number <= MOST_ID, name, number, f"give a number from 1 to {MOST_ID}, not root's 0")
        self._check_keeper()
        self._check_nodes()
        self._check_claims()

    @property
    def keeper_folder(self) -> str:
        """The folder of the keeper's socket. It is mounted whole, because a new keeper makes a new socket."""
        return self.keeper_socket.rpartition("/")[0]

    def _check_image(self) -> None:
        if not self.image:
            raise InputError(
                "--on kubernetes: no image is given. Name a container image that holds Zeus and your training script, "
                "with `image` in [kubernetes] or with --image."
            )
        _check(IMAGE.fullmatch(self.image) is not None, "image", self.image, "give a reference such as team/train:1.2")

    def _check_kind(self) -> None:
        if self.kind == "cronjob" and not self.schedule:
            raise InputError('--on kubernetes: a cronjob needs a schedule, such as schedule = "0 3 * * *".')
        if self.kind != "cronjob" and self.schedule:
            raise InputError(f'--on kubernetes: schedule is for kind = "cronjob", and kind is {self.kind!r}.')
        if self.kind != "pytorchjob" and self.workers:
            raise InputError(f'--on kubernetes: workers is for kind = "pytorchjob", and kind is {self.kind!r}.')
        if self.schedule:
            wanted = 'give five fields (minute, hour, day, month, day of week) as in "0 3 * * 1", or one of @hourly, '
            _check(is_schedule(self.schedule), "schedule", self.schedule, wanted + "@daily, @weekly, @monthly, @yearly")
        _check(0 <= self.workers <= MOST_WORKERS, "workers", self.workers, f"give a number from 0 to {MOST_WORKERS}")

    def _check_keeper(self) -> None:
        good = _is_path(self.keeper_socket) and KEEPER_FOLDER.fullmatch(self.keeper_folder) is not None
        why = "give a path in /run/zeus or /run/zeus-NAME, as in /run/zeus/keeper.sock: the pod gets that folder"
        _check(good, "keeper_socket", self.keeper_socket, why)

    def _check_nodes(self) -> None:
        for name, value in self.node_selector.items():
            good = _is_qualified(name) and isinstance(value, str) and SELECTOR_VALUE.fullmatch(value) is not None
            _check(good, "node_selector", {name: value}, 'give labels of nodes, such as {"gpu" = "a100"}')

    def _check_claims(self) -> None:
        taken = [JOB_FOLDER, SHARED_MEMORY, self.keeper_folder]
        for claim, folder in self.claims.items():
            _check(all(map(_is_label, claim.split("."))), "claims", claim, "give the name of a PersistentVolumeClaim")
            _check(_is_path(folder), "claims", {claim: folder}, 'give an absolute folder, as in {"data" = "/data"}')
            clash = next((other for other in taken if _is_in(folder, other) or _is_in(other, folder)), None)
            clash = TEMPORARY if folder == TEMPORARY else clash
            _check(clash is None, "claims", {claim: folder}, f"the pod uses {clash} already; choose another folder")
            taken.append(folder)


def _check(good: bool, name: str, value: Any, wanted: str) -> None:
    if not good:
        raise InputError(f"--on kubernetes: {name} = {value!r}: {wanted}.")


def _is_path(text: Any) -> bool:
    """Whether this is an absolute path that a pod can mount, without `..` and the like."""
    if not isinstance(text, str) or not text.startswith("/"):
        return False
    return not {"", ".", ".."} & set(text.split("/")[1:]) and not set(text) & set(":\0\n")


def _is_in(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def _is_label(text: str) -> bool:
    return len(text) <= 63 and LABEL.fullmatch(text) is not None


def _is_qualified(text: str, with_prefix: bool = False) -> bool:
    """Whether this can name a label or a resource: `name` or `some.domain/name`."""
    prefix, slash, name = text.rpartition("/")
    if SELECTOR_NAME.fullmatch(name) is None or (with_prefix and not slash):
        return False
    return not slash or (len(prefix) <= 253 and all(_is_label(part) for part in prefix.split(".")))


def is_schedule(text: str) -> bool:
    """Whether Kubernetes can read this schedule.

    >>> [is_schedule(one) for one in ("*/15 8-18 * * mon-fri", "@daily", "61 * * * *", "0 3 * *")]
    [True, True, False, False]
    """
    if text in MACROS:
        return True
    fields = text.split()
    return len(fields) == len(CRON) and all(_is_cron_field(*one) for one in zip(fields, CRON, strict=True))


def _is_cron_field(text: str, known: tuple[int, int, Any]) -> bool:
    lowest, highest, names = known

    def number(part: str) -> int:
        return names.index(part.lower()) + lowest if part.lower() in names else int(part) if part.isdecimal() else -1

    for item in text.split(","):
        span, slash, step = item.partition("/")
        if slash and not (step.isdecimal() and int(step) > 0):
            return False
        if span in ("*", "?"):
            continue
        first, dash, last = span.partition("-")
        begin, end = number(first), number(last) if dash else number(first)
        if not lowest <= begin <= end <= highest:
            return False
    return True
