"""Finds this process's GPUs: the machine's cards, reduced by the masks (CUDA, HIP, Slurm)."""

from __future__ import annotations

import copy
import functools
import logging
import math
import operator
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from zeus import settings
from zeus.device.gpu import TO_SEE_GPUS, Gpu
from zeus.device.masks import no_mig, resolve, slurm_share
from zeus.errors import DeviceError, InputError, NoDevice

log = logging.getLogger(__name__)
_warn_once = functools.cache(log.warning)  # of each text

SLURM = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")  # step first: it has only part of its job's GPUs
CUDA = ("CUDA_VISIBLE_DEVICES",)
AMD = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def find(gpu_indices: Sequence[int] | None = None, environ: Mapping[str, str] | None = None) -> dict[int, Gpu]:
    """This process's GPUs, keyed by torch's index (the position in the mask), in the order asked for.

    Args:
        gpu_indices: The indices wanted. None means all.
        environ: Environment to read the masks from. None means the real one.

    Raises:
        InputError: An index is not an integer, is given twice or is outside the mask, or the mask cannot be read.
    """
    torch = sys.modules.get("torch") if environ is None else None  # torch knows only the real environment
    environ = settings.HERE if environ is None else environ
    gpus = dict(enumerate(mine(machine(environ), environ, torch)))
    if gpu_indices is None:
        return gpus
    wanted = _indices(gpu_indices)
    for index in wanted:
        if not gpus:
            raise InputError(f"gpu_indices={wanted}: {no_gpu(environ)}")
        if index not in gpus:
            there = "GPU 0 is" if len(gpus) == 1 else f"GPUs 0 to {len(gpus) - 1} are"
            raise InputError(
                f"gpu_indices={wanted}: there is no GPU {index}: only {there} visible ({_masks(environ)}). Give "
                "indices as torch counts them."
            )
    return {index: gpus[index] for index in wanted}


def no_gpu(environ: Mapping[str, str] | None = None) -> str:
    """What to say and to advise if `find` returns nothing: every command and message uses this text.

    >>> no_gpu({"CUDA_VISIBLE_DEVICES": ""}).partition(". ")[0]
    "no GPU is visible (CUDA_VISIBLE_DEVICES='')"
    """
    return f"no GPU is visible ({_masks(settings.HERE if environ is None else environ)}). {TO_SEE_GPUS}"


def why_none() -> list[str]:
    """What each driver says if it finds no card, without advice."""
    reasons = []
    for source in (_nvidia, _amd):
        try:
            source()
        except DeviceError as why:
            reasons.append(str(why).replace(TO_SEE_GPUS, "").strip())
    return reasons


def machine(environ: Mapping[str, str] | None = None) -> list[Gpu]:
    """Every card of this machine, in the driver's order. ZEUS_GPU says where to look; `auto` may find none.

    Raises:
        NoDevice: ZEUS_GPU asks for NVIDIA or AMD cards and there are none.
        InputError: ZEUS_GPU has another value.
    """
    wanted = settings.gpu(settings.HERE if environ is None else environ)
    match wanted.partition(":"):
        case ("auto", "", ""):
            for source in (_nvidia, _amd):
                try:
                    if gpus := source():
                        return gpus
                except NoDevice as why:
                    log.debug("%s", why)
            return []
        case ("nvml", "", ""):
            return _some(_nvidia(), "nvml", "NVML works, but lists no card")
        case ("amd", "", ""):
            return _some(_amd(), "amd", "amdsmi works, but lists no card")
        case ("virtual", ":", spec) if spec:
            from zeus.device.virtual.machine import virtual_gpus

            return list(virtual_gpus(spec))
        case _:
            raise InputError(
                f"ZEUS_GPU={wanted!r} is not understood. Give auto, nvml, amd, or virtual:NAME such as virtual:v100 or "
                "virtual:a40x4?clock=virtual."
            )


def mine(gpus: Sequence[Gpu], environ: Mapping[str, str], torch: Any = None) -> list[Gpu]:
    """The cards that the masks leave to this process, in the order in which torch counts them.

    `torch` is the module if it is loaded. It is asked for CUDA's order where Zeus cannot work it out.
    """
    amd = bool(gpus) and all(gpu.spec.vendor == "amd" for gpu in gpus)
    masked = any(name in environ for name in (AMD if amd else CUDA))
    slurm = next((name for name in SLURM if environ.get(name, "").strip()), None)
    if slurm and not masked:
        shown = {gpu.index: gpu for gpu in gpus}
        return [shown[index] for index in slurm_share(environ[slurm], list(shown), variable=slurm)]
    return _amd_visible(gpus, environ) if amd else _cuda_visible(gpus, environ, torch)


def _cuda_visible(gpus: Sequence[Gpu], environ: Mapping[str, str], torch: Any) -> list[Gpu]:
    mask = environ.get(CUDA[0])
    counted = mask is None or mask.strip().lstrip("+")[:1].isdigit()  # for UUIDs the order does not matter
    one_model = len({gpu.spec.name for gpu in gpus}) <= 1
    if counted and not one_model and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        by_uuid = {_bare(gpu.spec.uuid): gpu for gpu in gpus}
        uuids = torch_uuids(torch)
        if uuids is not None and all(uuid in by_uuid for uuid in uuids):
            return [by_uuid[uuid] for uuid in uuids]
        gpus = sorted(gpus, key=_slowness)
        _warn_once(
            f"GPUs of several models ({', '.join(gpu.spec.name for gpu in gpus)}): CUDA counts the fastest first, by a "
            "rule that Zeus can only guess. Set CUDA_DEVICE_ORDER=PCI_BUS_ID so that both count them alike."
        )
    nvidia = any(gpu.spec.vendor == "nvidia" for gpu in gpus)
    chosen = resolve(mask, [gpu.spec for gpu in gpus], _warn_once, mig_parent=_mig_parent if nvidia else no_mig)
    is_slice = mask is not None and mask.strip().startswith("MIG-")
    return [_slice_of(gpus[i]) if is_slice else gpus[i] for i in chosen]


def _amd_visible(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> list[Gpu]:
    """ROCr hides cards first, then HIP counts the rest. HIP treats an empty mask as unset; ROCr does not."""
    cards = sorted(gpus, key=_hip_index)
    above = next((name for name in AMD[1:] if environ.get(name)), AMD[1])
    for name, mask in ((AMD[0], environ.get(AMD[0])), (above, environ.get(above) or None)):
        cards = [cards[i] for i in resolve(mask, [c.spec for c in cards], _warn_once, variable=name, mixed=True)]
    return cards


def _slice_of(card: Gpu) -> Gpu:
    """The card as one of its slices (MIG). Only the whole card has sensors and a limit, so all else stays the same."""
    part: Any = copy.copy(card)
    part.spec = replace(card.spec, shared=True)
    return cast(Gpu, part)


def torch_uuids(torch: Any) -> list[str] | None:
    """Uuids of torch's CUDA devices without "GPU-", in torch's order. None if torch has not started CUDA."""
    try:
        if torch is None or not torch.cuda.is_initialized():
            return None
        count = torch.cuda.device_count()
        return [_bare(str(torch.cuda.get_device_properties(index).uuid)) for index in range(count)]
    except (AttributeError, RuntimeError):  # an old or half-imported torch, or a CUDA that fails
        return None


def _nvidia() -> list[Gpu]:
    from zeus.device.nvml import nvml_gpus

    gpus: list[Gpu] = []
    for gpu in nvml_gpus():
        try:
            _ = gpu.spec  # probe now, so that one broken card does not stop the others
            gpus.append(gpu)
        except DeviceError as gone:
            _warn_once(f"{gpu!r} is skipped. {gone}")
    return gpus


def _amd() -> list[Gpu]:
    from zeus.device.amd import amd_gpus

    return list(amd_gpus())


def _mig_parent(uuid: str) -> str:
    from zeus.device.nvml import mig_parent

    return mig_parent(uuid)


def _some(gpus: list[Gpu], wanted: str, why: str) -> list[Gpu]:
    if not gpus:
        raise NoDevice(f"ZEUS_GPU={wanted}: {why}. {TO_SEE_GPUS}")
    return gpus


def _slowness(gpu: Gpu) -> float:
    speed = float(getattr(gpu, "speed", lambda: math.nan)())
    return math.inf if math.isnan(speed) else -speed


def _hip_index(gpu: Gpu) -> int:
    index = getattr(gpu, "hip_index", None)
    return gpu.index if index is None else int(index)


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-")


def _indices(given: Sequence[int]) -> list[int]:
    wanted: list[int] = []
    try:
        for index in given:
            if isinstance(index, bool):
                raise TypeError
            wanted.append(operator.index(index))  # accepts numpy's integers too
    except TypeError:
        raise InputError(f"gpu_indices={given!r}: give a list of integers such as [0, 1], or None for all.") from None
    twice = sorted({index for index in wanted if wanted.count(index) > 1})
    if twice:
        raise InputError(f"gpu_indices={wanted}: {twice} given more than once. Name each GPU once.")
    return wanted


def _masks(environ: Mapping[str, str]) -> str:
    names = dict.fromkeys((*CUDA, *AMD, *SLURM))
    return ", ".join(f"{name}={environ[name]!r}" for name in names if name in environ) or "no mask is set"
