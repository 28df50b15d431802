"""Snapshots of policy states, so that a process need not fold the whole past of a job that it does not know yet.

A snapshot is a cache beside the facts. It is used only for the same revision of the job, the same policy and the same
version of Zeus, and only while its point is still part of the job's history. It may be thrown away at any time.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any
from zlib import crc32

import msgspec
import numpy as np

from zeus import __version__
from zeus.errors import InputError
from zeus.store.api import Job, LogPoint, Snapshot

SUM_BYTES = 4  # before the state: its CRC-32


def take(job: Job, point: LogPoint, state: Any) -> Snapshot:
    """A snapshot of the state of this job's policy at this point of its history."""
    body = msgspec.msgpack.encode(state, enc_hook=_to_list)
    return Snapshot(_stamp(job, type(state)), point, crc32(body).to_bytes(SUM_BYTES) + body)


def read(snapshot: Snapshot, job: Job, start: Any) -> Any:
    """The state in a snapshot, or None if it is not of this job as it is now, or is damaged.

    Args:
        snapshot: As it was stored.
        job: The job.
        start: The state that its policy starts with, which has the same type.
    """
    body = snapshot.state[SUM_BYTES:]
    if snapshot.stamp != _stamp(job, type(start)) or crc32(body).to_bytes(SUM_BYTES) != snapshot.state[:SUM_BYTES]:
        return None
    try:
        return msgspec.msgpack.decode(body, type=type(start), dec_hook=_from_list)
    except (msgspec.MsgspecError, InputError):  # the policy's state has other fields now
        return None


def _stamp(job: Job, kind: type[Any]) -> str:
    """What a state depends on besides the events."""
    facts = blake2b(msgspec.json.encode(job), digest_size=12).hexdigest()
    return f"{__version__}:{job.policy_version}:{kind.__qualname__}:{facts}"


def _to_list(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise NotImplementedError(type(value))


def _from_list(kind: Any, value: Any) -> Any:
    if getattr(kind, "__origin__", kind) is np.ndarray:
        return np.array(value)
    raise NotImplementedError(kind)
