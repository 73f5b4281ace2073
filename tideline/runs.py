"""Runs and recoveries from Python, and their results with notebook views."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ingest.driver.build import open_timeline
from ingest.driver.loop import IngestLoop
from ingest.driver.summary import Mode, Summary
from ingest.driver.takeover import Recovery, examine, run_recovery
from ingest.execution.engine import start_spark
from ingest.execution.runner import open_runner
from ingest.listeners.run_listeners import listening
from ingest.protocol.events import Listener
from ingest.reports.recovery_html import recovery_html
from ingest.reports.recovery_text import recovery_lines
from tideline.job import AnyJob, config_of
from timeline.formatting import count, duration
from timeline.html import element, facts_table


@dataclass(frozen=True)
class RunResult(Summary):
    """Outcome of one run: the loop's summary, with `epochs`, `read`, `rows`, `rejected` and `targets`.

    Attributes:
        job: the job's name.
        seconds: its duration.
    """

    job: str = ""
    seconds: float = 0.0

    @classmethod
    def of(cls, job: str, summary: Summary, seconds: float) -> RunResult:
        """The result of a loop's summary.

        Args:
            job: the job's name.
            summary: the loop's summary.
            seconds: duration of the run.
        """
        return cls(**vars(summary), job=job, seconds=seconds)

    def __str__(self) -> str:
        """One sentence."""
        ending = "stopped" if self.is_stopped else "done"
        return (
            f"{self.job}: {ending}: {count(self.epochs, 'epoch')}, {count(self.rows, 'row')} accepted, "
            f"{self.rejected:,} quarantined in {duration(self.seconds)}"
        )

    def _repr_html_(self) -> str:
        """Notebook view: a small table."""
        numbers = (("epochs", self.epochs), ("read", self.read), ("rows", self.rows), ("quarantined", self.rejected))
        facts: list[tuple[str, object]] = [(name, f"{number:,}") for name, number in numbers]
        facts += [("took", duration(self.seconds)), ("open epoch", self.exit_message)]
        ending = "stopped" if self.is_stopped else "done"
        return element("div", element("b", f"{self.job}: {ending}"), facts_table(facts))


@dataclass(frozen=True)
class RecoveryResult:
    """Outcome of one recovery, or with ``dry_run`` its preview.

    Attributes:
        recovery: evidence, steps, and settled instants.
        is_dry_run: whether nothing was touched.
    """

    recovery: Recovery
    is_dry_run: bool = False

    @property
    def is_waiting(self) -> bool:
        """Whether an instant is left to a writer that may be alive."""
        return self.recovery.is_waiting

    @property
    def losses(self) -> Sequence[str]:
        """Epochs that targets have lost, human-readable; `tideline replay` puts them back."""
        return self.recovery.losses

    def __str__(self) -> str:
        """The lines of `tideline recover`."""
        return "\n".join(recovery_lines(self.recovery, dry_run=self.is_dry_run))

    def _repr_html_(self) -> str:
        """Notebook view: the evidence, the step and the outcome of each pending instant."""
        return recovery_html(self.recovery)


def run(
    job: AnyJob,
    *,
    once: bool = True,
    accept_loss: bool = False,
    stop: threading.Event | None = None,
    listeners: Sequence[Listener] = (),
) -> RunResult:
    """Recover pending instants, then ingest, as `tideline run` does.

    Args:
        job: a job, or the path of a job file.
        once: end when the source has no new records; else go on until `stop` is set.
        accept_loss: skip records that the source no longer has, and record the hole.
        stop: set from another thread to end the run; the open epoch is settled.
        listeners: called with every event of the run (`ingest.protocol.events`); a failing one cannot fail the run.

    Raises:
        ConfigError: the job is wrong; nothing was touched.
        WriterBusyError: another process writes this timeline.
        TidelineError: the error that ended the run; its message says what to do.
    """
    config = config_of(job)
    stop = stop or threading.Event()
    started_s = time.monotonic()
    with listening(config, accept_loss=accept_loss) as watchers:
        loop = IngestLoop(
            open_timeline(config),
            lambda: open_runner(config, lambda: start_spark(config, stop)),
            mode=Mode.ONCE if once else Mode.CONTINUOUS,
            stop=stop,
            listeners=(*watchers.listeners, *listeners),
            accept_loss=accept_loss,
        )
        summary = loop.run()
    return RunResult.of(config.name, summary, time.monotonic() - started_s)


def recover(job: AnyJob, *, dry_run: bool = False, force: bool = False) -> RecoveryResult:
    """Complete or roll back every pending instant from storage alone, as `tideline recover` does.

    Args:
        job: a job, or the path of a job file.
        dry_run: report the steps, and touch nothing.
        force: do not wait for a writer that may be alive.

    Raises:
        ConfigError: the job is wrong; nothing was touched.
        HaltError: storage gives no clear answer; nothing was touched.
        TargetError: a decided epoch could not be applied; it stays pending and decided.
    """
    opened = open_timeline(config_of(job))
    if dry_run:
        return RecoveryResult(examine(opened, force=force), is_dry_run=True)
    return RecoveryResult(run_recovery(opened, force=force))
