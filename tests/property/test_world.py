"""Changes by others between any two steps: a table or the timeline is changed, or a log rotated.

The changes come between runs, within a run at each crash point, and after a run that was killed at one. Each run ends
exact (the table has every written line once), or is refused; once the change is undone, the next run is exact again.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ingest.config.load import load_config
from ingest.driver.build import open_timeline
from ingest.driver.loop import IngestLoop
from ingest.driver.put_back import ReplayRequest, put_back
from ingest.driver.run_resources import RunResources
from ingest.driver.summary import Mode
from ingest.driver.takeover import run_recovery
from ingest.execution.runner import LocalRunner
from tests.sampling import share
from timeline import failpoints
from timeline.active import ActiveTimeline, states_before
from timeline.errors import TidelineError
from timeline.instant import Action
from timeline.lease import WRITER, latest_writer, writer_path
from timeline.stores.base import Retry
from timeline.stores.opening import open_store

pytestmark = pytest.mark.timeout(3600)

POINTS = (
    *("planned", "requested", "inflight", "task-started", "task-written", "written", "manifest", "decided"),
    *("part-committing", "part-committed", "applied", "completed"),
)
OF_THE_TABLE = ("restore", "remove", "overwrite", "anew")
CHANGES = (
    *OF_THE_TABLE,
    "decision",
    "plan",
    "manifest",
    "completed",
    "newest",
    "instants",
    "all",
)
ROTATIONS = ("rename", "copy, then truncate")


NO_ROWS = pa.table({"id": pa.array([], pa.int64())})


class Killed(BaseException):
    """Raised at a crash point, to end the run."""


class World(RuleBasedStateMachine):
    """A job over log files that are rotated, one Delta table, and a timeline beside the table."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tideline-world-"))
        self.logs, self.lake, self.timeline = (self.folder / name for name in ("logs", "lake", "timeline"))
        self.logs.mkdir()
        self.written = 0
        self.rotated = 0
        self.is_copied = False
        self.undo: Path | None = None
        self.changed = ""
        self.names = ["a", "b"]
        self._write_job()
        self.append(5)
        self.run()

    def _write_job(self) -> None:
        name, _ = self.names
        job = {
            "name": "world",
            "source": {"type": "files", "path": f"{self.logs}/a.log*", "format": "json", "close_after": "0s"},
            "schema": {"id": "bigint"},
            "targets": [{"type": "delta", "path": str(self.lake), "name": name}],
            "timeline": {"path": str(self.timeline)},
            "writer": {"lease_ttl": "3s"},
        }
        (self.folder / "job.yaml").write_text(yaml.safe_dump(job))

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            try:
                self.run()
            finally:
                shutil.rmtree(self.folder)

    @precondition(lambda self: not self.is_copied)
    @rule(lines=st.integers(1, 40))
    def append(self, lines: int) -> None:
        with (self.logs / "a.log").open("a") as out:
            out.writelines(f"{json.dumps({'id': self.written + number})}\n" for number in range(lines))
        self.written += lines

    @rule()
    def run(self) -> None:
        """A run is exact, or refused; then the change is undone, and the next run is exact."""
        try:
            self._run()
        except TidelineError as refused:
            assert self.undo is not None, f"refused though nobody had changed anything: {refused}"
            self._restore()
            self._run()
        self._forget()
        ids = Counter(DeltaTable(self.lake).to_pyarrow_table(columns=["id"])["id"].to_pylist())
        assert ids == Counter(range(self.written))

    @rule(point=st.sampled_from(POINTS))
    def killed(self, point: str) -> None:
        """A run that is killed at a crash point; if it is refused before, the next one is refused too."""

        def reached(name: str) -> None:
            if name == point:
                raise Killed

        failpoints.arm(reached)
        try:
            self._run()
        except Killed:
            self._bury()
        except TidelineError:
            pass
        finally:
            failpoints.arm(None)

    def _bury(self) -> None:
        """Mark the last writer's process as ended, so that the next writer does not wait for the lease."""
        record = latest_writer(open_store(str(self.timeline)), Retry())
        if record is not None:
            gone = replace(record.process, started=record.process.started - 1)
            body = WRITER.dump(replace(record, process=gone))
            (self.timeline / writer_path(record.generation)).write_bytes(body)

    @rule()
    def recover(self) -> None:
        try:
            run_recovery(open_timeline(load_config(self.folder / "job.yaml")))
        except TidelineError as refused:
            assert self.undo is not None, f"refused though nobody had changed anything: {refused}"

    @precondition(lambda self: self.undo is not None)
    @rule()
    def replay(self) -> None:
        """Replay lost epochs; if it is not refused and the table was changed, the next run is exact without an undo."""
        opened, stop = open_timeline(load_config(self.folder / "job.yaml")), threading.Event()
        writers = RunResources(LocalRunner, stop, accept_loss=False)
        try:
            put_back(opened, ReplayRequest(), lambda: writers.pipeline(opened, is_isolated=False), stop)
        except TidelineError:
            return
        finally:
            writers.close()
        if self.changed in OF_THE_TABLE:
            self._forget()
            self.run()

    @rule()
    def rename(self) -> None:
        """Swap the two names of the target."""
        self.names.reverse()
        self._write_job()

    @rule(rotation=st.sampled_from(ROTATIONS))
    def rotate(self, rotation: str) -> None:
        """Rotate like logrotate: a rename and a new file, or with ``copytruncate`` a copy and later a truncation."""
        log = self.logs / "a.log"
        if self.is_copied:
            os.truncate(log, 0)
            self.is_copied = False
            return
        self.rotated += 1
        kept = self.logs / f"a.log.{self.rotated}"
        if rotation == "rename":
            log.rename(kept)
            log.touch()
        else:
            shutil.copy2(log, kept)
            self.is_copied = True

    @precondition(lambda self: self.rotated)
    @rule(data=st.data())
    def compress(self, data: st.DataObject) -> None:
        """Compress any rotated log, read or not, like logrotate with ``compress``."""
        plain = self.logs / f"a.log.{data.draw(st.integers(1, self.rotated))}"
        if plain.exists():
            packed = plain.with_name(f"{plain.name}.gz")
            packed.write_bytes(gzip.compress(plain.read_bytes()))
            os.utime(packed, (plain.stat().st_atime, plain.stat().st_mtime))
            plain.unlink()

    @precondition(lambda self: self.undo is None)
    @rule(change=st.sampled_from(CHANGES))
    def change(self, change: str) -> None:
        """Restore, remove, overwrite or recreate the table, or delete objects of the timeline."""
        self._keep()
        self.changed = change
        match change:
            case "restore":
                table = DeltaTable(self.lake)
                if table.version():
                    table.restore(max(table.version() - 2, 0))
            case "remove":
                shutil.rmtree(self.lake)
            case "overwrite":
                write_deltalake(self.lake, NO_ROWS, mode="overwrite")
            case "anew":
                shutil.rmtree(self.lake)
                write_deltalake(self.lake, NO_ROWS)
            case "all":
                shutil.rmtree(self.timeline)
            case _:
                self._delete_of_timeline(change)

    @rule(point=st.sampled_from(POINTS), event=st.sampled_from([*CHANGES, *ROTATIONS]), lines=st.integers(1, 9))
    def changed_in_a_run(self, point: str, event: str, lines: int) -> None:
        """A change or rotation in the middle of a run that continues: this run or the next one detects the change."""

        def reached(name: str) -> None:
            if name == point:
                failpoints.arm(None)
                if event in ROTATIONS:
                    self.rotate(event)
                elif self.undo is None:
                    self.change(event)

        if not self.is_copied:
            self.append(lines)
        failpoints.arm(reached)
        try:
            self._run()
        except TidelineError as refused:
            assert self.undo is not None, f"refused though nobody had changed anything: {refused}"
        finally:
            failpoints.arm(None)

    def _delete_of_timeline(self, which: str) -> None:
        """Delete objects of the newest epoch, or the instants of all epochs."""
        instants = ActiveTimeline.load(open_store(str(self.timeline))).completed().by_action(Action.COMMIT).instants
        files = self.timeline / ".hoodie" / "timeline"
        plan, manifest = (files / name for name in states_before(instants[-1]))
        decisions = sorted((self.timeline / ".hoodie" / "decisions").iterdir())
        gone = {
            "decision": [decisions[-1]],
            "plan": [plan],
            "manifest": [manifest],
            "completed": [files / instants[-1].file_name],
            "newest": [plan, manifest, files / instants[-1].file_name, decisions[-1]],
            "instants": list(files.iterdir()),
        }[which]
        for path in gone:
            path.unlink(missing_ok=True)

    def _run(self) -> None:
        opened = open_timeline(load_config(self.folder / "job.yaml"))
        IngestLoop(opened, LocalRunner, mode=Mode.ONCE, stop=threading.Event()).run()

    def _keep(self) -> None:
        """Copy table and timeline, to undo a change."""
        self.undo = Path(tempfile.mkdtemp(prefix="tideline-world-"))
        for place in (self.lake, self.timeline):
            shutil.copytree(place, self.undo / place.name)

    def _restore(self) -> None:
        assert self.undo is not None
        for place in (self.lake, self.timeline):
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(self.undo / place.name, place)
        self._bury()

    def _forget(self) -> None:
        if self.undo is not None:
            shutil.rmtree(self.undo)
            self.undo = None


TestWorld = World.TestCase
TestWorld.settings = settings(
    max_examples=share(60, 600),
    stateful_step_count=12,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
