"""Tables of a cluster's jobs are taken whole, or the line and the fault are named."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from support.published import TRACES
from zeus.errors import InputError
from zeus.simulate.cluster.composite import DLRM, PHILLY, composite
from zeus.simulate.cluster.tables import PAI_COLUMNS, read_groups
from zeus.simulate.traces.csv_tables import read_table

JOBS = """j1,i1,u,Terminated,100.0,160.0
j2,i2,u,Terminated,50.0,90.0
j3,i3,u,Failed,60.0,70.0
j4,i4,u,Running,80.0,
j5,i5,u,Waiting,,
j6,i6,u,Terminated,5.0,9.0
j7,i7,u,Terminated,7.0,7.0
j8,i8,u,Terminated,,9.0
"""
TAGS = "".join(f"i{n},u,,{'a' if n < 6 else ''},\n" for n in range(1, 8)) + "i8,u,V100,b,bert\n"


def plain(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "groups.csv"
    path.write_text(text)
    return path


def pai(tmp_path: Path, jobs: str = JOBS, tags: str = TAGS) -> Path:
    (tmp_path / "pai_job_table.csv").write_text(jobs)
    (tmp_path / "pai_group_tag_table.csv").write_text(tags)
    return tmp_path


def test_a_plain_table_is_grouped_by_start_and_what_did_not_end_is_dropped(tmp_path: Path) -> None:
    text = "group,start_time,end_time\nb,5,9\na,30,40\nb,1,2.5\na,10,\na,20,20\n"
    trace = read_groups(plain(tmp_path, text))
    assert [(g.name, list(g.starts), list(g.runtimes)) for g in trace.groups] == [
        ("a", [30.0], [10.0]),
        ("b", [1.0, 5.0], [1.5, 4.0]),
    ]
    assert (trace.jobs, trace.dropped, trace.groups[1].mean_runtime) == (3, 2, 2.75)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("a,1", r"line 3: 2 cells; needs 3 \(group, start_time, end_time\)"),
        (" ,1,2", "line 3: group is ' '; give a name"),
        ("a,x,2", "line 3: start_time is 'x'; give a finite number"),
        ("a,1,inf", "line 3: end_time is 'inf'; give a finite number"),
        ("a,3,2", "line 3: end_time 2 is before start_time 3"),
    ],
)
def test_a_fault_in_a_plain_table_is_named_with_its_line(tmp_path: Path, line: str, fault: str) -> None:
    path = plain(tmp_path, f"group,start_time,end_time\na,1,2\n{line}\n")
    with pytest.raises(InputError, match=rf"groups\.csv, {fault}"):
        read_groups(path)


def test_a_wrong_header_a_missing_file_and_an_empty_table_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 1: the header is start_time,group,end_time; it must be group,"):
        read_groups(plain(tmp_path, "start_time,group,end_time\n"))
    with pytest.raises(InputError, match=r"nowhere\.csv: cannot be read"):
        read_groups(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="none of 1 jobs succeeded"):
        read_groups(plain(tmp_path, "group,start_time,end_time\na,1,\n"))


MATCHED = """group,start_time,end_time,dataset,runtime_ratio
b,50,90,squad,0.5
a,10,20,cifar100,1.25
b,5,95,squad,1.5
a,30,,cifar100,9
"""


def matched(tmp_path: Path, text: str, compressed: bool) -> Path:
    path = tmp_path / ("groups.csv.xz" if compressed else "groups.csv")
    path.write_bytes(lzma.compress(text.encode()) if compressed else text.encode())
    return path


@pytest.mark.parametrize("compressed", [False, True])
def test_groups_that_the_authors_matched_keep_their_workload_and_ratios(tmp_path: Path, compressed: bool) -> None:
    trace = read_groups(matched(tmp_path, MATCHED, compressed))
    a, b = trace.groups
    assert (a.dataset, list(a.starts), list(a.runtimes), list(a.ratios or [])) == ("cifar100", [10.0], [10.0], [1.25])
    assert (b.dataset, list(b.starts), list(b.runtimes), list(b.ratios or [])) == (
        "squad",
        [5, 50],
        [90, 40],
        [1.5, 0.5],
    )
    assert (trace.jobs, trace.dropped) == (3, 1)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("a,1,2,cifar100", r"line 6: 4 cells; needs 5 \(group, start_time, end_time, dataset, runtime_ratio\)"),
        ("a,1,2,mnist,1", "line 6: dataset is 'mnist', not one of cifar100, imagenet, librispeech, movielens-1m, sent"),
        ("a,1,2,squad,1", "line 6: group a has dataset squad, but cifar100 in line 3"),
        ("a,1,2,cifar100,much", "line 6: runtime_ratio is 'much'; give a finite number"),
        ("a,1,2,cifar100,", "line 6: runtime_ratio is ''; give a finite number"),
        ("a,1,2,cifar100,0", "line 6: runtime_ratio is '0'; give a number above 0"),
        ("a,one,2,cifar100,1", "line 6: start_time is 'one'; give a finite number"),
        (",1,2,cifar100,1", "line 6: group is ''; give a name"),
    ],
)
def test_a_fault_in_a_matched_table_is_named_with_its_line(
    tmp_path: Path, line: str, fault: str, compressed: bool
) -> None:
    path = matched(tmp_path, f"{MATCHED}{line}\n", compressed)
    with pytest.raises(InputError, match=rf"groups\.csv.*, {fault}"):
        read_groups(path)


def test_a_compressed_table_that_is_cut_off_or_none_is_refused(tmp_path: Path) -> None:
    path = matched(tmp_path, MATCHED, compressed=True)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="not a whole file in the format of xz"):
        read_groups(path)
    path.write_text(MATCHED)
    with pytest.raises(InputError, match="not a whole file in the format of xz"):
        read_groups(path)


@pytest.mark.parametrize("header", [False, True])
def test_the_pai_tables_are_joined_and_only_jobs_that_terminated_are_kept(tmp_path: Path, header: bool) -> None:
    jobs = ("job_name,inst_id,user,status,start_time,end_time\n" if header else "") + JOBS
    tags = ("inst_id,user,gpu_type_spec,group,workload\n" if header else "") + TAGS
    trace = read_groups(pai(tmp_path, jobs, tags))
    assert [(g.name, list(g.starts), list(g.runtimes)) for g in trace.groups] == [("a", [50.0, 100.0], [40.0, 60.0])]
    assert (trace.dropped, trace.ungrouped) == (4, 2)  # j3, j4, j5 and j8, of no known start; j6 and j7, of no group


@pytest.mark.parametrize(
    ("jobs", "tags", "fault"),
    [
        ("j1,i1,u,Gone,1,2\n", TAGS, r"pai_job_table\.csv, line 1: status is 'Gone', not one of Terminated, Failed"),
        (JOBS + "j,i1,u,Failed,noon,2\n", TAGS, r"pai_job_table\.csv, line 9: start_time is 'noon'"),
        (JOBS, TAGS + ",u,,a,\n", r"pai_group_tag_table\.csv, line 9: inst_id is empty"),
        (JOBS, TAGS + "i1,u,,z,\n", r"pai_group_tag_table\.csv, line 9: i1 is in group z and in group a"),
    ],
)
def test_a_fault_in_the_pai_tables_is_named_with_its_line(tmp_path: Path, jobs: str, tags: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        read_groups(pai(tmp_path, jobs, tags))


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("pai_job_table", "4b3f,8cb3,5854,Terminated,4550879.0,4551416.0"),
        ("pai_group_tag_table", "f7f6,d2d3,,fbeb,"),
    ],
)
def test_each_pai_table_is_read_as_it_is_published(tmp_path: Path, table: str, row: str) -> None:
    path = tmp_path / f"{table}.csv"
    path.write_text(row + "\n")
    assert [list(cells.values()) for cells in read_table(path, PAI_COLUMNS[table])] == [row.split(",")]
    path.write_text(row + ",more\n")
    with pytest.raises(InputError, match=r"line 1: .* cells; needs"):
        list(read_table(path, PAI_COLUMNS[table]))


def test_a_composite_has_the_sizes_and_overlap_of_one_trace_and_durations_of_the_other(tmp_path: Path) -> None:
    (tmp_path / DLRM).parent.mkdir()
    (tmp_path / PHILLY).parent.mkdir()
    (tmp_path / DLRM).write_text(
        "instance_sn,app_name,creation_time,deletion_time\n1,x,0,100\n2,x,50,150\n3,x,,9\n4,y,0,1000\n5,x,500,600\n"
    )
    (tmp_path / PHILLY).write_text(
        "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,30,1,30,v\n2017-10-09 07:01:50,30,1,30,v\n"
        "2017-10-09 06:00:00,7000,8,1,v\n"
    )
    trace = composite(tmp_path)
    assert trace.source.startswith("composite: ")
    short, long = trace.groups
    assert (list(short.starts), list(short.runtimes)) == ([0.0, pytest.approx(15.0), pytest.approx(150.0)], [30.0] * 3)
    assert (long.name, list(long.runtimes)) == ("y", [7000.0])


def test_a_composite_of_nothing_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZEUS_DATA", raising=False)
    with pytest.raises(
        InputError, match=f"^the trace alibaba_.* is needed, and is not in the default folder, {tmp_path}"
    ):
        composite(tmp_path)
    monkeypatch.setenv("ZEUS_DATA", str(tmp_path))
    with pytest.raises(InputError, match=f"is not in ZEUS_DATA, {tmp_path}"):
        composite(tmp_path)
    with pytest.raises(InputError, match="Set ZEUS_DATA to the folder that holds alibaba_gpu_v2025_dlrm, or give"):
        composite(tmp_path)


@pytest.mark.parametrize(
    ("philly", "fault"),
    [
        (b"timestamp,duration,num_gpus,cluster\n\xff", "line 2: not a valid CSV"),
        (b"timestamp,duration,num_gpus,cluster\n1,2,3", "line 2: 3 cells; needs 4"),
        (b"timestamp,duration,num_gpus,cluster\n1,long,3,4", "line 2: duration is 'long'"),
        (b"timestamp,duration,cluster\n", "line 1: the header lacks num_gpus"),
        (b"timestamp,duration,num_gpus,cluster\n", "no job has a duration above 0"),
    ],
)
def test_a_fault_in_what_a_composite_is_made_of_is_named(tmp_path: Path, philly: bytes, fault: str) -> None:
    for part, text in ((DLRM, b"app_name,creation_time,deletion_time\nx,0,100\n\n"), (PHILLY, philly)):
        (tmp_path / part).parent.mkdir()
        (tmp_path / part).write_bytes(text)
    with pytest.raises(InputError, match=f"philly.csv.*{fault}"):
        composite(tmp_path)


@pytest.mark.data
@pytest.mark.skipif(not (TRACES.parent / DLRM).exists(), reason=f"{DLRM} is not in ZEUS_DATA")
def test_the_composite_of_the_published_traces() -> None:
    trace = composite(TRACES.parent)
    assert (len(trace.groups), trace.jobs) == (151, 12_375)
