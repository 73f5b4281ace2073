"""A sink and a store of a package outside of the tree do in a job what Tideline's own do."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.job import LOCAL, ROOT, SPARK, Finished, Job, run
from tests.plugins.distribution import ENTRY_POINTS, PACKAGE, install

HOW_TO = ROOT / "docs" / "how-to"

OTHER_FORMAT = 99
"""The id of a row whose time is written in another format, so that it is rejected at first."""


class PluginJob(Job):
    """A job whose commands are processes that find the package of these tests, and that has a target in SQLite."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = install(folder / "packages")

    def command(self, command: str, *options: str, crash_at: str = "", on_spark: bool = False) -> Finished:
        """Run a command as a user does who has the package installed."""
        env = {"PYTHONPATH": self.path} | ({"TIDELINE_CRASH_AT": crash_at} if crash_at else {})
        return self.tideline(command, *options, program=SPARK if on_spark else LOCAL, env=env)

    def rows(self, file: str = "rows.db") -> list[dict[str, Any]]:
        """What is visible in a SQLite target, read without Tideline."""
        with closing(sqlite3.connect(self.folder / file)) as db:
            bodies = db.execute("SELECT body FROM chunks WHERE epoch IS NOT NULL").fetchall()
        return [row for (body,) in bodies for row in pa.ipc.open_stream(body).read_all().to_pylist()]

    def invisible(self, file: str = "rows.db") -> int:
        """Batches that no reader sees."""
        with closing(sqlite3.connect(self.folder / file)) as db:
            return int(db.execute("SELECT count(*) FROM chunks WHERE epoch IS NULL").fetchone()[0])


@pytest.fixture
def job(tmp_path: Path) -> Iterator[PluginJob]:
    """Dated lines, and malformed ones, into a Delta table and a SQLite file; the timeline is in another one."""
    job = PluginJob(tmp_path)
    (tmp_path / "logs").mkdir()
    write(job, "%Y-%m-%d")
    append(job, range(1, 6), bad=2)
    yield job
    job.close()


def write(job: PluginJob, timestamp_format: str, **changes: Any) -> None:
    """Write the job file."""
    blocks = {
        "source": job.source(timestamp_format=timestamp_format),
        "schema": {"id": "bigint", "at": "timestamp"},
        "targets": [
            {"type": "delta", "path": f"{job.folder}/lake"},
            {"type": "sqlite", "name": "rows", "file": f"{job.folder}/rows.db"},
        ],
        "timeline": {"path": f"sqlite://{job.folder}/timeline.db/jobs/cli"},
    }
    job.write(**blocks | changes)


def append(job: PluginJob, days: range, *, bad: int = 0) -> None:
    """Append rows, then malformed lines, to the log."""
    with (job.folder / "logs" / "days.jsonl").open("a") as out:
        out.writelines(f'{{"id": {day}, "at": "2026-03-{day:02}"}}\n' for day in days)
        out.writelines(f"{{malformed {number}\n" for number in range(bad))


def without_blank_lines(text: str) -> list[str]:
    """The lines that say something: a page may cut a class between two methods."""
    return [line for line in text.splitlines() if line.strip()]


def ids(job: PluginJob, file: str = "rows.db") -> Counter[int]:
    """How often each id is in a SQLite target."""
    return Counter(row["id"] for row in job.rows(file))


def test_epochs_reach_a_foreign_target_exactly_once_and_every_command_knows_it(job: PluginJob) -> None:
    for _ in range(2):
        ran = job.command("run", "--once")
        assert ran.code == 0, ran.err
        assert ids(job) == job.ids() == Counter(range(1, 6))
    append(job, range(6, 9))
    with (job.folder / "logs" / "days.jsonl").open("a") as out:
        out.write(f'{{"id": {OTHER_FORMAT}, "at": "31.12.2026"}}\n')
    assert job.command("run", "--once", crash_at="decided").code == -signal.SIGKILL
    recovered = job.command("recover", "--force")
    assert recovered.code == 0, recovered.err
    assert ids(job) == job.ids() == Counter(range(1, 9))
    append(job, range(9, 12))
    assert job.command("run", "--once", crash_at="written").code == -signal.SIGKILL
    assert job.invisible() > 0
    assert job.command("run", "--once").code == 0
    assert ids(job) == job.ids() == Counter(range(1, 12))
    assert job.invisible() == 0

    shown = job.command("show", "--json")
    assert shown.code == 0, shown.err
    assert "sqlite" not in shown.err and shown.out.count('"commit"') >= 3
    checked = job.command("fsck", "--json")
    assert checked.code == 0, checked.out + checked.err
    assert checked.json["checked"]["rows"] == "nothing: it has no way to be compared"
    read = job.command("read", "--json", "--limit", "100")
    assert read.code == 0, read.err
    assert [json.loads(line)["id"] for line in read.out.splitlines()] == list(range(1, 12))
    table = job.command("read", "--limit", "2")
    assert sorted(table.out.split()[:2]) == ["at", "id"] and len(table.out.splitlines()) == 3
    report = job.command("report", "--output", f"{job.folder}/report.html")
    assert report.code == 0, report.err
    assert "rows" in (job.folder / "report.html").read_text()

    write(job, "%d.%m.%Y")
    replayed = job.command("replay-quarantine")
    assert replayed.out == "cli: 3 records replayed: 1 accepted, 2 rejected again\n", replayed.err
    assert ids(job) == job.ids() == Counter([*range(1, 12), OTHER_FORMAT])


def test_rejected_records_are_replayed_from_a_foreign_quarantine_once(job: PluginJob) -> None:
    quarantine = {"type": "sqlite", "name": "quarantine", "file": f"{job.folder}/bad.db"}
    write(job, "%d.%m.%Y", quarantine=quarantine)
    assert job.command("run", "--once").code == 0
    write(job, "%Y-%m-%d", quarantine=quarantine)
    assert job.command("replay-quarantine", crash_at="decided").code == -signal.SIGKILL
    assert job.command("recover", "--force").code == 0
    replayed = job.command("replay-quarantine")
    assert replayed.out.splitlines()[0] == "none of 2 records rejected would be accepted now: nothing was written"
    assert ids(job) == job.ids() == Counter(range(1, 6))
    assert Counter(row["epoch"] for row in job.rows("bad.db")) == {0: 7, 1: 2}


@pytest.mark.spark
@pytest.mark.slow
def test_rows_of_a_query_are_given_to_a_foreign_target(job: PluginJob) -> None:
    target = {"type": "sqlite", "name": "rows", "file": f"{job.folder}/rows.db"}
    query = "SELECT id * 10 AS id, date_format(at, 'dd') AS day FROM source WHERE id <> 3"
    places = {"timeline": {"path": f"sqlite://{job.folder}/timeline.db"}, "quarantine": {"path": f"{job.folder}/bad"}}
    write(job, "%Y-%m-%d", targets=[target], transform=query, **places)
    assert job.command("run", "--once", crash_at="decided", on_spark=True).code == -signal.SIGKILL
    assert not job.rows()
    ran = job.command("run", "--once", on_spark=True)
    assert ran.code == 0, ran.err
    assert job.rows() == [{"id": day * 10, "day": f"{day:02}"} for day in (1, 2, 4, 5)]
    shown = job.command("show", "--json")
    assert '"dropped": 1' in shown.out, shown.out
    assert job.invisible() == 0


def test_a_foreign_store_is_checked_as_ours_are(job: PluginJob) -> None:
    url = f"sqlite://{job.folder}/checked.db/lake"
    checked = run([*LOCAL, "check-store", url, "--quick", "--json"], cwd=job.folder, env={"PYTHONPATH": job.path})
    assert checked.code == 0, checked.out + checked.err
    assert checked.json["safe"] and checked.json["url"] == url
    verdicts = {check["check"]: check["verdict"] for check in checked.json["checks"]}
    assert verdicts["put-if-absent"] == verdicts["crashes are recovered"] == "ok"
    assert verdicts["Delta versions"] == "skipped"
    with closing(sqlite3.connect(job.folder / "checked.db")) as db:
        assert db.execute("SELECT count(*) FROM objects").fetchone() == (0,)


def test_what_a_foreign_store_cannot_hold_is_refused_by_name(job: PluginJob) -> None:
    write(job, "%Y-%m-%d", targets=[{"type": "delta", "path": f"sqlite://{job.folder}/lake.db"}])
    refused = job.command("run", "--once")
    assert refused.code == 2
    assert "allowed are local paths and s3:// URLs" in " ".join(refused.err.split())
    write(job, "%Y-%m-%d", timeline={"path": f"sqlite3://{job.folder}/timeline.db"})
    unknown = job.command("run", "--once")
    assert unknown.code == 2
    assert "file://, s3://, memory://, sqlite://" in " ".join(unknown.err.split())


@pytest.mark.parametrize("name", ["sink", "store"])
def test_the_how_to_shows_the_code_of_these_tests(name: str) -> None:
    page = (HOW_TO / f"write-your-own-{name}.md").read_text(encoding="utf-8")
    shown = "".join(re.findall(r"```python\n(.*?)```", page, re.S))
    assert without_blank_lines(shown) == without_blank_lines((PACKAGE / f"{name}.py").read_text(encoding="utf-8"))
    (entry_point,) = (block for block in ENTRY_POINTS.split("\n\n") if block.startswith(f"[tideline.{name}s]"))
    assert entry_point.strip() in page
