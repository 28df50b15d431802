"""Files of hourly values: both formats, and what is refused, by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from zeus.errors import InputError
from zeus.tariff.rates import HourlyRate, Prices, hour_of
from zeus.tariff.settings import prices, read_rate

FIRST, SECOND = hour_of("2026-11-15T17:00Z"), hour_of("2026-11-15T18:00Z")


def written(folder: Path, text: str, name: str = "rates.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rates.csv", "hour,value\n2026-11-15T17:00Z,312.5\n2026-11-15T18:00:00+00:00,\n"),
        ("rates.csv", "\ufeffHour, Value\r\n2026-11-15T17:00:00Z, 312.5\r\n\r\n"),
        ("rates.json", '{"2026-11-15T17:00Z": 312.5, "2026-11-15T18:00Z": null}'),
    ],
)
def test_both_formats_are_read_and_an_empty_value_is_unknown(tmp_path: Path, name: str, text: str) -> None:
    rate = read_rate(str(written(tmp_path, text, name)), "carbon")
    assert isinstance(rate, HourlyRate)
    assert (rate.at(FIRST), rate.at(SECOND)) == (312.5, None)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("rates.csv", "time,price\n", "line 1: the heading is 'time,price'. Write `hour,value`"),
        ("rates.csv", "", "line 1: the heading is ''"),
        ("rates.csv", "hour,value\n2026-11-15T17:00Z,1\n2026-11-15T18:30Z,1\n", "line 3: '2026-11-15T18:30Z' is not"),
        ("rates.csv", "hour,value\n2026-11-15T17:00,1\n", "line 2: '2026-11-15T17:00' is not in UTC"),
        ("rates.csv", "hour,value\n2026-11-15T17:00Z,cheap\n", "line 2: 'cheap' is no value"),
        ("rates.csv", "hour,value\n2026-11-15T17:00Z,nan\n", "line 2: 'nan' is no value"),
        ("rates.csv", "hour,value\n2026-11-15T17:00Z,-4\n", "line 2: '-4' is no value. Give a number of at least 0"),
        ("rates.csv", "hour,value\n2026-11-15T17:00Z,1,2\n", "line 2: 3 cells"),
        (
            "rates.csv",
            "hour,value\n2026-11-15T17:00Z,1\n2026-11-15T17:00:00Z,2\n",
            "line 3: the hour .* is there twice",
        ),
        ("rates.json", "[1, 2]", "expected one object"),
        ("rates.json", "{", "is not JSON"),
        ("rates.json", '{"2026-11-15T17:00Z": 1,\n "noon": 2}', "'noon': 'noon' is not a time"),
        (
            "rates.json",
            '{"2026-11-15T17:00Z": 1,\n "2026-11-15T17:00Z": 2}',
            "the hour '2026-11-15T17:00Z' is there twice",
        ),
        ("rates.json", '{"2026-11-15T17:00Z": true}', "'2026-11-15T17:00Z': True is no value"),
        ("rates.json", '{"2026-11-15T17:00Z": {}}', "is no value"),
    ],
)
def test_a_bad_cell_is_refused_by_its_line(tmp_path: Path, name: str, text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read_rate(str(written(tmp_path, text, name)), "carbon", carbon=True)


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path, "hour,value\n2026-11-15T17:00Z,1\n")
    assert read_rate(str(path), "price") == HourlyRate({FIRST: 1.0})
    written(tmp_path, "hour,value\n2026-11-15T17:00Z,22\n")
    assert read_rate(str(path), "price") == HourlyRate({FIRST: 22.0})


def test_the_environment_gives_numbers_files_or_nothing(tmp_path: Path) -> None:
    plain = {"ZEUS_PRICE_PER_KWH": "0.3", "ZEUS_CURRENCY": "EUR", "ZEUS_GCO2E_PER_KWH": "380"}
    assert prices(plain) == Prices(0.3, "EUR", 380.0)
    assert prices({}) == Prices(None, "", None)
    path = written(tmp_path, "hour,value\n2026-11-15T17:00Z,0.4\n")
    assert prices({"ZEUS_PRICE_PER_KWH": str(path)}).per_kwh == HourlyRate({FIRST: 0.4})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ZEUS_PRICE_PER_KWH", "30 cents"),
        ("ZEUS_PRICE_PER_KWH", "nan"),
        ("ZEUS_PRICE_PER_KWH", "https://prices.example"),
        ("ZEUS_GCO2E_PER_KWH", "-1"),
    ],
)
def test_what_is_neither_number_nor_file_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InputError, match=f"{name}='{text}': give a number"):
        prices({name: text})


def test_a_folder_is_no_file_of_values(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"The file cannot be read: Is a directory\."):
        read_rate(str(tmp_path), "price")
