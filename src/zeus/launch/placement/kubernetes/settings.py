"""[kubernetes] of a job file, checked, with its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zeus.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """How the pods of a job are made.

    Each value was checked with the job file (`job_file/placements.py`). Kubernetes checks what only it can know.

    Raises:
        InputError: The image is missing, or a key is for another kind.
    """

    image: str = ""
    namespace: str = ""  # empty: the one that kubectl uses
    kind: str = "job"
    schedule: str = ""  # for a CronJob
    gpus: int = 1  # of each pod
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
        if not self.image:
            raise InputError(
                "--on kubernetes: no image is given. Name a container image that holds Zeus and your training script, "
                "with `image` in [kubernetes] or with --set image=NAME."
            )
        if self.kind == "cronjob" and not self.schedule:
            raise InputError('--on kubernetes: a cronjob needs a schedule, such as schedule = "0 3 * * *".')
        if self.kind != "cronjob" and self.schedule:
            raise InputError(f'--on kubernetes: schedule is for kind = "cronjob", and kind is {self.kind!r}.')
        if self.kind != "pytorchjob" and self.workers:
            raise InputError(f'--on kubernetes: workers is for kind = "pytorchjob", and kind is {self.kind!r}.')

    @property
    def keeper_folder(self) -> str:
        """The folder of the keeper's socket. It is mounted whole, because a new keeper makes a new socket."""
        return self.keeper_socket.rpartition("/")[0]
