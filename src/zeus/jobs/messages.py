"""The messages of an outbox: facts that could not be sent to the store when they happened.

Each message is one JSON object with its version, the address of its store and the facts. Zeus 0.1 kept HTTP requests
in their place, which are still read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote

from zeus.cost import GPU_ONLY
from zeus.errors import InputError
from zeus.job import Gpus, JobSpec, Outcome
from zeus.job.wire import from_json, to_json
from zeus.profile import PowerProfile, ProfileKey

VERSION = 2  # version 1, of Zeus 0.1, has no version field


class NewerMessage(InputError):
    """The message was written by a newer Zeus, which must deliver it."""


class OtherStore(InputError):
    """The message is for another store."""


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """How a trial ended. The store has opened it."""

    job_id: str
    number: int
    outcome: Outcome
    trial_id: str = ""  # tells apart two trials with the same number; empty: not known


@dataclass(frozen=True, slots=True)
class OfflineRun:
    """A whole run that began while the store was unreachable."""

    spec: JobSpec
    gpus: Gpus
    batch_size: int
    key: str  # identifies the run, so that delivering it twice has no effect
    outcome: Outcome
    life: str | None = None  # of the job; empty: the job was never seen; None: not known


@dataclass(frozen=True, slots=True)
class EpochUsed:
    """What an epoch of a batch size uses, evaluation included."""

    job_id: str
    batch_size: int
    gpus: Gpus
    joules: float
    seconds: float
    life: str = ""  # of the job; empty: not known


@dataclass(frozen=True, slots=True)
class ProfileMade:
    """A power profile that was measured."""

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


def message_from_json(data: Any, address: str) -> Message:
    """Read a message for the store of this address.

    Raises:
        NewerMessage: This Zeus does not know the message's version.
        OtherStore: The message is for another store.
        InputError: The message is damaged.
    """
    if not isinstance(data, dict):
        raise InputError(f"expected a message, found {data!r}.")
    try:
        if "version" not in data:
            return _of_version_1(data)
        if data["version"] != VERSION:
            raise NewerMessage(f"it has version {data['version']!r}; this Zeus reads versions up to {VERSION}.")
        if data["to"] != address:
            raise OtherStore(f"it is for {data['to']}, not for {address}.")
        return _of_version_2(data)
    except (LookupError, TypeError, AttributeError) as wrong:
        raise InputError(f"the message is incomplete or damaged: {wrong!r}.") from wrong


def _of_version_2(data: dict[str, Any]) -> Message:
    match data["message"]:
        case "ended":
            outcome = from_json(data["outcome"], Outcome)
            return TrialEnded(str(data["job"]), int(data["trial"]), outcome, str(data.get("trial_id", "")))
        case "ran":
            return _ran(data, from_json(data["spec"], JobSpec))
        case "epoch_used":
            return _epoch_used(str(data["job"]), data)
        case "profile_made":
            return ProfileMade(from_json(data["key"], ProfileKey), from_json(data["profile"], PowerProfile))
        case other:
            raise InputError(f"unknown kind of message: {other!r}.")


def _of_version_1(data: dict[str, Any]) -> Message:
    """Read an HTTP request that Zeus 0.1 kept for a service."""
    found = re.fullmatch(r"/jobs/([^/]+)/(?:trials/(\d+)/)?(tell|reports|profiled|profiles)", data["path"])
    if found is None:
        raise InputError(f"a request to {data['path']!r} is not a message.")
    job_id, body = unquote(found[1]), data["body"]
    match found[3]:
        case "tell":
            return TrialEnded(job_id, int(found[2]), from_json(body, Outcome))
        case "reports":
            return _ran(body, from_json({"kind": "job", "version": 1, **body["spec"]}, JobSpec))
        case "profiled":
            return _epoch_used(job_id, body)
        case _:
            return ProfileMade(ProfileKey(job_id, **data["query"]), from_json(body, PowerProfile))


def _ran(data: dict[str, Any], spec: JobSpec) -> OfflineRun:
    outcome = from_json(data["outcome"], Outcome)
    return OfflineRun(spec, _gpus_from_json(data), int(data["batch_size"]), str(data["key"]), outcome, data.get("life"))


def _epoch_used(job_id: str, data: dict[str, Any]) -> EpochUsed:
    used = float(data["joules"]), float(data["seconds"])
    return EpochUsed(job_id, int(data["batch_size"]), _gpus_from_json(data), *used, str(data.get("life", "")))


def gpus_to_json(gpus: Gpus) -> dict[str, Any]:
    also = {} if gpus.include == GPU_ONLY else {"include": list(gpus.include)}
    return {"gpu_name": gpus.model, "gpus": gpus.count, "max_watts": gpus.max_watts, **also}


def _gpus_from_json(data: dict[str, Any]) -> Gpus:
    include = tuple(data.get("include", GPU_ONLY))
    return Gpus(str(data["gpu_name"]), int(data["gpus"]), float(data["max_watts"]), include)
