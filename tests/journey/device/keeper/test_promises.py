"""What the keeper promises of each lent GPU, on cards in memory."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from support.disks import fill, tiny_disk
from zeus.device.find import machine
from zeus.device.keeper import Observing, lend, status
from zeus.device.keeper.keeper import Keeper
from zeus.device.keeper.loan import Loan, Restoration
from zeus.device.keeper.notes import Note, Notes
from zeus.device.virtual import VirtualGpu, VirtualMachine
from zeus.errors import DeviceError, InputError, LeaseRefused, NoDevice, NotPermitted, ReadOnly


class Moody(VirtualGpu):
    """A card whose setters fail as often as told, before or after taking effect, that can round and can be capped."""

    failures = 0
    late = False
    step_watts = 0.0
    error: type[DeviceError] = DeviceError
    capped: tuple[int, float] | None = None  # after so many looks at the limit, and just before the next

    def limit(self) -> float:
        if self.capped is not None:
            looks, watts = self.capped
            self.capped = (looks - 1, watts) if looks else None
            if not looks:
                super().set_limit(watts)
        return super().limit()

    def set_limit(self, watts: float) -> None:
        fails, self.failures = self.failures > 0, max(0, self.failures - 1)
        if fails and not self.late:
            raise self.error("moody")
        super().set_limit(watts // self.step_watts * self.step_watts if self.step_watts else watts)
        if fails:
            raise self.error("moody, and late")


class Bench:
    """A machine of moody cards, a keeper, and as many others as are asked for that share its notes."""

    def __init__(self, folder: Path) -> None:
        self.machine = VirtualMachine.in_memory("v100", 2)
        cards = [Moody(self.machine, g.index, g.spec.uuid) for g in self.machine.gpus]
        self.gpus = sorted(cards, key=lambda g: g.spec.uuid)
        self.uuids = [g.spec.uuid for g in self.gpus]
        self.notes = Notes(folder)
        self.keeper = self.another()

    def another(self) -> Keeper:
        return Keeper(lambda: self.gpus, self.notes, pause=lambda seconds: None)

    def limits(self) -> list[float]:
        return [g.limit() for g in self.gpus]

    def killed(self, loan: Loan) -> None:
        """What the death of its keeper does to a loan: the kernel drops the locks, and the notes stay as they are."""
        for one in loan._lent.values():
            one.lock.release()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_what_was_found_comes_back(bench: Bench) -> None:
    bench.gpus[1].set_limit(200)
    loan = bench.keeper.lend(bench.uuids)
    assert loan.found == dict(zip(bench.uuids, [250, 200], strict=True))
    assert loan.set(dict.fromkeys(bench.uuids, 150)) == dict.fromkeys(bench.uuids, 150)
    assert bench.limits() == [150, 150]
    assert {r.ending for r in loan.restore()} == {Restoration.RESTORED}
    assert bench.limits() == [250, 200]
    assert bench.notes.uuids() == []
    assert loan.restore() == []


def test_persistence_is_on_only_while_a_limit_is_set(bench: Bench) -> None:
    bench.gpus[1].set_persistence(True)
    loan = bench.keeper.lend(bench.uuids)
    assert [g.persistence() for g in bench.gpus] == [False, True]
    loan.set(dict.fromkeys(bench.uuids, 150))
    assert [g.persistence() for g in bench.gpus] == [True, True]
    loan.restore()
    assert [g.persistence() for g in bench.gpus] == [False, True]


@pytest.mark.parametrize("watts", [99, 251, float("nan"), float("inf"), -1])
def test_a_limit_above_the_one_found_or_outside_the_range_changes_nothing(bench: Bench, watts: float) -> None:
    loan = bench.keeper.lend(bench.uuids)
    with pytest.raises(InputError):
        loan.set({bench.uuids[0]: 150, bench.uuids[1]: watts})
    assert bench.limits() == [250, 250]


def test_never_above_the_one_found_even_where_the_card_could(bench: Bench) -> None:
    bench.gpus[0].set_limit(180)
    loan = bench.keeper.lend(bench.uuids[:1])
    with pytest.raises(InputError, match="180 W found"):
        loan.set({bench.uuids[0]: 181})
    loan.set({bench.uuids[0]: 180})


def test_a_lease_is_exclusive_and_says_who_holds_it(bench: Bench) -> None:
    loan = bench.keeper.lend(bench.uuids[:1], to="process 4711")
    with pytest.raises(LeaseRefused, match="process 4711"):
        bench.another().lend(bench.uuids[:1], patience=0)
    loan.restore()
    bench.another().lend(bench.uuids[:1], patience=0).restore()


def test_several_are_lent_all_or_none(bench: Bench) -> None:
    held = bench.keeper.lend(bench.uuids[1:])
    with pytest.raises(LeaseRefused):
        bench.another().lend(bench.uuids, patience=0)
    assert bench.notes.uuids() == bench.uuids[1:]
    bench.another().lend(bench.uuids[:1], patience=0).restore()
    held.restore()


@pytest.mark.parametrize("late", [False, True])
def test_a_set_that_fails_half_way_is_undone(bench: Bench, late: bool) -> None:
    loan = bench.keeper.lend(bench.uuids)
    loan.set(dict.fromkeys(bench.uuids, 200))
    bench.gpus[1].failures, bench.gpus[1].late = 1, late
    with pytest.raises(DeviceError, match="moody"):
        loan.set(dict.fromkeys(bench.uuids, 150))
    assert bench.limits() == [200, 200]
    loan.restore()
    assert bench.limits() == [250, 250]


def test_a_card_that_fails_a_few_times_is_still_put_back(bench: Bench) -> None:
    loan = bench.keeper.lend(bench.uuids)
    loan.set(dict.fromkeys(bench.uuids, 150))
    bench.gpus[0].failures = 3
    assert {r.ending for r in loan.restore()} == {Restoration.RESTORED}
    assert bench.limits() == [250, 250]


def test_a_lost_card_keeps_its_note_and_holds_up_nobody(bench: Bench) -> None:
    loan = bench.keeper.lend(bench.uuids)
    loan.set(dict.fromkeys(bench.uuids, 150))
    bench.machine.lose(bench.gpus[0].index)
    endings = {r.uuid: r.ending for r in loan.restore()}
    assert endings == {bench.uuids[0]: Restoration.FAILED, bench.uuids[1]: Restoration.RESTORED}
    assert bench.gpus[1].limit() == 250
    assert [r.ending for r in bench.another().recover()] == [Restoration.FAILED]
    bench.machine.change_card(bench.gpus[0].index, lambda card: replace(card, lost=False))
    assert [r.ending for r in bench.another().recover()] == [Restoration.RESTORED]
    assert bench.limits() == [250, 250]


def test_somebody_elses_limit_is_left_alone(bench: Bench) -> None:
    loan = bench.keeper.lend(bench.uuids[:1])
    loan.set({bench.uuids[0]: 150})
    bench.gpus[0].set_limit(220)
    assert [r.ending for r in loan.restore()] == [Restoration.LEFT]
    assert bench.gpus[0].limit() == 220
    assert bench.notes.uuids() == []


def test_somebody_elses_limit_is_what_comes_back_when_we_set_another_after_it(bench: Bench) -> None:
    loan = bench.keeper.lend(bench.uuids[:1])
    loan.set({bench.uuids[0]: 150})
    bench.gpus[0].set_limit(200)
    with pytest.raises(InputError):
        loan.set({bench.uuids[0]: 225})
    loan.set({bench.uuids[0]: 175})
    assert loan.found == {bench.uuids[0]: 200}
    loan.restore()
    assert bench.gpus[0].limit() == 200


def test_a_cap_that_equals_an_earlier_limit_of_ours_outlives_a_crash(bench: Bench) -> None:
    loan = bench.keeper.lend(bench.uuids[:1])
    loan.set({bench.uuids[0]: 200})
    loan.set({bench.uuids[0]: 150})
    bench.gpus[0].set_limit(200)
    bench.killed(loan)
    assert [r.ending for r in bench.another().recover()] == [Restoration.LEFT]
    assert bench.gpus[0].limit() == 200


@pytest.mark.parametrize("watts", [249.5, 149.5, 150.001])
def test_a_cap_next_to_the_limit_found_or_to_ours_is_still_somebody_elses(bench: Bench, watts: float) -> None:
    loan = bench.keeper.lend(bench.uuids[:1])
    loan.set({bench.uuids[0]: 150})
    bench.gpus[0].set_limit(watts)
    assert [r.ending for r in loan.restore()] == [Restoration.LEFT]
    assert bench.gpus[0].limit() == watts


@pytest.mark.parametrize("look", ["before the note", "before the set", "after the set"])
@pytest.mark.parametrize("watts", [125, 225])
def test_a_cap_that_comes_while_a_limit_is_being_set_wins(bench: Bench, look: str, watts: float) -> None:
    loan = bench.keeper.lend(bench.uuids[:1])
    loan.set({bench.uuids[0]: 150})
    bench.gpus[0].capped = (["before the note", "before the set", "after the set"].index(look), 180)
    with pytest.raises(InputError, match="180 W") if watts > 180 else contextlib.nullcontext():
        loan.set({bench.uuids[0]: watts})
    assert bench.gpus[0].limit() <= min(watts, 180)
    loan.restore()
    assert bench.gpus[0].limit() == 180


def test_a_limit_raised_by_somebody_else_does_not_raise_ours(bench: Bench) -> None:
    bench.gpus[0].set_limit(180)
    loan = bench.keeper.lend(bench.uuids[:1])
    bench.gpus[0].set_limit(240)
    with pytest.raises(InputError):
        loan.set({bench.uuids[0]: 200})
    loan.set({bench.uuids[0]: 150})
    loan.restore()
    assert bench.gpus[0].limit() == 240


def test_a_card_that_rounds_coarsely_is_not_taken_for_somebody_else(bench: Bench) -> None:
    bench.gpus[0].step_watts = 10
    loan = bench.keeper.lend(bench.uuids[:1])
    loan.set({bench.uuids[0]: 157})
    assert bench.gpus[0].limit() == 150
    loan.restore()
    assert bench.gpus[0].limit() == 250


def test_a_limit_next_to_the_one_found_is_put_back_exactly(bench: Bench) -> None:
    loan = bench.keeper.lend(bench.uuids[:1])
    loan.set({bench.uuids[0]: 249.5})
    loan.restore()
    assert bench.gpus[0].limit() == 250


def test_without_the_right_to_set_nothing_is_lent(bench: Bench) -> None:
    bench.gpus[1].failures, bench.gpus[1].error = 1, NotPermitted
    with pytest.raises(NotPermitted):
        bench.keeper.lend(bench.uuids)
    assert bench.notes.uuids() == []
    bench.keeper.lend(bench.uuids, patience=0).restore()


def test_read_only_refuses_lending_setting_and_restoring(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    loan = bench.keeper.lend(bench.uuids[:1])
    loan.set({bench.uuids[0]: 150})
    monkeypatch.setenv("ZEUS_READ_ONLY", "1")
    with pytest.raises(ReadOnly):
        loan.set({bench.uuids[0]: 125})
    with pytest.raises(ReadOnly):
        bench.keeper.lend(bench.uuids[1:])
    assert [r.ending for r in loan.restore()] == [Restoration.FAILED]
    assert bench.limits() == [150, 250]
    monkeypatch.delenv("ZEUS_READ_ONLY")
    bench.another().recover()
    assert bench.limits() == [250, 250]


def test_an_unknown_gpu_is_answered_with_those_that_are_there(bench: Bench) -> None:
    with pytest.raises(NoDevice, match=bench.uuids[0]):
        bench.keeper.lend(["GPU-none"])


def leave(bench: Bench, in_force: float, note: Note) -> None:
    """The state in which a keeper that was killed leaves a card and its note."""
    bench.gpus[0].set_limit(in_force)
    bench.notes.write(note)


@pytest.mark.parametrize(
    ("in_force", "ours", "ending", "after"),
    [
        (250, (), Restoration.UNCHANGED, 250),  # killed after lending
        (250, (150,), Restoration.UNCHANGED, 250),  # killed between writing down and setting
        (150, (150,), Restoration.RESTORED, 250),  # killed between setting and answering
        (200, (200, 150), Restoration.RESTORED, 250),  # the same, at a second limit
        (150, (200, 150), Restoration.RESTORED, 250),
        (250, (200, 150), Restoration.UNCHANGED, 250),  # killed between putting back and dropping the note
        (175, (200, 150), Restoration.LEFT, 175),  # and then somebody set another
        (249.5, (150,), Restoration.LEFT, 249.5),
    ],
)
def test_a_keeper_killed_at_any_moment_leaves_enough_to_put_back(
    bench: Bench, in_force: float, ours: tuple[float, ...], ending: Restoration, after: float
) -> None:
    leave(bench, in_force, Note(bench.uuids[0], bench.notes.boot, 250.0, ours_watts=ours))
    assert [r.ending for r in bench.keeper.recover()] == [ending]
    assert bench.gpus[0].limit() == after
    assert bench.keeper.recover() == []


def test_a_limit_that_was_being_set_may_be_in_force_as_the_driver_rounded_it(bench: Bench) -> None:
    leave(bench, 149.6, Note(bench.uuids[0], bench.notes.boot, 250.0, ours_watts=(200.0,), setting_watts=150.0))
    assert [r.ending for r in bench.keeper.recover()] == [Restoration.RESTORED]
    assert bench.gpus[0].limit() == 250


def test_lending_first_puts_back_what_a_dead_keeper_left(bench: Bench) -> None:
    leave(bench, 150, Note(bench.uuids[0], bench.notes.boot, 250.0, ours_watts=(150.0,)))
    loan = bench.keeper.lend(bench.uuids[:1])
    assert loan.found == {bench.uuids[0]: 250}
    loan.restore()


def test_a_note_from_another_boot_is_void(bench: Bench) -> None:
    leave(bench, 150, Note(bench.uuids[0], "another boot", 250.0, ours_watts=(150.0,)))
    assert [r.ending for r in bench.keeper.recover()] == [Restoration.VOID]
    assert bench.gpus[0].limit() == 150
    assert bench.notes.uuids() == []


@pytest.mark.parametrize("damage", ["empty", "truncated", "malformed", "of another card"])
def test_a_note_that_cannot_be_read_is_kept_and_its_gpu_is_not_lent(bench: Bench, damage: str) -> None:
    leave(bench, 150, Note(bench.uuids[0], bench.notes.boot, 250.0, ours_watts=(150.0,)))
    path = bench.notes.folder / f"{bench.uuids[0]}.json"
    whole = path.read_text()
    texts = {"empty": "", "truncated": whole[:40], "malformed": whole.replace("250.0", '"x"')}
    path.write_text(text := texts.get(damage, whole.replace(bench.uuids[0], bench.uuids[1])))
    (outcome,) = bench.keeper.recover()
    assert outcome.ending is Restoration.FAILED
    assert str(path) in outcome.message and "set the limit yourself and remove the note" in outcome.message
    with pytest.raises(DeviceError, match="cannot be read"):  # or it would find 150 W and restore that
        bench.keeper.lend(bench.uuids)
    assert path.read_text() == text
    assert bench.notes.left_behind() == bench.uuids[:1]
    bench.keeper.lend(bench.uuids[1:]).restore()


def test_a_note_of_a_newer_version_is_kept_and_its_gpu_is_not_lent(bench: Bench) -> None:
    note = bench.notes.folder / f"{bench.uuids[0]}.json"
    text = json.dumps({"zeus": 2, "uuid": bench.uuids[0], "limits": "in a way that only that version knows"})
    note.write_text(text)
    (outcome,) = bench.keeper.recover()
    assert outcome.ending is Restoration.FAILED
    assert "newer" in outcome.message and str(note) in outcome.message
    with pytest.raises(DeviceError, match="newer"):
        bench.keeper.lend(bench.uuids)
    assert note.read_text() == text
    bench.keeper.lend(bench.uuids[1:]).restore()


def test_what_a_dead_keeper_left_is_put_back_also_on_a_full_disk(tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk", 64) as disk:
        bench = Bench(disk)
        loan = bench.keeper.lend(bench.uuids)
        loan.set(dict.fromkeys(bench.uuids, 150))
        bench.killed(loan)
        assert bench.notes.lent() == []  # somebody looked, so that the locks are empty
        fill(disk)
        assert {r.ending for r in bench.another().recover()} == {Restoration.RESTORED}
        assert bench.limits() == [250, 250]


def test_on_a_full_disk_nothing_is_lent_and_nothing_is_changed(tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk", 64) as disk:
        bench = Bench(disk)
        ballast = fill(disk)
        with pytest.raises(OSError, match="No space left"):  # a limit that nobody could put back
            bench.keeper.lend(bench.uuids)
        assert (bench.limits(), bench.notes.uuids()) == ([250, 250], [])
        ballast.unlink()
        loan = bench.another().lend(bench.uuids, patience=0)
        loan.set(dict.fromkeys(bench.uuids, 200))
        fill(disk)
        with pytest.raises(OSError, match="No space left"):
            loan.set(dict.fromkeys(bench.uuids, 150))
        assert bench.limits() == [200, 200]
        assert {r.ending for r in loan.restore()} == {Restoration.RESTORED}
        assert bench.limits() == [250, 250]


def test_what_is_on_lease_by_a_live_keeper_is_not_recovered(bench: Bench) -> None:
    loan = bench.keeper.lend(bench.uuids)
    loan.set(dict.fromkeys(bench.uuids, 150))
    assert bench.another().recover() == []
    assert bench.notes.lent() == bench.uuids
    assert bench.limits() == [150, 150]
    loan.restore()


def test_a_note_is_written_before_the_driver_is_touched(bench: Bench) -> None:
    seen: list[Note | None] = []

    class Watcher(Moody):
        def set_limit(self, watts: float) -> None:
            seen.append(bench.notes.read(self.spec.uuid))
            super().set_limit(watts)

    bench.gpus[0] = Watcher(bench.machine, bench.gpus[0].index, bench.uuids[0])
    loan = bench.keeper.lend(bench.uuids[:1])
    loan.set({bench.uuids[0]: 200})
    loan.set({bench.uuids[0]: 150})
    assert [note and (note.ours_watts, note.setting_watts) for note in seen] == [
        ((), None),
        ((250,), 200),
        ((200,), 150),
    ]
    assert all(note and note.found_watts == 250 for note in seen)
    loan.restore()


def test_a_folder_that_others_could_write_in_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    for place in (folder, tmp_path / "link"):
        monkeypatch.setenv("ZEUS_KEEPER_STATE", str(place))
        with pytest.raises(NotPermitted, match="ZEUS_KEEPER_STATE"):
            Notes.here()


@pytest.mark.parametrize("below", ["", "notes"], ids=["a file", "below a file"])
def test_a_folder_that_cannot_be_used_is_told_by_status_and_by_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ZEUS_KEEPER_STATE", str(tmp_path / "file" / below))
    monkeypatch.setenv("ZEUS_GPU", "virtual:v100")
    monkeypatch.setenv("ZEUS_VIRTUAL_STATE", str(tmp_path / "cards"))
    found, lease = status(machine()), lend(machine())
    assert isinstance(lease, Observing)
    assert found["use"] is None
    assert lease.reason == f"Power limits cannot be set: {found['why_not']}"
    assert str(tmp_path / "file") in lease.reason
    assert "set ZEUS_KEEPER_STATE to a" in lease.reason.replace("Set ", "set ")


def test_a_folder_on_the_way_stays_open_to_others_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEUS_KEEPER_STATE", str(tmp_path / "zeus" / "keeper"))
    umask = os.umask(0o077)
    try:
        Notes.here()
    finally:
        os.umask(umask)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("zeus", "zeus/keeper")]
    assert modes == [0o755, 0o700]  # the system keeper's socket is in the first, for its group to reach


def test_a_keeper_owes_what_it_lent_and_could_not_restore_until_somebody_has(bench: Bench) -> None:
    loan = bench.keeper.lend(bench.uuids)
    loan.set(dict.fromkeys(bench.uuids, 150))
    bench.machine.lose(bench.gpus[0].index)
    loan.restore()
    other = bench.another()
    other.recover()
    assert (bench.keeper.owed(), other.owed()) == (bench.uuids[:1], [])  # or each new keeper would wait for the card
    bench.machine.change_card(bench.gpus[0].index, lambda card: replace(card, lost=False))
    other.recover()
    assert bench.keeper.owed() == []
    other.lend(bench.uuids).restore()


def test_a_client_cannot_forge_a_line_of_the_audit_with_the_name_of_a_gpu(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "zeus.device.keeper.audit")
    loan = bench.keeper.lend(bench.uuids[:1])
    with pytest.raises(InputError, match="not part of this lease"):
        loan.set({f"GPU-2\n2026-11-16T20:15:32Z set allowed gpu={bench.uuids[0]}" + 60000 * "x": 150, "GPU-3": 150})
    (line,) = (record.getMessage() for record in caplog.records if record.getMessage().startswith("set"))
    assert line.startswith("set refused gpu=- old_watts=- new_watts=150 ")
    assert "\n" not in line
    assert len(line) < 1000
    loan.restore()


def test_a_keeper_still_owes_a_limit_while_its_note_cannot_be_read(bench: Bench) -> None:
    loan = bench.keeper.lend(bench.uuids[:1])
    loan.set({bench.uuids[0]: 150})
    bench.machine.lose(bench.gpus[0].index)
    loan.restore()
    bench.machine.change_card(bench.gpus[0].index, lambda card: replace(card, lost=False))
    note = bench.notes.folder / f"{bench.uuids[0]}.json"
    note.rename(away := note.with_suffix(".away"))
    note.mkdir()  # as a disk that fails for a while
    bench.keeper.recover()
    assert bench.keeper.owed() == bench.uuids[:1]
    note.rmdir()
    away.rename(note)
    assert [r.ending for r in bench.keeper.recover()] == [Restoration.RESTORED]
    assert (bench.keeper.owed(), bench.gpus[0].limit()) == ([], 250)
