"""[slurm], [ray] and [kubernetes] of a job file: their keys, and `--set KEY=VALUE`, which overrides one for a run."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from zeus.errors import InputError, suggest
from zeus.job.checks import is_number, is_whole
from zeus.toml_reader import Kind, kinds_of

KINDS = ("job", "cronjob", "pytorchjob")
ARRAY = re.compile(r"\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*(%\d+)?")
# A pod gets the whole folder of the socket. Any other folder of a node, such as /run/containerd, may give it the node.
KEEPER_SOCKET = re.compile(r"(/var)?/run/zeus(-[\w-][\w.-]*)?/[\w-][\w.-]*", re.ASCII)
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")  # of an object of Kubernetes
MOST_NAME, MOST_LABEL = 253, 63
MOST_ID = 2**31 - 2  # of a user or a group
SECRET = "kubernetes.secret"  # somebody may give the secret itself, so no message shows it


def _is_line(value: Any) -> bool:
    """Whether it is a text that a batch script can hold: nothing in it begins another line."""
    return isinstance(value, str) and bool(value.strip()) and all(ord(letter) >= 32 for letter in value)


def _is_name(value: Any, most: int = MOST_NAME) -> bool:
    return isinstance(value, str) and len(value) <= most and NAME.fullmatch(value) is not None


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("/") and ".." not in value.split("/")


def _is_id(value: Any) -> bool:
    return is_whole(value, 1) and value <= MOST_ID


def _options(value: Any) -> bool:
    return isinstance(value, list) and all(_is_line(one) and one.startswith("-") for one in value)


def _amounts(value: Any) -> bool:
    return isinstance(value, dict) and all(is_number(one) and one > 0 for one in value.values())


def _labels(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


def _claims(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_name(name) and _is_path(folder) for name, folder in value.items())


def _is_image(value: Any) -> bool:
    return _is_line(value) and not any(map(str.isspace, value))


def _is_array(value: Any) -> bool:
    return isinstance(value, str) and ARRAY.fullmatch(value) is not None


def _is_keeper_socket(value: Any) -> bool:
    return isinstance(value, str) and KEEPER_SOCKET.fullmatch(value) is not None


def _is_namespace(value: Any) -> bool:
    return _is_name(value, MOST_LABEL) and "." not in value


def _is_some(value: Any) -> bool:
    return is_whole(value, 1)


def _is_count(value: Any) -> bool:
    return is_whole(value, 0)


def _is_amount(value: Any) -> bool:
    return is_number(value, 0)


def _is_kind(value: Any) -> bool:
    return value in KINDS


LINE = (_is_line, 'a text in "quotes", on one line')
NAMED = 'a name of small letters, digits and dashes, such as "{}"'
WHOLE_GPUS = "a whole number of GPUs, at least 1: Zeus measures and limits whole GPUs, so it cannot share one"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """[slurm]: options of sbatch."""

    partition: Annotated[str | None, LINE] = None
    gres: Annotated[str | None, LINE] = None
    time: Annotated[str | None, LINE] = None
    constraint: Annotated[str | None, LINE] = None
    array: Annotated[str | None, (_is_array, 'task numbers such as "1-10", "1,3,5" or "1-10%2" (two at a time)')] = None
    nodes: Annotated[int | None, (_is_some, "a whole number of nodes, at least 1")] = None
    options: Annotated[Sequence[str], (_options, 'a list of further options of sbatch, such as ["--qos=long"]')] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySettings:
    """[ray]: where the cluster is, and what a node must have.

    `address` is `http://head:8265`, `head:6379` or `ray://head:10001`. Without one, RAY_ADDRESS counts, or the Ray of
    this machine.
    """

    address: Annotated[str | None, LINE] = None
    gpus: Annotated[int, (_is_some, WHOLE_GPUS)] = 1
    cpus: Annotated[float, (_is_amount, "a number of CPUs, at least 0")] = 1
    resources: Annotated[
        Mapping[str, float], (_amounts, 'a table of numbers above 0, such as {"accelerator_type:A100" = 0.001}')
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """[kubernetes]: how the pods of a job are made. Kubernetes checks what only it can know.

    Raises:
        InputError: The image is missing, or a key is for another kind.
    """

    image: Annotated[str, (_is_image, 'the reference of a container image, such as "team/train:1.2"')] = ""
    namespace: Annotated[str, (_is_namespace, NAMED.format("ml"))] = ""  # empty: the one that kubectl uses
    kind: Annotated[str, (_is_kind, " or ".join(f'"{kind}"' for kind in KINDS))] = "job"
    schedule: Annotated[str, (_is_line, 'the schedule of a cronjob, such as "0 3 * * *" or "@daily"')] = ""
    gpus: Annotated[int, (_is_count, "a whole number of GPUs")] = 1  # of each pod
    gpu_resource: Annotated[str, (_is_line, 'the name of a resource, such as "amd.com/gpu"')] = "nvidia.com/gpu"
    workers: Annotated[int, (_is_count, "a whole number of pods")] = 0  # of a PyTorchJob, beside its master
    secret: Annotated[str, (_is_name, "the name of a Secret that holds ZEUS_STORE, not the secret itself")] = (
        "zeus-store"
    )
    keeper_socket: Annotated[
        str,
        (
            _is_keeper_socket,
            'a path in /run/zeus or /run/zeus-NAME, such as "/run/zeus/keeper.sock": the pod gets that folder',
        ),
    ] = "/run/zeus/keeper.sock"
    keeper_group: Annotated[int, (_is_id, f"the number of a group, from 1 to {MOST_ID}, not root's 0")] = (
        7070  # as in deploy/kubernetes/keeper.yaml
    )
    user: Annotated[int, (_is_id, f"the number of a user, from 1 to {MOST_ID}, not root's 0")] = 1000
    node_selector: Annotated[Mapping[str, str], (_labels, 'a table of labels of nodes, such as {"gpu" = "a100"}')] = (
        field(default_factory=dict)
    )
    service_account: Annotated[str, (_is_name, NAMED.format("trainer"))] = ""
    claims: Annotated[  # name of a PersistentVolumeClaim -> folder in the pod
        Mapping[str, str], (_claims, 'a table of claims and absolute folders, such as {"data" = "/data"}')
    ] = field(default_factory=dict)

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


PLACEMENTS: Mapping[str, Mapping[str, Kind]] = {
    "slurm": kinds_of(SlurmSettings),
    "ray": kinds_of(RaySettings),
    "kubernetes": kinds_of(KubernetesSettings),
}


def override(place: str, table: Mapping[str, Any], given: Iterable[str]) -> dict[str, Any]:
    """The settings of a place: its table in the job file, and over it what `--set` gives.

    A value is that of a job file, but needs no quotes. `KEY.NAME=VALUE` sets one entry of a key that is a table.

    >>> override("slurm", {"partition": "long"}, ["partition=gpu", "slurm.time=10", "nodes=2"])
    {'partition': 'gpu', 'time': '10', 'nodes': 2}
    >>> override("kubernetes", {"node_selector": {"zone": "b"}}, ["node_selector.gpu=a100"])
    {'node_selector': {'zone': 'b', 'gpu': 'a100'}}

    Raises:
        InputError: A key is not one of this place, or a value is wrong.
    """
    settings = dict(table)
    for text in given:
        path, equals, value = text.partition("=")
        if not equals:
            raise InputError(
                f"--set {text}: give KEY=VALUE, such as --set {place}.{next(iter(PLACEMENTS[place]))}=VALUE."
            )
        key, _, entry = _key(place, path).partition(".")
        settings[key] = _value(f"{place}.{key}", settings.get(key), entry, value)
    return settings


def _key(place: str, path: str) -> str:
    """The key within the table of the place, perhaps with an entry: `slurm.partition` and `partition` are the same."""
    first, _, rest = path.partition(".")
    known = PLACEMENTS[place]
    if first in PLACEMENTS:
        if first != place:
            raise InputError(f"--set {path}: this run is --on {place}, so only keys of [{place}] count.")
        path = rest
    name, dot, _ = path.partition(".")
    if name not in known:
        others = [other for other, keys in PLACEMENTS.items() if name in keys]
        hint = f"It is a key of [{others[0]}]." if others else suggest(name, known)
        raise InputError(f"--set {path}: {name} is not known in [{place}]. {hint}")
    if dot and not known[name][0]({}):
        raise InputError(f"--set {path}: {name} of [{place}] is not a table. Leave out what follows {name}.")
    return path


def _value(path: str, before: Any, entry: str, text: str) -> Any:
    """The first reading of a text that its key accepts: as in a job file, or as the text itself."""
    place, _, key = path.partition(".")
    is_right, wanted = PLACEMENTS[place][key]
    for value in _readings(text):
        whole = {**(before or {}), entry: value} if entry else value
        if is_right(whole):
            return whole
    shown = path if path == SECRET else f"{path}{'.' if entry else ''}{entry}={text}"
    raise InputError(f"--set {shown}: give {wanted}.")


def _readings(text: str) -> list[Any]:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except ValueError:
        return [text]
    if len(parsed) > 1:  # a line break began another key
        return [text]
    value = parsed["value"]
    return [value] if isinstance(value, str) else [value, text]
