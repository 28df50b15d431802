"""What waits in an outbox: facts that a store did not hear when they came about. Each says enough to be told later.

Each is one JSON object that says its version, the address of the store that it is for, and what it tells. Zeus 0.1
wrote requests to a service in their place, which are read as what they meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote

from zeus.errors import InputError
from zeus.job import Gpus, JobSpec, Outcome
from zeus.job.wire import from_json, to_json
from zeus.profile import PowerProfile, ProfileKey

VERSION = 2  # 1, which does not say so, is that of Zeus 0.1


class NewerMessage(InputError):
    """A message that a newer Zeus wrote: it is left for that one."""


class OtherStore(InputError):
    """A message for another store than the one at hand."""


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """How a trial ended that the store has opened."""

    job_id: str
    number: int
    outcome: Outcome
    trial_id: str = ""  # of two trials with one number, which is meant; empty: not known


@dataclass(frozen=True, slots=True)
class OfflineRun:
    """A run that began while the store was away, from its beginning to its end."""

    spec: JobSpec
    gpus: Gpus
    batch_size: int
    key: str  # the same run told twice is known by it
    outcome: Outcome
    life: str | None = None  # of the job that it was for; empty: the job was never seen; None: not known


@dataclass(frozen=True, slots=True)
class EpochUsed:
    """What an epoch of a batch size uses."""

    job_id: str
    batch_size: int
    gpus: Gpus
    joules: float
    seconds: float
    life: str = ""  # of the job; empty: not known


@dataclass(frozen=True, slots=True)
class ProfileMade:
    """A power profile."""

    key: ProfileKey
    profile: PowerProfile


Message: TypeAlias = TrialEnded | OfflineRun | EpochUsed | ProfileMade
_NAMES: dict[type[Any], str] = {
    TrialEnded: "ended",
    OfflineRun: "ran",
    EpochUsed: "epoch_used",
    ProfileMade: "profile_made",
}


def message_to_json(message: Message, address: str) -> dict[str, Any]:
    """A dict that JSON can hold."""
    return {"version": VERSION, "to": address, "message": _NAMES[type(message)], **_body(message)}


def _body(message: Message) -> dict[str, Any]:
    match message:
        case TrialEnded():
            which = {"job": message.job_id, "trial": message.number, "trial_id": message.trial_id}
            return {**which, "outcome": to_json(message.outcome)}
        case OfflineRun():
            return {
                "spec": to_json(message.spec),
                **gpus_to_json(message.gpus),
                "batch_size": message.batch_size,
                "key": message.key,
                "outcome": to_json(message.outcome),
                "life": message.life,
            }
        case EpochUsed():
            used = {"joules": message.joules, "seconds": message.seconds, "life": message.life}
            return {"job": message.job_id, "batch_size": message.batch_size, **gpus_to_json(message.gpus), **used}
        case ProfileMade():
            return {"key": to_json(message.key), "profile": to_json(message.profile)}


def message_from_json(said: Any, address: str) -> Message:
    """The message that a dict holds, if it is for the store of this address.

    Raises:
        NewerMessage: Of a version that this Zeus does not know.
        OtherStore: For another store.
        InputError: Not sound.
    """
    if not isinstance(said, dict):
        raise InputError(f"expected a message, found {said!r}.")
    try:
        if "version" not in said:
            return _of_version_1(said)
        if said["version"] != VERSION:
            raise NewerMessage(f"it is of version {said['version']!r}; this Zeus reads versions up to {VERSION}.")
        if said["to"] != address:
            raise OtherStore(f"it is for {said['to']}, not for {address}.")
        return _of_version_2(said)
    except (LookupError, TypeError, AttributeError) as wrong:
        raise InputError(f"a message that is not whole: {wrong!r}.") from wrong


def _of_version_2(said: dict[str, Any]) -> Message:
    match said["message"]:
        case "ended":
            outcome = from_json(said["outcome"], Outcome)
            return TrialEnded(str(said["job"]), int(said["trial"]), outcome, str(said.get("trial_id", "")))
        case "ran":
            return _ran(said, from_json(said["spec"], JobSpec))
        case "epoch_used":
            return _epoch_used(str(said["job"]), said)
        case "profile_made":
            return ProfileMade(from_json(said["key"], ProfileKey), from_json(said["profile"], PowerProfile))
        case other:
            raise InputError(f"a message of kind {other!r} is not known.")


def _of_version_1(said: dict[str, Any]) -> Message:
    """A request to a service, as Zeus 0.1 kept it."""
    found = re.fullmatch(r"/jobs/([^/]+)/(?:trials/(\d+)/)?(tell|reports|profiled|profiles)", said["path"])
    if found is None:
        raise InputError(f"a request for {said['path']!r} is no message.")
    job_id, body = unquote(found[1]), said["body"]
    match found[3]:
        case "tell":
            return TrialEnded(job_id, int(found[2]), from_json(body, Outcome))
        case "reports":
            return _ran(body, from_json({"kind": "job", "version": 1, **body["spec"]}, JobSpec))
        case "profiled":
            return _epoch_used(job_id, body)
        case _:
            return ProfileMade(ProfileKey(job_id, **said["query"]), from_json(body, PowerProfile))


def _ran(said: dict[str, Any], spec: JobSpec) -> OfflineRun:
    outcome = from_json(said["outcome"], Outcome)
    return OfflineRun(spec, _gpus_from_json(said), int(said["batch_size"]), str(said["key"]), outcome, said.get("life"))


def _epoch_used(job_id: str, said: dict[str, Any]) -> EpochUsed:
    used = float(said["joules"]), float(said["seconds"])
    return EpochUsed(job_id, int(said["batch_size"]), _gpus_from_json(said), *used, str(said.get("life", "")))


def gpus_to_json(gpus: Gpus) -> dict[str, Any]:
    """As the service has it, too."""
    return {"gpu_name": gpus.model, "gpus": gpus.count, "max_watts": gpus.max_watts}


def _gpus_from_json(said: dict[str, Any]) -> Gpus:
    return Gpus(str(said["gpu_name"]), int(said["gpus"]), float(said["max_watts"]))
