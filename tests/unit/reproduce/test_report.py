"""Laws of the comparison with the paper and of what figures compute."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import small_traces
from zeus.ledger.pareto import ParetoPoint, front
from zeus.reproduce import pipeline, study
from zeus.reproduce.comparison import Counts, Expected, compare, counts
from zeus.reproduce.derived import geometric_mean, over_seeds
from zeus.reproduce.figures import cluster
from zeus.reproduce.panel import Figure, Number, Panel, Result, rows
from zeus.reproduce.provenance import Provenance
from zeus.reproduce.report import Picture, Section, html
from zeus.simulate.cluster.groups import GroupRow

numbers = st.floats(-1e6, 1e6)
points = st.lists(st.builds(ParetoPoint, st.just(8), st.just(100.0), st.floats(1, 100), st.floats(1, 100)), min_size=1)


def says(paper: float | str, tolerance: float | str | None, missing: str = "") -> Expected:
    return Expected("figure_01.x", "a quantity", paper, "%", "§1", tolerance, missing=missing)


@given(numbers, numbers, st.floats(0, 1e6))
def test_a_number_is_within_if_it_is_no_further_off_than_the_tolerance(
    paper: float, ours: float, tolerance: float
) -> None:
    row = compare(says(paper, tolerance), Number("figure_01.x", ours))
    assert row.within == (abs(paper - ours) <= tolerance + 1e-9)


@given(numbers, st.lists(numbers, min_size=1, max_size=9))
def test_a_number_over_seeds_is_within_if_the_paper_is_in_their_range(paper: float, seeds: list[float]) -> None:
    number = over_seeds("figure_01.x", seeds)
    assert number.low is not None
    assert number.high is not None
    row = compare(says(paper, "seeds"), number)
    if number.low <= paper <= number.high:
        assert row.within
    if not number.low - 1e-6 <= paper <= number.high + 1e-6:
        assert not row.within


def test_words_must_be_equal_and_what_is_missing_says_why() -> None:
    assert compare(says("yes", None), Number("figure_01.x", "yes")).within is True
    assert compare(says("yes", None), Number("figure_01.x", "no")).within is False
    assert compare(says(3, 1, missing="no trace"), Number("figure_01.x", 3)).note == "no trace"
    unknown = compare(says(3, 1), Number("figure_01.x", None, note="no card"))
    assert (unknown.within, unknown.ours, unknown.note) == (None, None, "no card")


def test_a_row_says_where_its_tolerance_comes_from() -> None:
    number = Number("figure_01.x", 3.0, 2.0, 4.0)
    bases = [compare(says(3, tolerance), number).to_json()["tolerance_basis"] for tolerance in (0, 0.5, "seeds")]
    assert bases == ["exact", "choice", "scatter"]
    assert compare(says("yes", None), Number("figure_01.x", "yes")).to_json()["tolerance_basis"] is None
    digits = Expected("figure_01.x", "a quantity", 3, "%", "§1", 0.05, basis="digits")
    assert compare(digits, number).to_json()["tolerance_basis"] == "digits"


def test_the_papers_numbers_are_counted_apart_from_inputs_and_from_those_of_the_other_simulator() -> None:
    paper = [compare(says(3, 0), Number("figure_01.x", value)) for value in (3, 3, 4, None)]
    other = Expected("reference.x", "a quantity", 3, "%", "elsewhere", 1, kind="simulator")
    setting = Expected("table_1.x", "a quantity", "not given", "", "§1", kind="setting")
    restated = Expected("table_1.y", "a quantity", 3, "W", "§1", 0, kind="input")
    rows_of_all = [
        *paper,
        compare(other, Number("reference.x", 3)),
        compare(restated, Number("table_1.y", 3)),
        compare(setting, Number("table_1.x", "16")),
    ]
    assert counts(rows_of_all) == {"paper": Counts(2, 1, 1), "input": Counts(1, 0, 0), "simulator": Counts(1, 0, 0)}
    assert (rows_of_all[-1].ours, rows_of_all[-1].within) == ("16", None)


def test_a_tolerance_that_is_neither_a_number_nor_the_seeds_is_refused() -> None:
    with pytest.raises(ValueError, match=r"figure_01\.x: tolerance is 'some'"):
        compare(says(3, "some"), Number("figure_01.x", 3))


@given(points)
def test_nobody_beats_the_front_and_the_front_beats_everybody(every: list[ParetoPoint]) -> None:
    best = front(every)
    assert set(best) <= set(every)
    for one in every:
        assert any(kept.seconds <= one.seconds and kept.joules <= one.joules for kept in best)
    for kept in best:
        assert not any(
            (one.seconds <= kept.seconds and one.joules < kept.joules)
            or (one.seconds < kept.seconds and one.joules <= kept.joules)
            for one in every
        )


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=8), st.floats(0.1, 10))
def test_a_geometric_mean_scales_with_its_values(values: list[float], factor: float) -> None:
    assert min(values) <= geometric_mean(values) * (1 + 1e-12)
    assert geometric_mean(values) <= max(values) * (1 + 1e-12)
    assert geometric_mean(value * factor for value in values) == pytest.approx(factor * geometric_mean(values))


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\r\x00")), numbers), min_size=1))
def test_a_csv_holds_exactly_the_rows_of_its_panel(lines: list[tuple[str, float]]) -> None:
    panel = Panel("a", "A", ("word", "number"), rows(lines))
    read = list(csv.reader(io.StringIO(panel.csv(), newline="")))
    assert read[0] == ["word", "number"]
    assert [(word, float(number)) for word, number in read[1:]] == lines


def test_the_page_shows_text_as_text() -> None:
    row = compare(says("<b>", None), Number("figure_01.x", "&"))
    figure = Figure("figure_01", "<i>", lambda study: Result(), lambda axes, panel: None)
    section = Section(figure, "", (Picture(Panel("figure_01", "<u>", (), ()), b"png"),), (row,))
    page = html([section], [row], ["<s>"], Provenance(1, (), (), (), {"zeus": "<q>"}))
    for raw in ("<b>&", "<i>", "<u>", "<s>", "<q>"):
        assert raw not in page


def test_a_regret_that_is_not_known_is_not_counted_as_0() -> None:
    def row(policy: str, regret: float | None) -> GroupRow:
        return GroupRow("NeuMF", policy, 0, 1, 1, 1, 0, 1.0, 1.0, 1.0, regret, 0.5, 0.5)

    def below(zeus: float | None) -> Number:
        found = [row("paper", zeus), row("grid", 3.0), row("grid-free", 2.0)]
        return next(one for one in cluster.numbers(found, 1, "a note") if one.id == "figure_09.below_grid")

    assert [below(1.0).value, below(2.5).value] == [1, 0]
    unknown = below(None)
    assert unknown.value is None
    assert unknown.note.startswith("The regret on NeuMF is not known")


def test_a_quick_run_says_that_it_has_two_seeds(tmp_path: Path) -> None:
    quick = study.read(small_traces.write(tmp_path), seeds=2, quick=True)
    assert "two seeds instead of 20" in " ".join(pipeline.facts(quick))
    assert "quick" not in " ".join(pipeline.facts(replace(quick, quick=False)))
