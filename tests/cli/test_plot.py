"""`tideline plot` and `tideline report`, as a user calls them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from PIL import Image

from tests.cli.conftest import Call
from tests.job import Job
from tests.unit.timeline.well_formed import elements

KINDS = ("gantt", "throughput", "lag", "sizes", "recovery")


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job with two committed epochs, a rolled-back one, and rejected rows; nothing is pending."""
    job = Job(tmp_path_factory.mktemp("crashed"))
    job.write()
    job.append("a.jsonl", range(100), bad=2)
    assert job.tideline("run").code == 0
    job.append("b.jsonl", range(100, 150))
    job.killed_at("task-written")
    assert job.tideline("run").code == 0
    return job


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_each_picture_is_written_in_the_format_that_its_name_asks_for(
    crashed: Job, call: Call, tmp_path: Path, kind: str
) -> None:
    png, svg = tmp_path / "new" / f"{kind}.png", tmp_path / f"{kind}.SVG"
    done = call("plot", crashed.file, "--kind", kind, "-o", png)
    assert done.code == 0, done.err
    assert str(png) in done.out
    with Image.open(png) as picture:
        assert picture.format == "PNG"
        assert picture.width > 1000
    assert call("plot", crashed.file, "--kind", kind, "-o", svg).code == 0
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")


def test_what_is_printed_says_what_the_picture_shows(crashed: Job, call: Call, tmp_path: Path) -> None:
    done = call("plot", crashed.file, "-o", tmp_path / "a.png")
    assert "2 instants completed, 1 rolled back" in done.out
    lag = call("plot", crashed.file, "--kind", "lag", "-o", tmp_path / "b.png")
    assert "Lag: none; 2 shards read to the end" in lag.out


def test_limit_and_since_choose_instants(crashed: Job, call: Call, tmp_path: Path) -> None:
    newest = call("plot", crashed.file, "--limit", "1", "-o", tmp_path / "a.png")
    assert "1 instant completed" in newest.out
    assert "rolled back" not in newest.out
    none = call("plot", crashed.file, "--since", "2999-01-01", "-o", tmp_path / "a.png")
    assert "no instants" in none.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kind", "pie"), "gantt"),
        (("-o", "a.jpg"), ".png or .svg"),
        (("-o", "a"), ".png or .svg"),
        (("--since", "yesterday"), "--since"),
    ],
)
def test_a_wrong_command_says_what_is_allowed(crashed: Job, call: Call, arguments: tuple[str, ...], said: str) -> None:
    done = call("plot", crashed.file, *arguments)
    assert done.code == 2
    assert said in done.err


def test_looking_leaves_storage_as_it_is(crashed: Job, call: Call, tmp_path: Path) -> None:
    before = everything(crashed.folder)
    for kind in KINDS:
        call("plot", crashed.file, "--kind", kind, "-o", tmp_path / "a.png")
    call("report", crashed.file, "-o", tmp_path / "report.html")
    assert everything(crashed.folder) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "report.html"]


def test_the_report_of_a_job_that_recovered_says_that_all_is_well(crashed: Job, call: Call, tmp_path: Path) -> None:
    done = call("report", crashed.file, "-o", tmp_path / "report.html")
    assert done.code == 0, done.err
    assert "all is well. Epoch 2 is the last one" in done.out
    page = (tmp_path / "report.html").read_text()
    elements(page)
    for words in ("All is well", "malformed JSON", "not prepared", "b.jsonl", "Nothing is pending"):
        assert words in page, words


def test_the_report_of_a_pending_epoch_says_what_recovery_would_do(job: Job, call: Call, tmp_path: Path) -> None:
    job.killed_at("manifest")
    done = call("report", job.file, "-o", tmp_path / "report.html")
    assert done.code == 0, done.err
    assert "something has to be done" in done.out
    assert f"tideline recover {job.file}" in done.out
    page = (tmp_path / "report.html").read_text()
    assert "claim commit" in page
    assert "prepared: 100 rows, 2 rejected, 2 files" in page
    assert job.pending(), "a report settles nothing"


def test_a_job_that_has_not_begun_can_be_looked_at(job: Job, call: Call, tmp_path: Path) -> None:
    for kind in KINDS:
        assert call("plot", job.file, "--kind", kind, "-o", tmp_path / f"{kind}.png").code == 0
    done = call("report", job.file, "-o", tmp_path / "report.html")
    assert done.code == 0, done.err
    assert "has not begun" in done.out
    assert "Traceback" not in done.err


def test_a_source_that_is_gone_is_told_and_stops_nothing(crashed: Job, call: Call, tmp_path: Path) -> None:
    logs = crashed.folder / "logs"
    logs.rename(crashed.folder / "away")
    try:
        done = call("report", crashed.file, "-o", tmp_path / "report.html")
        plotted = call("plot", crashed.file, "--kind", "lag", "-o", tmp_path / "lag.png")
    finally:
        (crashed.folder / "away").rename(logs)
    assert (done.code, plotted.code) == (0, 0)
    assert "does not exist any more" in (tmp_path / "report.html").read_text()


def test_a_picture_replaces_the_one_before_in_one_step(crashed: Job, call: Call, tmp_path: Path) -> None:
    target = tmp_path / "a.png"
    target.write_bytes(b"old")
    opened = target.open("rb")
    with opened:
        call("plot", crashed.file, "-o", target)
        assert opened.read() == b"old", "who reads the old one still has it"
    assert target.read_bytes() != b"old"
