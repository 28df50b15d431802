"""Random histories for a policy: asks, tells, losses, profiles and pardons, on two GPU models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from support.stories import CRASHED, NOT_CONVERGED, Story, converged, job, not_run, stopped
from zeus.errors import InputError
from zeus.job import Ending, JobSpec, Outcome, Trial

SIZES = (4, 8, 16, 32, 64)
GPUS = ("V100", "A40")

outcomes = st.one_of(
    st.builds(converged, st.floats(1, 1e4), st.integers(1, 9)),
    st.builds(stopped, st.floats(1, 1e4)),
    st.builds(not_run, st.floats(1, 1e4)),
    st.just(NOT_CONVERGED),
    st.just(CRASHED),
    st.just(Outcome(ending=Ending.CONVERGED, seconds=1.0, epochs=3)),  # its energy is not known
)
moves = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from(GPUS), st.integers(0, 9)),
        st.tuples(st.just("tell"), outcomes, st.integers(0, 9)),
        st.tuples(st.just("tell"), outcomes, st.integers(0, 9)),
        st.tuples(st.just("lose"), st.none(), st.integers(0, 9)),
        st.tuples(st.just("profile"), st.sampled_from(GPUS), st.integers(0, 9)),
        st.tuples(st.just("pardon"), st.none(), st.integers(0, 9)),
    ),
    max_size=60,
)
jobs = st.builds(
    lambda sizes, default, **knobs: job(batch_sizes=sizes, default_batch_size=sizes[default % len(sizes)], **knobs),
    st.lists(st.sampled_from(SIZES), min_size=1, max_size=5, unique=True),
    st.integers(0, 4),
    eta_knob=st.sampled_from([0.0, 0.5, 1.0]),
    beta_knob=st.sampled_from([1.0, 2.0]),
    window_size=st.sampled_from([0, 1, 3]),
    num_pruning_rounds=st.sampled_from([0, 1, 2]),
    mab_prior_mean=st.just(100.0),
    mab_prior_precision=st.sampled_from([0.0, 0.01]),
)


@dataclass
class Life:
    """A story told by chance, and what was forbidden at each ask."""

    story: Story
    forbidden: list[tuple[Trial, set[int]]] = field(default_factory=list)


def live(spec: JobSpec, policy: Any, told: list[tuple[str, Any, int]]) -> Life:
    story = Story(spec, policy)
    life = Life(story)
    crashed: set[tuple[str, int]] = set()
    for move, what, which in told:
        running = [t for t in story.trials if t.ending in (Ending.OPEN, Ending.LOST)]
        size = spec.batch_sizes[which % len(spec.batch_sizes)]
        if move == "ask":
            banned = {size for gpu, size in crashed if gpu == what}
            try:
                trial = story.ask(recurrence=which + 1, gpu=what, last=which == 9)
            except InputError:
                assert banned == set(spec.batch_sizes)  # the one reason to have nothing to offer
                continue
            life.forbidden.append((trial, banned))
        elif move == "tell" and running:
            trial = running[which % len(running)]
            story.tell(trial, what)
            if what is CRASHED:
                crashed.add((trial.ask.gpu_model, trial.batch_size))
        elif move == "lose" and (still := [t for t in running if t.ending is Ending.OPEN]):
            story.lose(still[which % len(still)])
        elif move == "profile":
            story.profile(size, 1.0 + which, what)
        elif move == "pardon":
            story.pardon(size)
            crashed -= {(gpu, size) for gpu in GPUS}
    return life


@st.composite
def bounded_asks(draw: st.DrawFn, policy: Any) -> list[tuple[Any, Trial]]:
    """Each ask of a job whose epochs may cost more than its bound, with the state that it was decided in.

    Costs of runs and of profiled epochs are of the same size, so that a known size often does not fit. Lives drawn from
    `moves` hardly ever get there.
    """
    sizes = draw(st.lists(st.sampled_from(SIZES), min_size=2, max_size=4, unique=True))
    spec = job(
        batch_sizes=sizes,
        default_batch_size=draw(st.sampled_from(sizes)),
        beta_knob=draw(st.sampled_from([1.0, 2.0])),
        num_pruning_rounds=draw(st.sampled_from([0, 1])),
    )
    story, seen = Story(spec, policy), []
    endings = st.sampled_from([converged, converged, converged, stopped, None])
    for size, epoch_cost, gpu, cost, epochs, ends in draw(
        st.lists(
            st.tuples(
                st.sampled_from(sizes),
                st.floats(1, 100),
                st.sampled_from(("V100", "V100", "V100", "A40")),
                st.floats(10, 100),
                st.integers(1, 9),
                endings,
            ),
            min_size=4,
            max_size=20,
        )
    ):
        story.profile(size, epoch_cost, gpu)
        state, trial = story.state, story.ask(gpu=gpu)
        seen.append((state, trial))
        if ends is not None:
            story.tell(trial, ends(cost, epochs))
    return seen
