"""The epoch loop and its targets: replays, retries of busy targets, and targets that take the whole source."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from rich.console import Console

from ingest.cli.console import ProgressLine, summary_text
from ingest.config.load import load_config
from ingest.driver.build import open_source, open_timeline
from ingest.driver.loop import IngestLoop
from ingest.driver.next_action import MOST_TRIES
from ingest.driver.summary import Mode, Summary
from ingest.execution.runner import LocalRunner, Runner
from ingest.execution.task import TaskReport, TaskSpec
from ingest.protocol.events import Completed, Event, Listener, Planned, no_listener
from ingest.reports.instants import shown_instants
from ingest.sources.files.options import FilesOptions
from ingest.sources.kafka.options import KafkaOptions
from ingest.sources.options import UNLIMITED
from sinks.base import SinkContext, TargetOptions
from tests.transaction_sink import (
    BUSY,
    LOSE,
    TransactionOptions,
    TransactionSink,
    committed,
    installed,
    still_told,
    tell,
)
from timeline.errors import ConfigError, ReplayNeededError, TargetBusyError
from timeline.history.timeline import Timeline
from timeline.instant import Action
from timeline.stores.base import ObjectStore
from timeline.stores.opening import open_store


class Waits(threading.Event):
    """An event that never waits, and records each timeout."""

    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._stop_at = stop_at

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        if len(self.waits) == self._stop_at:
            self.set()
        return self.is_set()


@dataclass
class Bench:
    """A job in a folder, and runs of its loop; each run starts like a new process."""

    folder: Path
    listener: Listener = no_listener
    stop: Waits = field(default_factory=Waits)
    engines: int = 0

    @property
    def store(self) -> ObjectStore:
        return open_store(str(self.folder / "keyed"))

    @property
    def file(self) -> Path:
        return self.folder / "job.yaml"

    def write(self, *, limit: int = 1_000_000, **target: object) -> None:
        keyed = {"type": "transactions", "name": "keyed", "place": f"{self.folder}/keyed"} | target
        source = {"type": "files", "path": f"{self.folder}/logs", "format": "json", "close_after": "0s"}
        job = {
            "name": "bench",
            "source": source | {"max_bytes_per_epoch": limit},
            "schema": {"number": "bigint"},
            "targets": [keyed],
            "quarantine": {"path": f"{self.folder}/bad"},
            "timeline": {"path": f"{self.folder}/timeline"},
        }
        self.file.write_text(json.dumps(job))

    def append(self, *numbers: int) -> None:
        (self.folder / "logs").mkdir(exist_ok=True)
        with (self.folder / "logs" / "a.jsonl").open("a") as out:
            out.writelines(f'{{"number": {number}}}\n' for number in numbers)

    def run(self, mode: Mode = Mode.ONCE) -> Summary:
        def open_runner() -> Runner:
            self.engines += 1
            return LocalRunner()

        opened = open_timeline(load_config(self.file))
        return IngestLoop(opened, open_runner, mode=mode, stop=self.stop, listeners=(self.listener,)).run()

    def instants(self, action: Action) -> int:
        timeline = Timeline.load(open_store(str(self.folder / "timeline")))
        assert not timeline.pending().instants
        return len(timeline.by_action(action))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("ingest.config.registry.installed_sinks", installed)
    bench = Bench(tmp_path)
    bench.write()
    bench.append(1, 2, 3)
    return bench


class TestReplay:
    def test_run_writes_again_what_the_target_lost_in_its_own_epoch(self, bench: Bench) -> None:
        tell(bench.store, LOSE, 2)
        assert bench.run().epochs == 1
        assert committed(bench.store) == [1, 2, 3]

    def test_run_starts_the_engine_for_an_epoch_that_was_lost_before(self, bench: Bench) -> None:
        tell(bench.store, LOSE, 4)
        with pytest.raises(ReplayNeededError):
            bench.run()
        bench.engines = 0
        assert bench.run().epochs == 0
        assert bench.engines == 1
        assert committed(bench.store) == [1, 2, 3]
        assert bench.run().epochs == 0
        assert bench.engines == 1, "nothing was lost: no engine is needed"

    def test_a_stop_while_it_is_written_again_leaves_it_decided_and_says_so(self, bench: Bench) -> None:
        tell(bench.store, LOSE, 4)
        with pytest.raises(ReplayNeededError):
            bench.run()

        class StoppedAtOnce(LocalRunner):
            def __init__(self) -> None:
                bench.stop.set()

        opened = open_timeline(load_config(bench.file))
        loop = IngestLoop(opened, StoppedAtOnce, mode=Mode.ONCE, stop=bench.stop)
        summary = loop.run()
        assert summary.is_stopped and summary.exit_message
        assert committed(bench.store) == []
        bench.stop.clear()
        bench.run()
        assert committed(bench.store) == [1, 2, 3]

    def test_a_signal_in_the_replay_of_its_own_epoch_does_not_call_it_rolled_back(self, bench: Bench) -> None:
        tell(bench.store, LOSE, 1)

        class StoppedLater(LocalRunner):
            runs = 0

            def run(self, specs: Sequence[TaskSpec], stop: threading.Event) -> Sequence[TaskReport]:
                StoppedLater.runs += 1
                if StoppedLater.runs == 2:
                    bench.stop.set()
                return super().run(specs, stop)

        opened = open_timeline(load_config(bench.file))
        loop = IngestLoop(opened, StoppedLater, mode=Mode.ONCE, stop=bench.stop)
        assert loop.run().exit_message == "epoch 0 is decided: the next start goes on to apply it"
        bench.stop.clear()
        bench.run()
        assert committed(bench.store) == [1, 2, 3]


class TestBusy:
    @pytest.mark.parametrize("times", [1, MOST_TRIES])
    def test_an_epoch_is_tried_again_from_the_same_offsets(self, bench: Bench, times: int) -> None:
        tell(bench.store, BUSY, times)
        assert bench.run().rows == 3
        assert committed(bench.store) == [1, 2, 3]
        assert bench.instants(Action.ROLLBACK) == times
        assert len(bench.stop.waits) == times

    def test_waits_grow(self, bench: Bench) -> None:
        tell(bench.store, BUSY, MOST_TRIES)
        bench.run()
        for number, wait_s in enumerate(bench.stop.waits):
            assert 0.25 * 2**number <= wait_s <= 0.75 * 2**number

    def test_a_target_that_stays_busy_ends_the_run_with_nothing_left_open(self, bench: Bench) -> None:
        tell(bench.store, BUSY, MOST_TRIES + 1)
        with pytest.raises(TargetBusyError, match="someone else writes these rows"):
            bench.run()
        assert committed(bench.store) == []
        assert bench.instants(Action.ROLLBACK) == MOST_TRIES + 1
        assert bench.run().rows == 3

    def test_only_tries_in_a_row_count(self, bench: Bench) -> None:
        bench.write(limit=30)

        behind = 0

        def busy_again(event: Event) -> None:
            nonlocal behind
            if isinstance(event, Planned):
                behind = event.plan.behind
            elif isinstance(event, Completed) and behind:
                tell(bench.store, BUSY, MOST_TRIES)

        bench.listener = busy_again
        tell(bench.store, BUSY, MOST_TRIES)
        assert bench.run().epochs == 2
        assert committed(bench.store) == [1, 2, 3]
        assert len(bench.stop.waits) == 2 * MOST_TRIES

    def test_a_stop_ends_the_wait(self, bench: Bench) -> None:
        tell(bench.store, BUSY, MOST_TRIES)
        bench.stop = Waits(stop_at=2)
        summary = bench.run()
        assert summary.is_stopped
        assert summary.exit_message == "epoch 1 was rolled back"
        assert bench.instants(Action.ROLLBACK) == 2

    def test_a_target_that_is_busy_while_an_epoch_is_written_again_is_waited_for(self, bench: Bench) -> None:
        tell(bench.store, LOSE, 4)
        with pytest.raises(ReplayNeededError):
            bench.run()
        tell(bench.store, BUSY, 2)
        bench.run()
        assert committed(bench.store) == [1, 2, 3]
        assert still_told(bench.store, BUSY) == 0


class TestWholeSource:
    def test_one_epoch_holds_everything_whatever_the_limits_say(self, bench: Bench) -> None:
        bench.write(limit=10, whole=True)
        bench.append(*range(4, 100))
        summary = bench.run()
        assert (summary.epochs, summary.rows) == (1, 99)

    def test_without_it_the_limits_hold(self, bench: Bench) -> None:
        bench.write(limit=20)
        assert bench.run().epochs > 1

    def test_what_comes_while_it_runs_belongs_to_another_run(self, bench: Bench) -> None:
        bench.write(whole=True)

        def append(event: Event) -> None:
            if isinstance(event, Completed) and event.result.decision.epoch == 0:
                bench.append(4)

        bench.listener = append
        assert bench.run().rows == 3
        assert bench.run().rows == 1

    def test_a_line_that_may_still_grow_is_waited_for_once(self, bench: Bench) -> None:
        bench.write(whole=True)
        text = bench.file.read_text().replace('"close_after": "0s"', '"close_after": "1h"')
        bench.file.write_text(text)
        with (bench.folder / "logs" / "b.jsonl").open("w") as out:
            out.write('{"number": 4}\n{"number": 5}')
        assert bench.run().rows == 4
        (wait_s,) = bench.stop.waits
        assert 0 < wait_s <= 3600

    def test_a_run_that_goes_on_is_refused_before_anything_is_touched(self, bench: Bench) -> None:
        bench.write(whole=True)
        with pytest.raises(ConfigError, match=r"targets\[0\] \(transactions\) takes all .* run it with --once"):
            bench.run(Mode.CONTINUOUS)
        assert not (bench.folder / "timeline").exists()

    def test_limits_of_every_source_can_be_lifted(self, bench: Bench) -> None:
        bench.write(limit=10, whole=True)
        source = load_config(bench.file).source
        assert isinstance(source, FilesOptions)
        assert (source.unlimited().max_bytes_per_epoch, source.unlimited().max_files_per_epoch) == (UNLIMITED,) * 2
        assert source.unlimited().path == source.path
        kafka = KafkaOptions.model_validate(
            {"bootstrap_servers": "x:1", "topics": ["a"], "format": "json", "max_records_per_epoch": 5}
        )
        assert kafka.unlimited().max_records_per_epoch is None
        assert kafka.unlimited().max_bytes_per_epoch == UNLIMITED
        assert open_source(load_config(bench.file)).plan({}).behind == 0


class TestWhatIsShown:
    def test_who_reads_that_an_epoch_is_there_finds_it_counted(self, bench: Bench) -> None:
        told: list[type[Event]] = []
        seen: list[bool] = []

        def read(event: Event) -> None:
            if isinstance(event, Completed):
                seen.append(Completed in told)

        loop = IngestLoop(
            open_timeline(load_config(bench.file)),
            LocalRunner,
            mode=Mode.ONCE,
            stop=bench.stop,
            listeners=(lambda event: told.append(type(event)), read),
        )
        loop.run()
        assert seen == [True]

    def drops(self, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
        def open_dropping(options: TargetOptions, context: SinkContext) -> TransactionSink:
            assert isinstance(options, TransactionOptions)
            return TransactionSink("keyed", open_store(options.place), drops=rows)

        monkeypatch.setattr(TransactionSink, "open", staticmethod(open_dropping))

    def test_dropped_rows_are_named_and_everything_adds_up(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drops(monkeypatch, 2)
        bench.append(4, 5)
        (bench.folder / "logs" / "b.jsonl").write_text("{bad\n")
        summary = bench.run()
        words = summary_text("bench", summary, 1.0)
        rows = summary.targets["keyed"]
        assert rows.given == summary.rows == 5
        assert f"5 rows accepted, 1 quarantined in 1.0 s; keyed: {rows}" in words
        store = open_store(str(bench.folder / "timeline"))
        (row,) = shown_instants(Timeline.load(store).history())
        assert row.targets is not None
        assert row.targets["keyed"] == rows
        assert (row.rows, row.rejected, row.note) == (5, 1, f"keyed: {rows}")
        assert row.targets["quarantine"].written == 1

    def test_the_line_of_an_epoch_names_what_was_left_out(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.drops(monkeypatch, 1)
        bench.listener = ProgressLine(Console(force_terminal=False))
        with caplog.at_level(logging.INFO):
            bench.run()
        assert "epoch 0: 3 rows, 0 rejected (keyed: 2 written + 1 dropped + 0 rejected), " in caplog.text

    def test_a_target_that_takes_every_row_needs_no_word(self, bench: Bench) -> None:
        summary = bench.run()
        assert summary_text("bench", replace(summary), 1.0).endswith("3 rows committed, 0 quarantined in 1.0 s")
