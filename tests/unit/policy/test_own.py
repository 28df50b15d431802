"""A policy of somebody else: found by module or entry point, or refused with the reason."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.stories import Story, converged, job
from zeus.errors import InputError
from zeus.job import Ask, Gpus
from zeus.policy import registry
from zeus.policy.api import decided
from zeus.policy.registry import find_policy, is_path, named_policy

OWN = """
from zeus.job import Decision, Phase

class Smallest:
    name, version = "smallest", 3
    def start(self, job): return job
    def observe(self, state, event): return state
    def decide(self, state, rng, ask): return Decision(OFFERED, Phase.DEFAULT, "the smallest")
    def keep_going(self, state, trial, epochs, cost): return True

class Speechless:
    name, version = "speechless", 1
    def start(self, job): return job

class Nameless(Smallest):
    name = None

class Spoilt(Smallest):
    def __init__(self, needed): pass

ready = Smallest()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with a module `mine`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(OWN.replace("OFFERED", "8"))
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "needy.py").write_text("import nobody_has_this")
    registry._theirs.cache_clear()
    yield tmp_path
    for module in ("mine", "broken", "needy"):
        sys.modules.pop(module, None)
    registry._theirs.cache_clear()


@pytest.mark.parametrize("name", ["mine:Smallest", "mine:ready"])
def test_a_class_or_an_object_of_a_module_here_decides(here: Path, name: str) -> None:
    story = Story(job(policy=name), find_policy(name))
    trial = story.ask()
    assert (trial.batch_size, trial.decision.reason) == (8, "the smallest")
    story.tell(trial, converged(10.0))
    assert find_policy(name, 3) is find_policy(name)


def test_an_entry_point_is_a_policy_by_its_name(here: Path) -> None:
    info = here / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[zeus.policies]\nsmallest = mine:Smallest\n")
    sys.path.append(str(here))
    assert find_policy("smallest").version == 3
    assert named_policy("smallest").version == 3
    assert "smallest" in registry.policy_names()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mine:Small", "module 'mine' has no 'Small'. Did you mean 'Smallest'?"),
        ("mine:Speechless", "lacks observe, decide, keep_going."),
        ("mine:Nameless", "its name must be text"),
        ("mine:Spoilt", "Spoilt() failed: TypeError"),
        ("nobody.has:This", "there is no module 'nobody', neither installed nor in the current folder"),
        ("broken:Any", "module 'broken' cannot be imported: ZeroDivisionError: division by zero."),
        ("needy:Any", "module 'needy' needs 'nobody_has_this', which is not installed."),
        ("paper:no-prunning", "policy 'paper:no-prunning' is not known. Did you mean 'paper:no-pruning'?"),
        ("papre", "an entry point of the group 'zeus.policies'"),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused_with_the_reason(here: Path, name: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        find_policy(name)


def test_a_job_of_another_version_is_not_decided_on(here: Path) -> None:
    with pytest.raises(InputError, match="has version 3 here, but the job was decided on with version 2"):
        find_policy("mine:Smallest", 2)


def test_a_size_that_the_job_does_not_have_is_refused(here: Path) -> None:
    (here / "mine.py").write_text(OWN.replace("OFFERED", "7"))
    with pytest.raises(InputError, match=r"policy 'smallest' chose batch size 7, and the job has \[8, 16, 32\]"):
        spec, policy = job(policy="mine:Smallest", mab_seed=0), find_policy("mine:Smallest")
        decided(policy, policy.start(spec), spec, Ask(number=1, recurrence=1, gpus=Gpus("", 1, 250.0), eta=1.0))


def test_a_decision_that_is_none_is_refused(here: Path) -> None:
    (here / "mine.py").write_text(re.sub(r"return Decision\(.*\)", "return 8", OWN))
    with pytest.raises(InputError, match=r"policy 'smallest' decided 8: let decide\(\) return a zeus.job.Decision"):
        spec, policy = job(policy="mine:Smallest", mab_seed=0), find_policy("mine:Smallest")
        decided(policy, policy.start(spec), spec, Ask(number=1, recurrence=1, gpus=Gpus("", 1, 250.0), eta=1.0))


def test_no_module_is_imported_because_a_client_names_it(here: Path) -> None:
    with pytest.raises(InputError, match="a service loads none that its clients name"):
        named_policy("mine:Smallest")
    assert "mine" not in sys.modules
    assert named_policy("paper") is find_policy("paper")


def test_our_own_names_are_no_paths() -> None:
    assert not any(is_path(name) for name in registry.policy_names())
