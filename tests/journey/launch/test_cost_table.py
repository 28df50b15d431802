"""[cost] in a job file: price and carbon of each hour, in what `zeus run`, `zeus jobs` and the page's JSON tell.

A script that uses ZeusDataLoader works on a virtual clock, so every joule and hour is known, and the test reckons money
and carbon itself from the series.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.launch_place import Place
from support.waiting import PATIENCE_SECONDS
from zeus.service.dashboard.export import export
from zeus.tariff.rates import hour_of, hour_text

pytestmark = pytest.mark.usefixtures("warm")

FIRST = hour_of("2023-11-14T22:00Z")  # the hour in which virtual clocks begin
TRAINING = """
import sys, torch
from zeus.device.virtual import step
from zeus.training.loader import ZeusDataLoader

data = torch.utils.data.TensorDataset(torch.zeros(512, 1))
loader = ZeusDataLoader(data, batch_size=16, max_epochs=6, target_metric=0.9)
for epoch in loader.epochs():
    for _ in loader:
        loader._zeus_virtual[0].machine.clock.sleep(40.0)  # steps so long that a run lasts hours
    loader.report_metric(0.3 * (epoch + 1))
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    pytest.importorskip("torch")
    here = Place(tmp_path, gpu="virtual:v100?clock=virtual")
    (tmp_path / "train.py").write_text(TRAINING)
    prices = {hour_text(FIRST + one): 0.1 * (one + 1) for one in range(48)}
    (tmp_path / "price.json").write_text(json.dumps(prices))
    carbon = [(hour_text(FIRST + one), 300 + 10 * one) for one in range(48)]
    (tmp_path / "carbon.csv").write_text("hour,value\n" + "".join(f"{hour},{value}\n" for hour, value in carbon))
    return here


def write_job(place: Place, cost: str) -> None:
    place.job(metrics="", more=f"[cost]\n{cost}", command="python train.py", policy="default", batch_sizes=[16])


def shown(place: Place) -> dict[str, Any]:
    command = [sys.executable, "-m", "zeus.cli", "jobs", "show", "toy", "--json"]
    done = subprocess.run(
        command, env=place.env, cwd=place.folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_job_with_hourly_series_is_priced_hour_by_hour(place: Place) -> None:
    write_job(place, 'price = "price.json"\ncarbon = "carbon.csv"\ncurrency = "EUR"')
    report = place.report()
    (row,) = report["recurrences"]
    (one,) = row["tries"]
    hours = one["hours"]
    assert len(hours) >= 2
    assert sum(hour["joules"] for hour in hours) == pytest.approx(one["joules"])
    money = grams = 0.0
    for hour in hours:  # by hand, from the series
        number = hour_of(hour["hour"]) - FIRST
        assert (hour["price"], hour["gco2e_per_kwh"]) == (pytest.approx(0.1 * (number + 1)), 300 + 10 * number)
        money += hour["joules"] / 3.6e6 * 0.1 * (number + 1)
        grams += hour["joules"] / 3.6e6 * (300 + 10 * number)
    for told in (one["footprint"], row["footprint"], shown(place)["footprint"]):
        assert told["kwh"] == pytest.approx(one["joules"] / 3.6e6)
        assert (told["money"], told["gco2e"]) == (pytest.approx(money), pytest.approx(grams))
        assert (told["currency"], told["money_covers"], told["hours_by"]) == ("EUR", pytest.approx(1.0), "time")
    page = export(place.store())
    data = json.loads(page.split("window.ZEUS_DATA = ")[1].split(";</script>")[0])
    assert data["full"]["toy"]["footprint"]["money"] == pytest.approx(money)
    assert data["summary"]["footprint"]["gco2e"] == pytest.approx(grams)


def test_a_run_says_what_it_came_to_and_the_script_does_too(place: Place) -> None:
    write_job(place, 'price = 0.5\ncurrency = "EUR"\ncarbon = 400')
    done = place.run()
    assert done.returncode == 0, done.stderr
    used = shown(place)
    kwh = used["joules"] / 3.6e6
    line = f"{kwh:.3g} kWh, {0.5 * kwh:.2f} EUR, {400 * kwh:.3g} gCO2e"
    assert line in done.stdout
    log = next((place.folder).rglob("1.log"), None) or next(Path(place.env["ZEUS_STORE"][10:]).parent.rglob("1.log"))
    assert f"({line})" in log.read_text()


def test_hours_that_the_series_lacks_are_unknown_not_free(place: Place) -> None:
    (place.folder / "price.json").write_text(json.dumps({hour_text(FIRST): 0.2}))
    write_job(place, 'price = "price.json"')
    done = place.run()
    used = shown(place)["footprint"]
    first = shown(place)["tries"][0]["hours"][0]["joules"]
    assert used["money"] is None
    assert used["known_money"] == pytest.approx(first / 3.6e6 * 0.2)
    assert 0 < used["money_covers"] < 1
    assert "(the price of the rest is unknown)" in done.stdout


@pytest.mark.parametrize(
    ("cost", "why"),
    [
        ('price = "no-such-file.csv"', "price='no-such-file.csv': give a number, or a CSV or JSON file"),
        ("carbon = -4", "carbon='-4': give a number of at least 0"),
        ("price = true", "price = true: give a number, or the name of a CSV or JSON file of hourly values."),
        ('carbn = "x.csv"', "carbn is not known in [cost]. Did you mean 'carbon'?"),
    ],
)
def test_a_wrong_cost_table_is_refused_by_its_line(place: Place, cost: str, why: str) -> None:
    write_job(place, cost)
    done = place.run()
    assert done.returncode == 2
    number = next(n for n, line in enumerate((place.folder / "job.toml").read_text().splitlines(), 1) if line == cost)
    assert f"job.toml, line {number}: {why}" in done.stderr
