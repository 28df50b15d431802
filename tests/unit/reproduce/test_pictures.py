"""What pictures show: sizes that can be read, labels that stand apart, and values at the right place."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from support import small_traces
from zeus.reproduce import drawing, pipeline, style
from zeus.reproduce.figures import FIGURES, figure
from zeus.reproduce.panel import HALF, THIRD, Panel
from zeus.reproduce.report import PIXELS_PER_INCH
from zeus.reproduce.study import Study, read

pytest.importorskip("matplotlib", reason="pictures need the extra `plots`")
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from zeus.reproduce.pareto_picture import LabelBox, draw_front
from zeus.reproduce.search_picture import draw_search

SMALLEST_LETTERS, ROW = 9.0, 1344  # pixels: as seen in a window 1400 wide, and the width of the page there


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Study:
    data = tmp_path_factory.mktemp("data")
    small_traces.write_others(data)
    return read(small_traces.write(data / "traces"), seeds=2, quick=True)


def drawn(panel: Panel, draw: object) -> Figure:
    from matplotlib import rc_context

    with rc_context(style.SETTINGS):
        figure = Figure(figsize=panel.size, dpi=100)
        draw(figure.add_subplot(), panel)  # type: ignore[operator]
        figure.draw_without_rendering()
    return figure


@pytest.mark.parametrize("name", FIGURES)
def test_a_picture_is_not_empty_and_its_letters_can_be_read(small: Study, name: str) -> None:
    panels = figure(name).compute(small).panels
    assert panels
    for panel in panels[:2]:
        seen: list[Axes] = []

        def draw(axes: Axes, panel: Panel, seen: list[Axes] = seen) -> None:
            seen.append(axes)
            figure(name).draw(axes, panel)

        png = Image.open(io.BytesIO(style.picture(panel, draw, 40)))
        assert png.size == pytest.approx([40 * side for side in panel.size], abs=1)
        colours = png.convert("RGB").getcolors(1 << 20)
        assert colours is not None
        white = sum(count for count, colour in colours if colour == (255, 255, 255))
        assert 1 - white / (png.width * png.height) > 0.02, panel.name
        assert len(colours) > 10, panel.name
        texts = [text for text in seen[0].get_figure().findobj(_written) if text.get_text()]
        smallest = min(text.get_fontsize() for text in texts)
        assert smallest / 72 * PIXELS_PER_INCH >= SMALLEST_LETTERS, panel.name


def _written(artist: object) -> bool:
    from matplotlib.text import Text

    return isinstance(artist, Text) and artist.get_visible()


def test_pictures_fill_a_row_of_the_report() -> None:
    gap = 12.8
    for size, many in ((THIRD, 3), (HALF, 2)):
        assert ROW - 20 < many * size[0] * PIXELS_PER_INCH + (many - 1) * gap <= ROW


def test_the_csv_holds_what_the_picture_shows(small: Study, tmp_path: Path) -> None:
    pipeline.reproduce(small, tmp_path, ("figure_01", "figure_13"), dpi=30)
    table = list(csv.DictReader((tmp_path / "figures" / "figure_01.csv").read_text().splitlines()))
    panel = figure("figure_01").compute(small).panels[0]
    bars = drawn(panel, figure("figure_01").draw).axes[0].patches
    heights = sorted(round(bar.get_height(), 9) for bar in bars)  # type: ignore[attr-defined]
    assert heights == sorted(round(float(row["energy_ratio"]), 9) for row in table)


BARS = Panel("bars", "", ("group", "series", "ratio"), (("a", "one", 0.5), ("a", "two", 40.0)))


def test_a_bar_stands_on_its_base_and_one_that_is_cut_off_says_its_value() -> None:
    axes = Figure().add_subplot()
    colours = {"one": style.BLUE, "two": style.RED}
    drawing.bars(axes, BARS, "group", "series", "ratio", colours, base=1.0, highest=10.0, written=drawing.digits)
    ends = [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in axes.patches]  # type: ignore[attr-defined]
    assert ends == [(1.0, 0.5), (1.0, 10.0)]
    assert [text.get_text() for text in axes.texts] == ["0.50", "40"]


def test_a_bar_that_is_cut_off_has_a_break_and_one_of_no_height_is_seen() -> None:
    rows = (("a", "one", 1.0), ("a", "two", 40.0))
    axes = Figure().add_subplot()
    colours = {"one": style.BLUE, "two": style.RED}
    drawing.bars(axes, Panel("bars", "", BARS.columns, rows), "group", "series", "ratio", colours, base=1.0, highest=10)
    ends = [(lines.get_segments()[0][0][1], lines.get_linewidth()[0]) for lines in axes.collections]  # type: ignore[attr-defined]
    assert [height for height, _ in ends] == [1.0, 10.0]
    assert all(width >= 2 for _, width in ends)
    breaks = [line for line in axes.lines if line.get_color() == "white"]
    assert [line.get_xdata()[0] for line in breaks] == pytest.approx([0.21, 0.21])  # type: ignore[index]


def test_the_legend_of_figure_2b_stands_below_the_points(small: Study) -> None:
    panel = figure("figure_02").compute(small).panels[1]
    shown = drawn(panel, figure("figure_02").draw)
    assert shown.axes[0].get_legend() is None
    assert shown.legends[0].get_window_extent().y1 < shown.axes[0].get_window_extent().y0


def test_a_front_too_small_to_be_seen_is_magnified() -> None:
    columns = ("batch_size", "limit_watts", "tta_seconds", "eta_joules", "on_front", "default")
    rows = ((8, 100, 10.0, 5.1, True, False), (8, 150, 10.1, 5.0, True, False), (64, 150, 90.0, 60.0, False, True))
    (inset,) = (
        drawn(Panel("c", "", columns, rows), lambda axes, panel: draw_front(axes, panel, zoom=True)).axes[0].child_axes
    )
    assert inset.get_xlim()[1] - inset.get_xlim()[0] < 1


def front_of(*points: tuple[int, float, float, float]) -> Panel:
    columns = ("batch_size", "limit_watts", "tta_seconds", "eta_joules", "on_front", "default")
    return Panel("b", "", columns, tuple((*point, True, False) for point in points), HALF)


def test_labels_of_points_side_by_side_stand_at_their_own_point() -> None:
    panel = front_of(  # the front of DeepSpeech2, rounded
        (48, 250, 3.996e4, 7.81e6), (48, 225, 4.111e4, 7.44e6), (56, 225, 4.147e4, 7.42e6), (48, 200, 4.266e4, 6.83e6),
        (48, 175, 4.464e4, 6.26e6), (48, 150, 4.579e4, 5.85e6), (32, 125, 4.903e4, 5.66e6), (48, 125, 4.990e4, 5.64e6),
        (32, 100, 5.760e4, 5.45e6),
    )  # fmt: skip
    figure = drawn(panel, lambda axes, panel: draw_front(axes, panel, zoom=True, annotate=True))
    axes = figure.axes[0]
    places = [axes.transData.transform(text.xy) for text in axes.texts]  # type: ignore[attr-defined]
    boxes = [LabelBox(*text.get_window_extent().extents) for text in axes.texts]

    def distance(box: LabelBox, x: float, y: float) -> float:
        return max(box.left - x, x - box.right, 0) + max(box.bottom - y, y - box.top, 0)

    for own, box in enumerate(boxes):
        assert min(range(len(places)), key=lambda i, box=box: distance(box, *places[i])) == own  # type: ignore[misc]
        assert sum(box.overlap(other) for other in boxes) == pytest.approx(box.overlap(box))


def test_a_search_shows_one_circle_for_each_configuration_and_how_often_it_was_tried() -> None:
    ground = [("configuration", None, size, limit, 0.1) for size in (8, 16) for limit in (100, 150)]
    tries = [("try", number, *pair, None) for number, pair in enumerate([(8, 100), (16, 100), *[(16, 150)] * 40], 1)]
    columns = ("kind", "recurrence", "batch_size", "limit_watts", "regret")
    axes = drawn(Panel("a", "", columns, (*ground, *tries), HALF), draw_search).axes[0]
    circles = axes.collections[-1]
    assert len(circles.get_offsets()) == 3  # type: ignore[arg-type]
    assert [text.get_text() for text in axes.texts] == ["40"]


def test_a_regret_below_zero_is_in_view() -> None:
    rows = tuple((method, n, mean, low, 2e8) for method in ("Grid Search", "Zeus")
                 for n, mean, low in ((1, 2e5, -5e5), (2, 4e6, -1e6), (3, 1e8, 4e7)))  # fmt: skip
    columns = ("method", "recurrence", "cumulative_regret", "low", "high")
    axes = drawn(Panel("figure_07b", "", columns, rows), figure("figure_07").draw).axes[0]
    assert axes.get_ylim()[0] < -1
    assert "0" in [label.get_text() for label in axes.get_yticklabels()]


def test_dates_stand_as_far_apart_as_they_are() -> None:
    columns = ("slice", "date", "batch_size", "limit_watts", "tries", "reached_target", "energy", "time")
    dates = ("2009-05-04", "2009-05-05", "2009-05-15")
    rows = tuple((n, day, 8, 100.0, 1, True, 10.0, 10.0) for n, day in enumerate(dates, 1))
    axes = drawn(Panel("figure_10a", "", columns, rows), figure("figure_10").draw).axes[0]
    first, second, third = axes.lines[0].get_xdata()
    assert (second - first, third - second) == (1, 10)
