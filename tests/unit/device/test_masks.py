"""Which GPUs a mask leaves to this process: laws, and the table of what the CUDA driver was seen to do."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.device.find import machine, mine, torch_uuids
from zeus.device.gpu import GpuSpec, PowerSample
from zeus.device.masks import resolve, slurm_share
from zeus.errors import InputError, NoDevice

UUIDS = [
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
    "GPU-8932aaaa-1111-2222-3333-444455556666",
    "GPU-0d114e5b-246b-93d0-85bd-41067f080713",
]
CARDS = [GpuSpec(uuid, "A40", "nvidia") for uuid in UUIDS]
MIG = "MIG-11c29e81-e611-50b5-b5ef-609c0a0fe58b"


def mig_parent(uuid: str) -> str:
    if uuid == MIG:
        return UUIDS[2]
    raise NoDevice("no such slice")


def seen(mask: str | None) -> list[int]:
    return resolve(mask, CARDS, lambda note: None, mig_parent=mig_parent)


def notes(mask: str | None) -> list[str]:
    written: list[str] = []
    resolve(mask, CARDS, written.append, mig_parent=mig_parent)
    return written


@pytest.mark.parametrize(
    ("mask", "expected", "why"),
    [
        (None, [0, 1, 2], "no mask shows all"),
        ("", [], "an empty mask shows none"),
        ("  ", [], "blanks are empty"),
        ("-1", [], "-1 shows none"),
        ("-1,0", [], "-1 hides what follows"),
        ("2,0", [2, 0], "the mask gives the order"),
        ("0,2,-1,1", [0, 2], "-1 ends the list"),
        (" 0 , 1", [0, 1], "spaces around indices are fine"),
        ("0,", [0], "a trailing comma is fine"),
        (",0", [], "an empty entry ends the list"),
        ("+1", [1], "a sign is fine"),
        ("01", [1], "so are leading zeros"),
        ("1,7,0", [1], "an index out of range ends the list"),
        ("1,7,1", [1], "what follows the end is not looked at, not even a repetition"),
        ("7", [], "out of range from the start shows none"),
        (UUIDS[1], [1], "a UUID"),
        (UUIDS[1].replace("aaaa", "AAAA"), [1], "capital digits"),
        ("GPU-0d", [2], "an abbreviation that is unique"),
        (f"{UUIDS[2]},GPU-8932f", [2, 0], "several, in their order"),
        (f"{UUIDS[1]} ", [1], "a space after it"),
        (f"{UUIDS[1]},0", [1], "an index after a UUID ends the list"),
        (f"1,{UUIDS[0]}", [1], "a UUID after an index ends the list"),
        ("1,GPU-unknown", [1], "and is not even looked up"),
        (MIG, [2], "a MIG slice stands for its card"),
        (f"MIG-{UUIDS[0]}/1/0", [0], "so does the older form"),
        (f"{MIG},MIG-{UUIDS[0]}/1/0", [2], "a process sees one slice"),
    ],
)
def test_a_mask_is_read_as_the_cuda_driver_reads_it(mask: str | None, expected: list[int], why: str) -> None:
    assert seen(mask) == expected, why


@pytest.mark.parametrize(
    ("mask", "fragments"),
    [
        ("0,0", ["twice", "'0'", UUIDS[0]]),
        ("0,00", ["'0' and '00'"]),
        (f"{UUIDS[0]},GPU-8932f", ["twice", "GPU 0"]),
        ("GPU-8932", ["'GPU-8932'", "matches 2 GPUs", UUIDS[0], UUIDS[1]]),
        ("GPU-", ["matches no GPU"]),
        ("GPU-ffff", ["'GPU-ffff'", "matches no GPU", UUIDS[2], "A40"]),
        ("MIG-unknown", ["'MIG-unknown'", "no such slice", "nvidia-smi -L"]),
        ("all", ["'all'", "not understood", "indices"]),
        ('"0"', ["not understood"]),
        ("0x1", ["not understood"]),
        ("0;1", ["'0;1'"]),
        (UUIDS[0].replace("GPU-", "gpu-"), ["not understood"]),
    ],
)
def test_a_mask_that_cannot_be_meant_says_which_entry_and_what_there_is(mask: str, fragments: list[str]) -> None:
    with pytest.raises(InputError) as raised:
        seen(mask)
    for fragment in (f"CUDA_VISIBLE_DEVICES={mask!r}", *fragments):
        assert fragment in str(raised.value)


@pytest.mark.parametrize(
    ("mask", "note"),
    [
        ("1,7,0", "there is no GPU 7 (number of GPUs: 3), so '7,0' is ignored"),
        (f"1,{UUIDS[0]}", "does not mix"),
        (f"{UUIDS[0]}, {UUIDS[1]}", "remove the space"),
        (f"{MIG},MIG-2", "only one MIG slice, so it ignores 'MIG-2'"),
    ],
)
def test_fewer_cards_than_were_meant_come_with_a_note(mask: str, note: str) -> None:
    [only] = notes(mask)
    assert note in only


@pytest.mark.parametrize("mask", [None, "", "-1", "0", "0,", "1,-1,0", UUIDS[0], MIG])
def test_a_mask_that_says_what_it_means_comes_without_a_note(mask: str | None) -> None:
    assert notes(mask) == []


def test_a_full_uuid_wins_over_a_longer_one_that_begins_with_it() -> None:
    cards = [GpuSpec(uuid, "V100", "nvidia") for uuid in ("GPU-v100-10", "GPU-v100-1")]
    assert resolve("GPU-v100-1", cards, lambda note: None) == [1]


@given(st.permutations(range(3)), st.integers(0, 3))
def test_indices_and_uuids_name_the_same_cards(order: list[int], count: int) -> None:
    chosen = order[:count]
    assert seen(",".join(map(str, chosen))) == seen(",".join(UUIDS[index] for index in chosen)) == chosen


@given(st.text(alphabet="0123-+, GPUMIabcdef/", max_size=24))
def test_no_mask_shows_a_card_twice_or_fails_without_saying_why(mask: str) -> None:
    try:
        indices = seen(mask)
    except InputError as error:
        assert repr(mask) in str(error)
    else:
        assert len(set(indices)) == len(indices) <= len(CARDS)


@given(st.lists(st.integers(-2, 5), max_size=6))
def test_whatever_follows_the_first_invalid_index_changes_nothing(indices: list[int]) -> None:
    head = []
    for index in indices:
        if not 0 <= index < len(CARDS):
            break
        head.append(index)
    if len(set(head)) == len(head):
        assert seen(",".join(map(str, indices))) == head


def share(text: str) -> list[int]:
    return slurm_share(text, range(3), variable="SLURM_JOB_GPUS")


def test_slurm_names_places_and_ranges() -> None:
    assert share("0,2") == [0, 2]
    assert share("1-2") == [1, 2]


def test_a_place_beyond_what_slurm_shows_means_that_all_shown_is_mine() -> None:
    assert share("4,5,6") == [0, 1, 2]


def test_a_card_that_has_failed_does_not_make_its_neighbours_mine() -> None:
    assert slurm_share("1,2", [0, 2], variable="SLURM_JOB_GPUS") == [2]


@pytest.mark.parametrize("text", ["gpu:1", "0-", "2-1"])
def test_a_share_that_cannot_be_read_is_not_taken_for_all(text: str) -> None:
    with pytest.raises(InputError, match="CUDA_VISIBLE_DEVICES"):
        share(text)


@dataclass
class Card:
    """A card that can be named, and hardly more."""

    index: int
    spec: GpuSpec
    relative_speed: float = float("nan")
    limits: list[float] = field(default_factory=list)
    hip_index: int | None = None

    def speed(self) -> float:
        return self.relative_speed

    def energy(self) -> float:
        return 5.0

    def power(self) -> float:
        return 50.0

    def samples(self) -> list[PowerSample]:
        return [PowerSample(1.0, 50.0)]

    def limit(self) -> float:
        return self.limits[-1] if self.limits else 300.0

    def set_limit(self, watts: float) -> None:
        self.limits.append(watts)

    def persistence(self) -> bool:
        return True

    def set_persistence(self, on: bool) -> None: ...

    def temperature(self) -> float:
        return 40.0

    def processes(self) -> list[int]:
        return [1]


def cards(*names: str, vendor: str = "nvidia", speeds: tuple[float, ...] = ()) -> list[Card]:
    made = [Card(index, GpuSpec(UUIDS[index], name, vendor)) for index, name in enumerate(names)]
    for card, speed in zip(made, speeds, strict=False):
        card.relative_speed = speed
    return made


def indices(gpus: list[Card], environ: dict[str, str], torch: Any = None) -> list[int]:
    return [gpu.index for gpu in mine(gpus, environ, torch)]


def test_cards_of_one_model_are_counted_in_driver_order() -> None:
    assert indices(cards("A40", "A40", "A40", speeds=(1, 3, 2)), {"CUDA_VISIBLE_DEVICES": "1,0"}) == [1, 0]


def test_cards_of_several_models_are_counted_fastest_first_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    gpus = cards("T1000", "H200", "T1000", speeds=(1, 9, 1))
    with caplog.at_level(logging.WARNING, "zeus.device.find"):
        assert indices(gpus, {"CUDA_VISIBLE_DEVICES": "0,1"}) == [1, 0]
        assert indices(gpus, {}) == [1, 0, 2]
    [record] = caplog.records
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in record.getMessage()


def test_a_card_of_unknown_speed_is_counted_last() -> None:
    assert indices(cards("odd", "slow", "fast", speeds=(float("nan"), 1, 2)), {}) == [2, 1, 0]


def test_pci_order_is_driver_order_whatever_the_models() -> None:
    gpus = cards("slow", "fast", speeds=(1, 9))
    assert indices(gpus, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0,1"}) == [0, 1]


def test_uuids_need_no_order(caplog: pytest.LogCaptureFixture) -> None:
    gpus = cards("left", "right", speeds=(1, 9))
    assert indices(gpus, {"CUDA_VISIBLE_DEVICES": f"{UUIDS[0]},{UUIDS[1]}"}) == [0, 1]
    assert not caplog.records


def torch_with(*uuids: str, started: bool = True) -> Any:
    return SimpleNamespace(
        cuda=SimpleNamespace(
            is_initialized=lambda: started,
            device_count=lambda: len(uuids),
            get_device_properties=lambda index: SimpleNamespace(uuid=uuids[index]),
        )
    )


def test_a_torch_that_has_started_cuda_knows_the_order() -> None:
    gpus = cards("slow", "fast", "other", speeds=(1, 9, 5))
    torch = torch_with(UUIDS[2].removeprefix("GPU-"), UUIDS[0].removeprefix("GPU-"))
    assert indices(gpus, {"CUDA_VISIBLE_DEVICES": "1,2"}, torch) == [2, 0]


def test_a_torch_that_knows_nothing_is_not_believed() -> None:
    assert torch_uuids(None) is None
    assert torch_uuids(torch_with(UUIDS[0], started=False)) is None
    assert torch_uuids(SimpleNamespace()) is None
    strangers = torch_with("ffffffff-0000-0000-0000-000000000000")
    assert indices(cards("one", "two", speeds=(1, 9)), {}, strangers) == [1, 0]


def test_a_slice_is_its_parent_marked_as_shared() -> None:
    [card] = cards("A100")
    [part] = mine([card], {"CUDA_VISIBLE_DEVICES": f"MIG-{UUIDS[0]}/3/0"})
    assert part.spec.shared and not card.spec.shared
    assert part.spec.uuid == card.spec.uuid and part.index == card.index
    part.set_limit(200.0)
    part.set_persistence(True)
    assert part.limit() == card.limit() == 200.0
    assert (part.energy(), part.power(), part.temperature()) == (5.0, 50.0, 40.0)
    assert part.persistence() and part.processes() == [1] and part.samples() == card.samples()
    assert part.relative_speed != 0  # beyond the port


def test_slurm_is_asked_only_where_no_mask_is_set() -> None:
    gpus = cards("A40", "A40", "A40")
    assert indices(gpus, {"SLURM_JOB_GPUS": "1,2"}) == [1, 2]
    assert indices(gpus, {"SLURM_JOB_GPUS": "1,2", "SLURM_STEP_GPUS": "2"}) == [2]
    assert indices(gpus, {"SLURM_JOB_GPUS": "1,2", "CUDA_VISIBLE_DEVICES": "0"}) == [0]
    assert indices(gpus, {"SLURM_JOB_GPUS": ""}) == [0, 1, 2]


@pytest.mark.parametrize(
    ("environ", "expected", "why"),
    [
        ({}, [0, 1, 2], "no mask"),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, [2, 0], "HIP's mask"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1], "HIP reads CUDA's mask too"),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, [0], "but prefers its own"),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "1"}, [1], "an empty one is none"),
        ({"HIP_VISIBLE_DEVICES": ""}, [0, 1, 2], "even alone"),
        ({"HIP_VISIBLE_DEVICES": "-1"}, [], "-1 shows none"),
        ({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, [2], "HIP counts what ROCr left"),
        ({"ROCR_VISIBLE_DEVICES": f"0,{UUIDS[2]}"}, [0, 2], "ROCr mixes indices and UUIDs"),
        ({"ROCR_VISIBLE_DEVICES": "GPU-DEADBEEFDEADBEEF"}, [1], "and knows HIP's ids"),
        ({"ROCR_VISIBLE_DEVICES": ""}, [], "an empty ROCr mask hides all"),
        ({"SLURM_JOB_GPUS": "2"}, [2], "Slurm"),
        ({"SLURM_JOB_GPUS": "2", "ROCR_VISIBLE_DEVICES": "0"}, [0], "a mask beats Slurm"),
    ],
)
def test_amd_masks_stack(environ: dict[str, str], expected: list[int], why: str) -> None:
    gpus = cards("MI300X", "MI300X", "MI300X", vendor="amd")
    gpus[1].spec = replace(gpus[1].spec, aliases=("GPU-deadbeefdeadbeef",))
    assert indices(gpus, environ) == expected, why


def test_hips_own_count_is_used_where_it_is_known() -> None:
    gpus = cards("MI300X", "MI300X", vendor="amd")
    gpus[0].hip_index, gpus[1].hip_index = 1, 0
    assert indices(gpus, {"HIP_VISIBLE_DEVICES": "0"}) == [1]


@pytest.mark.parametrize("wish", ["nvidia", "virtual", "virtual:", "auto:1", "amd:0", "NVML"])
def test_an_unknown_source_of_gpus_is_refused_with_the_known_ones(wish: str) -> None:
    with pytest.raises(InputError, match="auto, nvml, amd, or virtual:NAME") as raised:
        machine({"ZEUS_GPU": wish})
    assert wish in str(raised.value)


def test_no_cards_and_no_indices_is_an_empty_answer_not_an_error() -> None:
    assert mine([], {"CUDA_VISIBLE_DEVICES": "0"}) == []
    assert mine([], {"SLURM_JOB_GPUS": "0"}) == []


def test_a_slurm_job_that_asked_for_no_gpu_sees_none() -> None:
    assert seen("NoDevFiles") == []
