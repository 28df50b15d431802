"""Laws of the keeper's pure parts: the rule for putting back, the protocol, the notes."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus import errors
from zeus.device.keeper import protocol
from zeus.device.keeper.keeper import Keeper
from zeus.device.keeper.notes import TOLERANCE_WATTS, Note, Notes
from zeus.device.keeper.policy import KeeperPolicy, Peer
from zeus.device.keeper.server import KeeperConnection
from zeus.device.virtual import VirtualMachine
from zeus.errors import ZeusError

watts = st.floats(min_value=50, max_value=1000)
milliwatts = st.integers(50_000, 1_000_000)
texts = st.text(min_size=1, max_size=30)


@given(watts, st.lists(watts, max_size=3), watts, st.floats(-TOLERANCE_WATTS / 2, TOLERANCE_WATTS / 2))
def test_what_we_found_or_set_is_never_taken_for_somebody_elses_however_the_driver_rounds(
    found: float, ours: list[float], setting: float, rounding: float
) -> None:
    note = Note("GPU-1", "boot", found, ours_watts=tuple(ours), setting_watts=setting)
    assert not any(note.is_foreign(w) for w in (found, *ours, setting + rounding))


@given(milliwatts, st.lists(milliwatts, max_size=3), st.none() | milliwatts, milliwatts)
def test_anything_that_differs_by_a_milliwatt_from_all_of_them_is_somebody_elses(
    found: int, ours: list[int], setting: int | None, now: int
) -> None:
    note = Note("GPU-1", "boot", found / 1e3, ours_watts=tuple(w / 1e3 for w in ours))
    assert note.is_foreign(now / 1e3) == (now not in (found, *ours))
    if setting is not None:
        note = replace(note, setting_watts=setting / 1e3)
        assert note.is_foreign(now / 1e3) == (now not in (found, *ours) and abs(now - setting) > 1000)


@given(
    texts, texts, watts, st.none() | st.booleans(), st.lists(watts, max_size=3), st.booleans(), st.none() | watts
)  # fmt: skip
def test_a_note_reads_as_it_was_written(
    uuid: str,
    boot: str,
    found: float,
    persistence: bool | None,
    ours: list[float],
    switched: bool,
    setting: float | None,
) -> None:
    note = Note(uuid, boot, found, persistence, tuple(ours), switched, setting_watts=setting)
    assert Note.from_json(note.to_json()) == note


@given(st.text(max_size=200))
def test_any_other_text_is_no_note(text: str) -> None:
    with pytest.raises(ValueError):
        Note.from_json(text)


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeeperConnection]:
    """The keeper's end of a connection that has said hello."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        keeper = Keeper(VirtualMachine.in_memory("v100").gpus.copy, Notes(tmp_path_factory.mktemp("notes")))
        greeted = KeeperConnection(theirs, Peer.here(), keeper, "system", -1, KeeperPolicy())
        assert json.loads(greeted.answer(b'{"op": "hello", "zeus": 1}'))["ok"]
        yield greeted


def answer_to(line: bytes, connection: KeeperConnection) -> str:
    """The kind of error in the answer. Empty if there was none."""
    return str(json.loads(connection.answer(line)).get("error", ""))


@given(st.binary(max_size=300))
def test_any_bytes_are_an_input_error(connection: KeeperConnection, line: bytes) -> None:
    assert answer_to(line, connection) == "InputError"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(st.sampled_from(["hello", "lease", "set", "release", "status", "?"]), json_values, json_values, json_values)
def test_fields_of_any_shape_are_done_or_an_error_of_ours(
    connection: KeeperConnection, op: str, a: object, b: object, c: object
) -> None:
    line = json.dumps({"op": op, "zeus": a, "gpus": b, "watts": c}).encode()
    assert answer_to(line, connection) in ("", "InputError", "NoDevice")
    connection.answer(b'{"op": "release"}')


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 60000,
        b"x" * 65536,
        b'{"op":"set","watts":{"g":' + b"9" * 4000 + b"}}",
        b'{"op":"set","watts":{"g":1e999}}',
        b'{"op":"set","watts":{"g":true}}',
        b'{"op":"set","watts":{"g":NaN}}',
    ],
)
def test_hostile_numbers_and_depths_are_input_errors(connection: KeeperConnection, line: bytes) -> None:
    assert answer_to(line, connection) == "InputError"


ALL_ERRORS = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, ZeusError)]


@pytest.mark.parametrize("kind", ALL_ERRORS)
def test_every_error_arrives_as_what_it_was(kind: type[ZeusError]) -> None:
    with pytest.raises(kind, match="because") as caught:
        protocol.unpack(protocol.failure(kind("because")).strip())
    assert type(caught.value) is kind


def test_an_error_of_no_known_name_is_still_an_error_of_ours() -> None:
    with pytest.raises(ZeusError):
        protocol.unpack(b'{"ok": false, "error": "os", "message": "?"}')
