"""The trace readers take a file whole or name the line and the fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.paths import ROOT
from support.published import needs_every_card
from zeus.errors import InputError
from zeus.simulate.traces.published import gpus
from zeus.simulate.traces.rows import (
    POWER_COLUMNS,
    TRAINING_COLUMNS,
    PowerRow,
    TrainingRow,
    published,
    read_power,
    read_training,
)
from zeus.simulate.workload_file import table_1

names = st.text("abcdefghijklmnopqrstuvwxyz0123456789_-", min_size=1, max_size=12)
whole = st.integers(1, 10**6)
positive = st.floats(1e-9, 1e9)

power_rows = st.lists(
    st.builds(PowerRow, names, names, whole, names, positive, positive, positive),
    min_size=1,
    max_size=6,
    unique_by=lambda r: (r.workload, r.batch_size, r.limit_watts),
)
training_rows = st.lists(
    st.builds(
        TrainingRow,
        names,
        names,
        whole,
        names,
        positive,
        whole,
        st.just(0.0) | positive,
        st.none() | st.integers(1, 500),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda r: (r.workload, r.batch_size, r.learning_rate, r.run, r.target_metric),
)
FORMATS = {
    "power": (POWER_COLUMNS, read_power, power_rows),
    "training": (TRAINING_COLUMNS, read_training, training_rows),
}
TEXT = {"dataset", "network", "optimizer"}
files = settings(  # each example writes the file anew
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def cells(row: PowerRow | TrainingRow) -> list[str]:
    return ["nan" if (v := getattr(row, field)) is None else str(v) for field in type(row).__slots__]


def write(folder: Path, table: list[list[str]]) -> Path:
    path = folder / "trace.csv"
    path.write_text("".join(",".join(line) + "\n" for line in table), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", FORMATS)
@files
@given(data=st.data())
def test_what_was_written_is_read_back(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    columns, read, rows = FORMATS[kind]
    table = data.draw(rows)
    assert read(write(tmp_path, [list(columns), *map(cells, table)])) == table


@pytest.mark.parametrize("kind", FORMATS)
@files
@given(data=st.data())
def test_every_single_corrupt_cell_is_reported_with_file_line_and_column(
    tmp_path: Path, kind: str, data: st.DataObject
) -> None:
    columns, read, rows = FORMATS[kind]
    table = [list(columns), *map(cells, data.draw(rows))]
    line = data.draw(st.integers(2, len(table)))
    column = data.draw(st.integers(0, len(columns) - 1))
    wrong = (
        ["", " ", " a", "a "] if columns[column] in TEXT else ["", "x", "-1", "inf", "1 ", "1_0", "0x1", "NaN", "--"]
    )
    if columns[column] not in {*TEXT, "target_epoch"}:
        wrong.append("nan")
    if columns[column] not in {*TEXT, "target_metric"}:
        wrong.append("0")
    table[line - 1][column] = data.draw(st.sampled_from(wrong))
    path = write(tmp_path, table)
    with pytest.raises(InputError) as caught:
        read(path)
    assert f"{path}, line {line}: {columns[column]} is " in str(caught.value)


@pytest.mark.parametrize("kind", FORMATS)
@files
@given(data=st.data())
def test_a_line_too_short_too_long_or_twice_is_reported(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    columns, read, rows = FORMATS[kind]
    table = [list(columns), *map(cells, data.draw(rows))]
    at = data.draw(st.integers(1, len(table) - 1))
    short, long, empty = [[*t] for t in (table, table, table)]
    short[at], long[at], empty[at] = short[at][:-1], [*long[at], "1"], [""]
    for broken in (short, long, empty):
        with pytest.raises(InputError, match=f"line {at + 1}: .* cells; needs {len(columns)}"):
            read(write(tmp_path, broken))
    with pytest.raises(InputError, match=f"line {len(table) + 1}: same key as line {at + 1}"):
        read(write(tmp_path, [*table, table[at]]))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_wrong_header_names_the_column(tmp_path: Path, kind: str) -> None:
    columns, read, _ = FORMATS[kind]
    for gone in columns:
        with pytest.raises(InputError, match=f"line 1: the header lacks {gone};"):
            read(write(tmp_path, [[c for c in columns if c != gone]]))
    with pytest.raises(InputError, match="line 1: the header has the extra column colour;"):
        read(write(tmp_path, [[*columns, "colour"]]))
    with pytest.raises(InputError, match=r"line 1: columns .* out of order"):
        read(write(tmp_path, [list(reversed(columns))]))
    with pytest.raises(InputError, match="line 1: the file has no rows"):
        read(write(tmp_path, [list(columns)]))


def test_a_file_that_is_absent_empty_or_not_text_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.csv: cannot be read"):
        read_power(tmp_path / "absent.csv")
    with pytest.raises(InputError, match=r"trace\.csv, line 1: the file has no rows"):
        read_power(write(tmp_path, []))
    good = [f"a,b,{size},c,100,1.5,90\n" for size in range(1, 2001)]  # more than is read from a disk at once
    (tmp_path / "bytes.csv").write_bytes("".join([",".join(POWER_COLUMNS) + "\n", *good]).encode() + b"\xff\xfe\n")
    with pytest.raises(InputError, match=r"bytes\.csv, line 2002: not a valid CSV"):
        read_power(tmp_path / "bytes.csv")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_the_byte_order_mark_of_windows_are_read(tmp_path: Path, mark: bytes) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(mark + (",".join(POWER_COLUMNS) + "\r\na,b,8,c,100,1.5,90\r\n").encode())
    assert read_power(path) == [PowerRow("a", "b", 8, "c", 100.0, 1.5, 90.0)]


def traces() -> Path:
    data = published(ROOT)
    if not data.is_dir():
        pytest.skip(f"the published traces are not in {data}; set ZEUS_DATA to the folder that holds nsdi23_traces")
    return data


@pytest.mark.data
@needs_every_card
def test_the_published_traces_are_read_whole() -> None:
    rows = {gpu: len(read_power(traces() / f"summary_power_{gpu}.csv")) for gpu in gpus(traces())}
    assert rows == {"a40": 453, "p100": 270, "rtx6000": 410, "v100": 476}
    training = read_training(traces() / "summary_train.csv")
    assert len(training) == 3759
    assert sum(row.target_epoch is None for row in training) == 849
    assert {row.workload for row in training} == {setting.key for setting in table_1().values()}
