"""Which input files are the published ones."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support import small_traces
from support.published import TRACES, needs_traces
from zeus.reproduce import pipeline, provenance, study
from zeus.reproduce.figures import FIGURES
from zeus.reproduce.provenance import InputFile, Match, Provenance, check, counts, sources
from zeus.reproduce.report import html
from zeus.simulate.cluster.composite import composite

ALL = pipeline.ALL


def one(folder: str) -> provenance.DataSource:
    (found,) = (source for source in sources() if source.folder == folder)
    return found


def states(found: list[InputFile]) -> dict[str, Match]:
    return {file.name: file.match for file in found}


def test_a_file_is_the_same_or_differs_or_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"timestamp,duration,num_gpus,cluster\n"
    source = replace(one("philly_jobs_adaptdl"), files={
        "a.csv": hashlib.sha256(text).hexdigest(), "b.csv": hashlib.sha256(text).hexdigest(), "c.csv": "0" * 64,
    })  # fmt: skip
    monkeypatch.setattr(provenance, "sources", lambda: [source])
    folder = tmp_path / source.folder
    folder.mkdir()
    (folder / "a.csv").write_bytes(text)
    (folder / "b.csv").write_bytes(text + b"\n")
    found = check(tmp_path, tmp_path, ALL)
    assert [file.match for file in found] == [Match.SAME, Match.DIFFERS, Match.ABSENT]
    assert [file.to_json()["match"] for file in found] == ["same", "differs", "absent"]
    assert found[2].to_json()["sha256"] is None
    assert counts(found) == "Input files: 1 as published, 1 different, 1 absent."

    page = html([], [], [], Provenance(2, ("v100",), ("figure_09",), tuple(found), {}))
    assert "These input files differ from the published ones: philly_jobs_adaptdl/b.csv." in page
    for word in ("as published", "different", "absent", "commit c793c7089bd3", "CC BY 4.0"):
        assert word in page


def test_the_report_does_not_warn_if_no_file_differs(tmp_path: Path) -> None:
    assert "differ from" not in html(
        [], [], [], Provenance(2, ("v100",), ALL, tuple(check(tmp_path, tmp_path, ALL)), {})
    )


def test_the_papers_traces_may_lie_in_any_folder_and_the_others_below_the_data(tmp_path: Path) -> None:
    traces, data = small_traces.write(tmp_path / "mine"), tmp_path / "data"
    small_traces.write_others(data)
    found = states(check(traces, data, ALL))
    assert found["nsdi23_traces/summary_train.csv"] is Match.DIFFERS
    assert found["nsdi23_traces/summary_power_p100.csv"] is Match.ABSENT
    assert {match for name, match in found.items() if not name.startswith("nsdi23_traces/")} == {Match.DIFFERS}


def test_only_files_that_the_figures_read_are_checked(tmp_path: Path) -> None:
    def folders(*names: str) -> set[str]:
        return {file.source.folder for file in check(tmp_path, tmp_path, names)}

    assert folders("figure_01") == {"nsdi23_traces"}
    assert folders("figure_01", "figure_10") == {"nsdi23_traces", "sentiment140_sample"}
    assert folders(*ALL) == {source.folder for source in sources()}


def test_every_source_says_where_it_comes_from_and_which_figures_read_it() -> None:
    for source in sources():
        assert source.repository.startswith("github.com/"), source.folder
        assert source.what, source.folder
        assert source.licence, source.folder
        assert set(source.read_by) <= set(ALL), source.folder
        assert all(len(digest) == 64 for digest in source.files.values()), source.folder
        assert not source.commit or len(source.commit) == 40, source.folder


def test_groups_of_the_users_replace_the_files_of_the_composite_cluster(tmp_path: Path) -> None:
    small_traces.write_others(tmp_path)
    known = study.read(small_traces.write(tmp_path / "traces"))

    def folders(one: study.Study) -> set[str]:
        return {file.source.folder for file in pipeline.input_files(one, ALL)}

    composed = {"alibaba_gpu_v2025_dlrm", "philly_jobs_adaptdl"}
    assert folders(known) - folders(replace(known, groups=composite(tmp_path))) == composed


OPENED: list[str] | None = None


def watch(event: str, arguments: Any) -> None:
    if OPENED is not None and event == "open" and isinstance(arguments[0], (str, Path)):
        OPENED.append(str(arguments[0]))


def test_a_run_reads_no_data_file_that_is_not_in_the_table(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `plots`")
    global OPENED
    traces = small_traces.write(tmp_path / "data" / "nsdi23_traces")
    small_traces.write_others(tmp_path / "data")
    sys.addaudithook(watch)  # for good, but it looks only while this test runs
    OPENED = []
    try:
        known = study.read(traces, seeds=1, quick=True)
        for one in FIGURES.values():
            one.compute(known)
        opened = {Path(path) for path in OPENED}
    finally:
        OPENED = None
    read = {str(path.relative_to(tmp_path / "data")) for path in opened if path.is_relative_to(tmp_path / "data")}
    listed = {f"{source.folder}/{path}" for source in sources() for path in source.files}
    assert {name for name in read if name.endswith(".csv")} <= listed
    assert {"nsdi23_traces/summary_train.csv", "philly_jobs_adaptdl/philly.csv"} <= read


class TestThePublishedData:
    pytestmark = needs_traces

    def test_the_traces_at_hand_are_the_published_ones(self) -> None:
        found = check(TRACES, TRACES.parent, ("figure_01",))
        assert {file.match for file in found} == {Match.SAME}
