"""Output of the command line: a live progress line on a terminal, log lines elsewhere, tables at the end."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from rich.console import Console
from rich.status import Status

from ingest.driver.summary import Summary
from ingest.protocol.counts import left_out, rows_by_target, rows_read
from ingest.protocol.events import Completed, EpochResult, Event, Idle, Phase, PhaseBegan, Planned
from ingest.sources.base import SourcePlan, Unit
from timeline.formatting import amount, count

log = logging.getLogger(__name__)


def output() -> Console:
    """Console for results: as wide as the terminal or COLUMNS; without either, 180 columns, enough for every table."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=180)


class ProgressLine:
    """Progress on one line: epoch, rows/s, MB/s, work left. A `ingest.protocol.events.Listener`."""

    def __init__(self, console: Console, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._began_s = 0.0
        self._plan: SourcePlan | None = None
        self._status: Status | None = console.status("starting") if console.is_terminal else None
        self._planned_units = 0
        self._epoch = 0
        self._left = ""
        self._rates = ""

    def __enter__(self) -> ProgressLine:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._status is not None:
            self._status.stop()

    def starting_engine(self) -> None:
        """Show that Spark starts, which takes seconds; called by the command line."""
        self._show("starting Spark")

    def __call__(self, event: Event) -> None:
        """See Listener."""
        match event:
            case Planned(epoch, plan):
                self._plan = plan
                self._planned(epoch, plan)
            case PhaseBegan(Phase.OPEN):
                self._began_s = self._monotonic()
            case Completed(result, False) if self._plan is not None:
                self._completed(result, self._monotonic() - self._began_s, self._plan)
            case Idle(wait_s):
                self._idle(wait_s)
            case _:
                pass

    def _planned(self, epoch: int, plan: SourcePlan) -> None:
        self._epoch = epoch
        self._planned_units = sum(offsets.until - offsets.start for offsets in plan.ranges)
        self._left = _left(len(plan.ranges) + plan.behind_shards, self._planned_units + plan.behind, plan.unit)
        self._show("reading" + self._rates)

    def tasks(self, done: int, tasks: int) -> None:
        """Show the tasks done of an epoch; called by the runner."""
        self._show(f"{done}/{count(tasks, 'task')}{self._rates}")

    def _completed(self, result: EpochResult, elapsed_s: float, plan: SourcePlan) -> None:
        epoch = result.decision.epoch
        rows = rows_read(result.manifest)
        per_s = max(elapsed_s, 1e-3)
        rates = [f"{rows / per_s:,.0f} rows/s"]
        if plan.unit is Unit.BYTES:
            rates.append(f"{self._planned_units / 1e6 / per_s:.1f} MB/s")
        self._rates = f" · {' · '.join(rates)}"
        log.info(
            "epoch %d: %s, %d rejected%s, %s in %.2f s (%s); %s behind in %s",
            epoch,
            count(result.manifest.rows, "row"),
            result.manifest.rejected,
            _in_brackets(left_out(rows_by_target(result.manifest))),
            amount(self._planned_units, plan.unit.value),
            elapsed_s,
            ", ".join(rates),
            amount(plan.behind, plan.unit.value),
            _shards(plan.behind_shards, plan.unit),
            extra={"epoch": epoch, "instant": result.manifest.ref.instant},
        )
        self._left = _left(plan.behind_shards, plan.behind, plan.unit)
        self._show("completed" + self._rates)

    def _idle(self, wait_s: float) -> None:
        if self._status is not None:
            self._status.update(
                f"epoch {self._epoch} is the last one{self._rates} · nothing new, next look in {wait_s:.0f} s"
            )

    def _show(self, doing: str) -> None:
        if self._status is not None:
            self._status.update(f"epoch {self._epoch} · {doing} · {self._left}")


_SHARDS = {Unit.BYTES: "file", Unit.RECORDS: "partition", Unit.EPOCHS: "quarantine"}


def _left(shards: int, units: int, unit: Unit) -> str:
    return f"{_shards(shards, unit)} left, {amount(units, unit.value)} behind"


def _shards(shards: int, unit: Unit) -> str:
    return count(shards, _SHARDS[unit])


def summary_text(name: str, summary: Summary, elapsed_s: float) -> str:
    """One sentence about a run.

    Args:
        name: the job's name.
        summary: the run's counts and its ending.
        elapsed_s: duration of the run.
    """
    ending = "stopped by a signal" if summary.is_stopped else "done"
    if summary.exit_message:
        ending += f" ({summary.exit_message})"
    if not summary.epochs:
        return f"{name}: {ending}: nothing {'committed' if summary.is_stopped else 'new'} in {elapsed_s:.1f} s"
    targets = left_out(summary.targets)
    return (
        f"{name}: {ending}: {count(summary.epochs, 'epoch')}, {count(summary.rows, 'row')} "
        f"{'accepted' if targets else 'committed'}, {summary.rejected:,} quarantined in {elapsed_s:.1f} s{targets}"
    )


def _in_brackets(targets: str) -> str:
    return f" ({targets.removeprefix('; ')})" if targets else ""
