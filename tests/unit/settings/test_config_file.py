"""Configuration files: below the environment, checked with file and line, and never in a training's way."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.disks import tiny_disk
from zeus import settings
from zeus.device.keeper import Observing, lend
from zeus.device.virtual import VirtualMachine
from zeus.errors import InputError
from zeus.settings import SETTINGS, Mode, config_file
from zeus.settings.config_file import Layered, read_config

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="root is more careful than others")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the site."""
    path = tmp_path / "etc" / "config.toml"
    path.parent.mkdir()
    monkeypatch.setattr(config_file, "SYSTEM", path)
    return path


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The user's file."""
    path = tmp_path / "home" / "zeus" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


def layered(own: Path | None = None, **variables: str) -> Layered:
    folder = {} if own is None else {"XDG_CONFIG_HOME": str(own.parents[1])}
    return Layered({"HOME": "/nowhere", **folder, **variables}, SETTINGS)


def mistakes(text: str, path: Path, *, is_system: bool = True) -> list[str]:
    path.write_text(text)
    found = read_config(path, SETTINGS, is_system=is_system)
    assert found is not None
    return list(found.mistakes)


def test_the_environment_goes_before_the_users_file_and_that_before_the_sites(site: Path, own: Path) -> None:
    site.write_text('store = "http://site:7070"\nmode = "observe"\nquiet = true\n')
    own.write_text('mode = "off"\n\n[cost]\nprice = 0.31\n')
    here = layered(own, ZEUS_QUIET="0")
    assert (settings.store(here), settings.mode(here), settings.quiet(here)) == ("http://site:7070", Mode.OFF, False)
    assert settings.price_per_kwh(here) == "0.31"
    assert here.origin("ZEUS_STORE") == f"{site}, line 1"
    assert here.origin("ZEUS_MODE") == f"{own}, line 1"
    assert here.origin("ZEUS_PRICE_PER_KWH") == f"{own}, line 4"
    assert here.origin("ZEUS_QUIET") == "environment"
    assert here.origin("ZEUS_GPU") == "default"


def test_a_variable_that_is_set_but_empty_hides_the_file(site: Path) -> None:
    site.write_text('store = "http://site:7070"\n')
    assert settings.store(layered(ZEUS_STORE="")) == ""


def test_without_files_there_is_nothing_but_the_environment(site: Path) -> None:
    assert dict(layered(ZEUS_MODE="off")) == {"HOME": "/nowhere", "ZEUS_MODE": "off"}
    assert "ZEUS_STORE" not in layered()


def test_zeus_config_names_one_file_instead_of_both_or_none(site: Path, own: Path, tmp_path: Path) -> None:
    site.write_text('mode = "observe"\n')
    own.write_text('gpu = "amd"\n')
    other = tmp_path / "other.toml"
    other.write_text('gpu = "nvml"\n')
    named = layered(own, ZEUS_CONFIG=str(other))
    assert (settings.gpu(named), settings.mode(named)) == ("nvml", Mode.OPTIMIZE)
    assert layered(own, ZEUS_CONFIG="").files() == ()
    assert "does not exist" in layered(ZEUS_CONFIG=str(tmp_path / "none.toml")).mistakes()[0]


def test_every_setting_can_be_set_in_a_file(site: Path) -> None:
    values = {
        "store": '"sqlite:////srv/zeus.db"', "token_file": '"/etc/zeus/token"', "patience": "5", "mode": '"observe"',
        "profiling": '"paper"', "gpu": '"nvml"', "read_only": "true", "quiet": "true", "log_dir": '"~/logs"',
        "data": '"/srv/data"', "cost.price": '"/etc/zeus/prices.csv"', "cost.currency": '"EUR"', "cost.carbon": "350",
        "cost.carbon_token_file": '"/etc/zeus/carbon"', "keeper.socket": '"/run/zeus/keeper.sock"',
        "keeper.state": '"/run/zeus/keeper"', "retention.logs_days": "7", "retention.log_bytes": "1000",
    }  # fmt: skip
    assert set(values) == {one.key for one in SETTINGS if one.in_files}
    site.write_text("".join(f"{key} = {value}\n" for key, value in values.items()))
    here = layered()
    assert here.mistakes() == []
    assert settings.read_only(here)
    assert settings.patience(here) == 5.0
    assert settings.keeper(here) == "/run/zeus/keeper.sock"
    assert settings.log_dir(here) == Path("~/logs").expanduser()
    assert all(here.origin(one.variable).startswith(str(site)) for one in SETTINGS if one.in_files)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quiet = true\nsotre = 'x'", "line 2: sotre is not known. Did you mean 'store'?"),
        ("token = 'abc'", "line 1: token is not known. Did you mean 'token_file'?"),
        ("\nread_only = 1", "line 2: read_only = 1: give true or false."),
        ("mode = 'fast'", "line 1: mode = 'fast': give optimize, observe or off."),
        ("patience = -1", "line 1: patience = -1: give seconds of at least 0."),
        ("log_dir = 'logs'", "line 1: log_dir = 'logs': give an absolute path"),
        ("[cost]\ncurency = 'EUR'", "line 2: curency is not known in [cost]. Did you mean 'currency'?"),
        ("[cost]\nprice = 'cheap'", "line 2: price = 'cheap': give a number, or the absolute path"),
        ("[cost]\nmode = 'off'", "line 2: mode is below [cost] and so belongs to that table"),
        ("keeper = '/run/zeus.sock'", "line 1: keeper = '/run/zeus.sock': give a table."),
        ("[keeper]\nflor = 100", "line 2: flor is not known in [keeper]. Did you mean 'floor'?"),
        ("[keeper]\nfloor = '120 %'", "line 2: floor = '120 %': give watts such as 150"),
        ("[keeper.groups.gpu]\nceil = 1", "line 2: ceil is not known in [keeper.groups.gpu]. Did you mean 'ceiling'?"),
        ("[keeper.users]\nann = 5", "line 2: ann: write `[keeper.users.ann]`, and its limits below."),
        ("[keeper]\nfloor = 200\nceiling = 150", "line 2: floor = 200 is above ceiling = 150"),
        ("mode = ", "it is not valid TOML"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_file_and_line(text: str, message: str, tmp_path: Path) -> None:
    (found,) = mistakes(text, tmp_path / "config.toml")
    assert found.startswith(str(tmp_path / "config.toml"))
    assert message in found


@pytest.mark.parametrize(
    "text",
    [
        'read_only = "yes"', "read_only = 1", "readonly = true", "read-only = true", "READ_ONLY = true",
        "[cost]\nread_only = true", "[keeper]\nread_only = true", "[site]\nread_only = true", "read_only.gpu = true",
        'mode = "observ"', 'mdoe = "off"', "read_only = ", "ZEUS_READ_ONLY = 1",
    ],
)  # fmt: skip
def test_a_file_that_leaves_open_whether_limits_may_be_set_keeps_zeus_from_setting_them(text: str, site: Path) -> None:
    site.write_text(text)
    here = layered()
    assert not settings.read_only(here), "what was changed before can be restored"
    assert str(site) in settings.why_read_only(here)
    with pytest.raises(InputError):
        settings.refuse_mistakes(here)


def test_a_clear_word_above_an_unclear_file_counts(site: Path, own: Path) -> None:
    site.write_text('read_only = "maybe"')
    assert not settings.why_read_only(layered(ZEUS_READ_ONLY="0"))
    own.write_text("read_only = false")
    assert not settings.why_read_only(layered(own))
    site.write_text("read_only = false")
    own.write_text('raed_only = "yes"')
    assert str(own) in settings.why_read_only(layered(own))


def test_no_limit_is_lent_while_that_is_open_but_one_that_was_lowered_can_be_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("readonly = true")
    monkeypatch.setenv("ZEUS_CONFIG", str(file))
    gpu = VirtualMachine.in_memory("v100").gpus[0]
    lease = lend([gpu])
    assert isinstance(lease, Observing)
    assert f"{file}, line 1 leaves open what read_only is" in lease.reason
    gpu.set_limit(150)
    assert gpu.limit() == 150


def test_other_mistakes_leave_limits_alone(site: Path) -> None:
    site.write_text('sotre = "x"\npatience = -1\n[cost]\ncurency = "EUR"\n[keeper.users.maude]\nallow = true')
    assert not settings.why_read_only(layered())


def test_the_address_of_a_store_is_never_shown(tmp_path: Path) -> None:
    (found,) = mistakes("store = 'postgres//me:secret@host/zeus'", tmp_path / "config.toml")
    assert "line 1: store: give sqlite:///path" in found
    assert "secret" not in found


def test_only_the_sites_file_can_set_a_policy(tmp_path: Path) -> None:
    text = "[keeper]\nsocket = '/run/zeus/keeper.sock'\nfloor = 100"
    assert mistakes(text, tmp_path / "config.toml") == []
    (found,) = mistakes(text, tmp_path / "config.toml", is_system=False)
    assert "line 3: floor is part of the keeper's policy, which only /etc/zeus/config.toml can set." in found


def test_a_file_that_every_user_can_change_is_ignored(site: Path) -> None:
    site.write_text('mode = "off"\n')
    site.chmod(0o666)
    here = layered()
    assert here.mistakes() == [f"{site}: every user can change it, so it is ignored. Run `chmod go-w {site}`."]
    assert settings.mode(here) is Mode.OPTIMIZE
    site.chmod(0o644)
    assert settings.mode(layered()) is Mode.OFF


@as_root
def test_root_ignores_a_file_of_somebody_else(site: Path, own: Path) -> None:
    own.write_text('gpu = "nvml"\n')
    os.chown(own, 65534, 65534)
    here = layered(own)
    assert settings.gpu(here) == "auto"
    assert "it belongs to user 65534, so root ignores it" in here.mistakes()[0]


@as_root
def test_root_ignores_a_file_that_a_group_can_change(site: Path) -> None:
    site.write_text('mode = "off"\n[keeper]\nfloor = 100\n')
    site.chmod(0o664)
    here = layered()
    assert here.mistakes() == [f"{site}: group 0 can change it, so root ignores it. Run `chmod g-w {site}`."]
    assert settings.mode(here) is Mode.OPTIMIZE
    assert here.policy_file().policy_mistakes  # so the keeper lends nothing


@as_root
@pytest.mark.parametrize("mode", [0o775, 0o777])
@pytest.mark.parametrize("exists", [True, False])
def test_root_ignores_a_file_that_others_can_replace_or_remove(site: Path, mode: int, exists: bool) -> None:
    if exists:
        site.write_text("[keeper]\nfloor = 100\n")
    site.parent.chmod(mode)
    (mistake,) = layered().policy_file().policy_mistakes
    assert mistake == (
        f"{site}: other users can write to its folder, so root ignores it. Run `chmod go-w {site.parent}`."
    )
    site.parent.chmod(mode | 0o1000)  # sticky: only the owner of a file can remove it
    assert layered().policy_file().policy_mistakes == ()


@as_root
def test_root_trusts_a_file_in_an_open_folder_that_is_mounted_read_only(site: Path) -> None:
    with tiny_disk(site.parent, 64) as folder:  # as Kubernetes mounts a ConfigMap
        site.write_text("[keeper]\nfloor = 100\n")
        folder.chmod(0o777)
        assert layered().policy_file().policy_mistakes
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        assert layered().policy_file().policy == {"floor": 100}


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "huge"])
def test_what_is_no_file_of_settings_is_named_and_never_waited_for(site: Path, kind: str) -> None:
    if kind == "folder":
        site.mkdir()
    elif kind == "pipe":
        os.mkfifo(site)  # to open it would wait for a writer
    elif kind == "device":
        site.symlink_to("/dev/zero")  # it has no end
    else:
        site.touch()
        os.truncate(site, 10**12)
    why = "it has 1000000000000 bytes, and settings need at most 1000000" if kind == "huge" else "it is not a file"
    assert layered().mistakes() == [f"{site}: {why}. Move it away: `mv {site} {site}.old`."]


def test_a_link_to_a_file_is_followed(site: Path, tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text('mode = "off"\n')
    site.symlink_to(tmp_path / "real.toml")
    assert settings.mode(layered()) is Mode.OFF


def test_a_wrong_file_never_stops_a_training_and_its_right_settings_hold(
    site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site.write_text('store = "http://site:7070"\nmode = "fast"\n')
    with caplog.at_level(logging.WARNING, "zeus"):
        here = layered()
        assert (settings.store(here), settings.mode(here), settings.gpu(here)) == (
            "http://site:7070",
            Mode.OPTIMIZE,
            "auto",
        )
    assert [one.message for one in caplog.records if "line 2: mode" in one.message and "ignored" in one.message]
    assert len(caplog.records) == 1  # said once


def test_a_command_refuses_a_wrong_file_with_all_its_mistakes(site: Path) -> None:
    site.write_text('mode = "fast"\nquite = true\n')
    with pytest.raises(InputError, match=r"(?s)line 1: mode = 'fast'.*line 2: quite is not known"):
        settings.refuse_mistakes(layered())


def test_files_are_read_once_but_the_policy_each_time(site: Path) -> None:
    here = layered()
    assert settings.mode(here) is Mode.OPTIMIZE
    site.write_text('mode = "off"\n[keeper]\nfloor = 100\n')
    assert settings.mode(here) is Mode.OPTIMIZE
    assert here.policy_file().policy == {"floor": 100}


def test_a_token_is_read_from_its_file(site: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    site.write_text(f'token_file = "{token}"\n')
    with pytest.raises(InputError, match=r"ZEUS_TOKEN_FILE=.*token: the token cannot be read: No such file"):
        settings.token(layered())
    token.write_text("abc\n")
    assert settings.token(layered()) == "abc"
    assert settings.token(layered(ZEUS_TOKEN="other")) == "other"


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5)))
def test_what_the_environment_has_is_passed_through(variables: dict[str, str]) -> None:
    here = Layered({"ZEUS_CONFIG": "", **variables}, SETTINGS)
    assert dict(here) == {"ZEUS_CONFIG": "", **variables}
    assert len(here) == len(dict(here))
