"""Every preset card runs every preset load, sensibly, and a wrong name is answered with the right one."""

from __future__ import annotations

import pytest

from zeus.device.virtual import presets
from zeus.device.virtual.physics import operate
from zeus.errors import InputError
from zeus.simulate.workload_file import table_1

EVERY_PAIR = [(card, load) for card in presets.card_names() for load in presets.load_names()]


def test_the_papers_workloads_and_three_generic_ones_are_known() -> None:
    papers = {one.virtual.load for one in table_1().values() if one.virtual}
    assert set(presets.load_names()) == {*papers, "compute-bound", "memory-bound", "input-bound"}
    assert {"v100", "a40", "rtx6000", "p100"} < set(presets.card_names())


@pytest.mark.parametrize(("card_name", "load_name"), EVERY_PAIR)
def test_every_load_runs_on_every_card(card_name: str, load_name: str) -> None:
    card, load = presets.card(card_name), presets.load(card_name, load_name)
    for batch_size in (1, 32, 1024):
        slow, fast = (operate(card, load, batch_size, watts) for watts in (card.min_watts, card.max_watts))
        assert slow.seconds >= fast.seconds > 0
        assert card.idle_watts < slow.watts <= fast.watts <= card.max_watts


@pytest.mark.parametrize("card_name", presets.card_names())
def test_the_default_load_feels_the_limit_and_an_input_bound_one_hardly(card_name: str) -> None:
    card = presets.card(card_name)

    def slowdown(load_name: str) -> float:
        load = presets.load(card_name, load_name)
        return operate(card, load, 256, card.min_watts).seconds / operate(card, load, 256, card.max_watts).seconds

    assert slowdown("compute-bound") > 1.3
    assert slowdown("memory-bound") < slowdown("compute-bound")
    assert slowdown("input-bound") < 1.05
    assert presets.load(card_name) == presets.load(card_name, "compute-bound")


def test_faster_cards_by_data_sheet_are_faster_here() -> None:
    seconds = [
        operate(presets.card(name), presets.load(name), 256, presets.card(name).default_watts).seconds
        for name in ("p100", "v100", "a100", "h100", "h200")
    ]
    assert seconds == sorted(seconds, reverse=True)


def test_the_a40_does_not_honour_its_lowest_limit() -> None:
    did = operate(presets.card("a40"), presets.load("a40", "bert-qa"), 32, 100)
    assert did.clock == presets.card("a40").min_clock
    assert did.watts > 100


@pytest.mark.parametrize("spelling", ["BERT-QA", "bert_qa", "bertqa"])
def test_spelling_is_forgiven(spelling: str) -> None:
    assert presets.load("A-40", spelling) == presets.load("a40", "bert-qa")


def test_command_line_names_are_understood() -> None:
    for name in ("DeepSpeech2", "BERT-QA", "BERT-SA", "ResNet-50", "ShuffleNet-v2", "NeuMF"):
        presets.load("v100", name)


def test_an_unknown_name_is_answered_with_the_nearest_first() -> None:
    with pytest.raises(InputError, match=r"'v10'\. Did you mean 'v100'"):
        presets.card("v10")
    with pytest.raises(InputError, match=r"'resnet'\. Did you mean 'resnet50'"):
        presets.load("v100", "resnet")
    with pytest.raises(InputError, match=r"'h20'\. Did you mean 'h200'"):
        presets.load("h20", "resnet50")
