"""What the doctor concludes: every fault has a command, and nobody is sent to mend what is well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.cli.doctor_checks import RELEASED, Check, Health, Mistake, NodeFacts, examine
from zeus.cli.node import CpuFacts, Devices, GpuFacts, KeeperFacts, StoreFacts
from zeus.errors import DeviceError, DeviceSilent
from zeus.store.check import StoreCause
from zeus_energy import Damage, install_command

GPU = GpuFacts(
    index=0, uuid="GPU-1", name="H200", vendor="nvidia", limit_watts=700.0, min_watts=200.0, max_watts=700.0,
    default_watts=700.0, slowdowns=[], capabilities=["counter", "limits", "power"], can_set_limit=True, why_not=None,
)  # fmt: skip
KEEPER = KeeperFacts(
    use="system", socket="/run/zeus/keeper.sock", lent=[], why_not=None, risk=None, policy=None, dead=None, left=[],
    group="zeus",
)  # fmt: skip
CPU = CpuFacts(packages=["package-0"], readable=True, why_not=None, locked=[])
STORE = StoreFacts(
    url="http://zeus:7070", kind="service", ok=True, why_not=None, version=None, waiting=0, cause=None
)  # fmt: skip


def node(gpu: dict[str, Any] | None = None, keeper: dict[str, Any] | None = None, **facts: Any) -> NodeFacts:
    devices = Devices([replace(GPU, **(gpu or {}))], CPU, replace(KEEPER, **(keeper or {})))
    return NodeFacts(**{"devices": devices, "store": STORE, "newest": "0007", "now": RELEASED + 1, **facts})


def broken(facts: NodeFacts) -> list[Check]:
    return [check for check in examine(facts) if check.state is Health.BROKEN]


def test_a_healthy_node_is_all_well() -> None:
    assert all(check.state is Health.OK and check.command is None for check in examine(node()))


def test_a_package_that_was_mixed_with_another_is_removed_and_installed_again() -> None:
    mixed = Damage("the files are mixed", "pip uninstall -y zeus", "pip install .")
    (check,) = broken(node(damage=mixed))
    assert (check.name, check.command) == ("installation", "pip uninstall -y zeus && pip install .")


@given(
    can_set=st.booleans(), root=st.booleans(), systemd=st.booleans(), unit=st.booleans(),
    dead=st.sampled_from([None, "/run/zeus/keeper.sock"]), use=st.sampled_from([None, "system", "private"]),
    limit=st.sampled_from([None, 200.0, 700.0]), left=st.sampled_from([[], ["GPU-1"]]),
    store=st.booleans(), kind=st.sampled_from(["sqlite", "postgresql", "service", None]),
    cause=st.sampled_from(StoreCause), vendor=st.sampled_from(["nvidia", "amd", "virtual"]), container=st.booleans(),
)  # fmt: skip
def test_whatever_is_broken_has_a_command_and_a_sentence(
    can_set: bool, root: bool, systemd: bool, unit: bool, dead: str | None, use: str | None, limit: float | None,
    left: list[str], store: bool, kind: str | None, cause: StoreCause, vendor: str, container: bool,
) -> None:  # fmt: skip
    facts = node(
        {"can_set_limit": can_set, "why_not": None if can_set else "no.", "limit_watts": limit, "vendor": vendor},
        {"dead": dead, "use": use, "left": left, "why_not": "no."},
        store=replace(STORE, ok=store, why_not=None if store else "no.", kind=kind, cause=None if store else cause),
        is_root=root, user="ann", has_systemd=systemd, has_unit=unit, in_container=container,
    )  # fmt: skip
    for check in examine(facts):
        assert check.message
        if check.state is Health.BROKEN:
            assert check.command
            assert not (root and check.command.startswith("sudo ") and check.name != "store")


def test_with_systemd_the_keeper_is_its_service() -> None:
    dead = {"dead": "/run/zeus/keeper.sock", "use": None, "why_not": "no keeper answers"}
    (keeper,) = broken(node(keeper=dead, has_systemd=True, has_unit=True, is_root=False))
    assert keeper.command == "sudo systemctl restart zeus-keeper"


def test_somebody_outside_the_group_is_told_which_group() -> None:
    refused = {"use": None, "why_not": "user 1000 may not use the keeper.", "group": "gpu"}
    checks = broken(node({"can_set_limit": False, "why_not": "user 1000 may not use the keeper."}, refused, user="ann"))
    assert {check.command for check in checks} == {"usermod -aG gpu ann"}


def test_while_the_policy_is_wrong_it_is_what_must_be_mended() -> None:
    (check,) = broken(node(keeper={"use": None, "why_not": "the keeper lends nothing."}, is_closed=True))
    assert check.command == "editor /etc/zeus/config.toml"


def test_a_file_is_mended_by_its_own_command_as_root() -> None:
    wrong = Mistake("/etc/zeus/config.toml: every user can change it", "chmod go-w /etc/zeus/config.toml")
    (check,) = broken(node(mistakes=(wrong,), is_root=False))
    assert check.command == "sudo chmod go-w /etc/zeus/config.toml"


@pytest.mark.parametrize(
    ("facts", "command"),
    [
        ({"has_card": False}, "export ZEUS_GPU=virtual:v100"),
        ({"has_card": False, "masked": "CUDA_VISIBLE_DEVICES"}, "unset CUDA_VISIBLE_DEVICES"),
        ({"in_container": True}, "docker run --gpus all IMAGE zeus doctor"),
        ({"installer": "dnf install"}, "dnf install nvidia-driver"),
    ],
)
def test_without_a_gpu_the_answer_depends_on_whether_a_card_is_plugged_in(facts: dict[str, Any], command: str) -> None:
    nothing = Devices([], CPU, replace(KEEPER, use=None, socket=None))
    (check,) = broken(node(devices=nothing, **facts))
    assert (check.name, check.command) == ("driver", command)
    assert ("virtual GPU" in check.message) is ("virtual" in command)


def test_a_driver_that_hangs_needs_a_reboot_and_one_that_fails_another_driver() -> None:
    commands = {
        type(failed): broken(node(devices=failed))[0].command
        for failed in (DeviceSilent("silent"), TimeoutError("late"), DeviceError("no driver"))
    }
    assert commands == {DeviceSilent: "reboot", TimeoutError: "reboot", DeviceError: "apt-get install nvidia-driver"}


def test_counters_that_only_root_may_read_are_opened() -> None:
    cpu = replace(CPU, readable=False, why_not="Only root may read CPU energy.", locked=["/sys/a", "/sys/b"])
    checks = {check.name: check for check in examine(node(devices=Devices([GPU], cpu, KEEPER)))}
    assert checks["cpu"].command == "sudo chmod o+r /sys/a /sys/b"


def test_with_systemd_the_service_of_this_machine_is_its_unit() -> None:
    url = "http://127.0.0.1:7070"
    away = replace(STORE, url=url, ok=False, why_not="it does not answer", cause=StoreCause.AWAY)
    (store,) = broken(node(store=away, has_systemd=True, has_service_unit=True, is_root=False))
    assert store.command == "sudo systemctl restart zeus-serve"


def test_a_keeper_that_serves_only_root_needs_its_group_first() -> None:
    refused = {"use": None, "why_not": "It serves only root.", "group": None}
    (check,) = broken(node(keeper=refused, user="ann", is_root=False, has_systemd=True, has_unit=True))
    join = "groupadd --system zeus && usermod -aG zeus ann"
    assert check.command == f"sudo sh -c '{join} && systemctl restart zeus-keeper'"


def test_a_floor_that_leaves_no_lower_limit_is_broken() -> None:
    (check,) = broken(node(floors={"GPU-1": 900.0}))
    assert (check.name, check.command) == ("limits", "editor /etc/zeus/config.toml")
    assert "the policy's floor of 900 W leaves no limit below the card's highest, 700 W" in check.message
    assert broken(node(floors={"GPU-1": 350.0})) == []


def test_a_card_at_the_sites_ceiling_is_not_throttled() -> None:
    low = node({"limit_watts": 500.0})
    assert [check.name for check in broken(low)] == ["left limits"]
    assert broken(replace(low, ceilings={"GPU-1": 500.0})) == []
    assert broken(node({"limit_watts": 500.0}, {"lent": ["GPU-1"]})) == []  # a training holds it


def test_a_store_of_a_newer_zeus_asks_for_the_newer_zeus() -> None:
    (store,) = broken(node(store=replace(STORE, kind="sqlite", version="0008")))
    assert "version 0008" in store.message
    assert store.command == f"{install_command()} --upgrade"


def test_a_clock_before_this_zeus_is_wrong() -> None:
    (clock,) = broken(node(now=0.0))
    assert (clock.name, clock.command) == ("clock", "timedatectl set-ntp true")


@pytest.mark.parametrize(
    ("url", "kind", "cause", "command"),
    [
        ("http://zeus.site:7070", "service", "away", "ssh zeus.site sudo systemctl restart zeus-serve"),
        ("http://zeus.site:7070", "service", "token", "ssh zeus.site zeus token create ann"),
        ("postgresql://db.site/zeus", "postgresql", "away", "ssh db.site sudo systemctl restart postgresql"),
        ("sqlite:////srv/zeus.db", "sqlite", "permission", "sudo chown ann /srv/zeus.db"),
        ("sqlite:////srv/z/zeus.db", "sqlite", "folder", "sudo install -d -o ann /srv/z"),
        ("sqlite:////srv/zeus.db", "sqlite", "damaged", "mv /srv/zeus.db /srv/zeus.db.broken"),
        ("ftp://zeus", None, "address", "zeus env"),
    ],
)  # fmt: skip
def test_each_store_has_its_command(url: str, kind: str, cause: str, command: str) -> None:
    store = replace(STORE, url=url, kind=kind, ok=False, why_not="no.", cause=StoreCause(cause))
    (check,) = broken(node(store=store, user="ann", is_root=False))
    assert check.command == command
