"""A timeline's writer process: the actions of the epoch loop, each with its evidence.

::

    recover ─ plan ─ ingest ─ plan ─ ingest ─ … ─ pause ─ plan …      one at a time, as `ingest.driver.next_action` says
                       └─ completed in another thread, beside the next plan
"""

from __future__ import annotations

import logging
import random
import threading
import time
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ingest.driver.build import TimelineHandle, build_job, create_timeline, known_schema
from ingest.driver.completion import Completions
from ingest.driver.epoch import EpochWriter, NextEpoch, run_epoch
from ingest.driver.losses import refuse_ahead, refuse_losses
from ingest.driver.next_action import (
    MOST_TRIES,
    EndRun,
    EpochCommitted,
    EpochGivenUp,
    GivenUp,
    LoopEvidence,
    Pause,
    Recovered,
    RecoverPending,
    SourcePlanned,
    StopRequested,
    Waited,
)
from ingest.driver.replay import Replay
from ingest.driver.run_resources import RunResources
from ingest.driver.summary import Mode, Summary
from ingest.execution.isolated import CRASHES
from ingest.protocol.events import EpochResult, Fenced, Idle, Listener, Phase, Planned, Resumed, within
from ingest.protocol.job import JobContext
from ingest.protocol.recovery import recover
from ingest.sources.base import SourcePlan
from timeline.active import ActiveTimeline
from timeline.chain import Chain, load_chain, write_snapshot
from timeline.decision import Decision, Outcome, decision_path, read_decision
from timeline.errors import (
    InvariantError,
    OutrunError,
    RangeRewrittenError,
    StoppedError,
    StoreUnavailableError,
    TargetBusyError,
    TidelineError,
)
from timeline.hudi.layout import read_identity
from timeline.lease import WriterLease
from timeline.units import count

if TYPE_CHECKING:
    from ingest.sources.quarantine import WithQuarantine

log = logging.getLogger(__name__)


class ActiveWriter:
    """The writer of a timeline, from its lease to its end; as a context, it waits until the last epoch is completed."""

    def __init__(
        self, opened: TimelineHandle, lease: WriterLease, writers: RunResources, stop: threading.Event, notify: Listener
    ) -> None:
        """Begin as the timeline's writer; nothing is touched before the first action.

        Args:
            opened: the job's timeline.
            lease: the lease of this process.
            writers: opens source and engine.
            stop: set from outside to end the run.
            notify: called with every event.
        """
        self._opened = opened
        self._lease = lease
        self._writers = writers
        self._stop = stop
        self._notify = notify
        self._completions = Completions(notify, beside=True, check=self._require_timeline)
        self._job: JobContext | None = None
        self._chain: Chain | None = None
        self._plan = SourcePlan(())
        self._began_s = 0.0
        self._applied_through = -1
        self._decided_before: Decision | None = None
        self._summary = Summary()
        self._given_up_for: TidelineError | None = None

    def __enter__(self) -> Self:
        self._completions.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._completions.__exit__(kind, error, trace)

    @property
    def given_up_for(self) -> TidelineError:
        """The error that an epoch was last given up for."""
        assert self._given_up_for is not None
        return self._given_up_for

    def ended(self, action: EndRun) -> Summary:
        """Summary of the run."""
        self._warn_of_no_records(action.warns)
        return replace(self._summary, is_stopped=self._summary.is_stopped or self._stop.is_set())

    def recover(self, action: RecoverPending) -> LoopEvidence:
        """Settle pending instants, after a back-off where another writer writes the same rows."""
        if action.after_s:
            wait_s = action.after_s * random.uniform(0.5, 1.5)
            log.warning("%s; trying again in %.1f s (%d of %d)", self.given_up_for, wait_s, action.tries, MOST_TRIES)
            if self._stop.wait(wait_s):
                return self._stopped(f"a target was busy: {self.given_up_for}")
        elif action.tries:
            log.warning("%s; planning again (%d of %d)", self.given_up_for, action.tries, MOST_TRIES)
        if self._job is None:
            self._job = self._build_job()
            refuse_ahead(self._job)
        try:
            with within(Phase.RECOVER, self._notify):
                recover(self._job, self._lease, self._notify)
        except TargetBusyError as busy:
            return self._gave_up(GivenUp.TARGET_BUSY, busy)
        except StoppedError as stopped:
            return self._stopped(str(stopped))
        if self._chain is not None:
            self._chain = self._load_chain()
        return Recovered()

    def plan(self, mode: Mode) -> LoopEvidence:
        """Plan the next epoch, and wait until the epoch before it is completed."""
        source, chain = self._resumed()
        if self._stop.is_set():
            return StopRequested()
        self._lease.check()
        self._began_s = time.monotonic()
        with within(Phase.PLAN, self._notify):
            if mode is Mode.REJECTED:
                self._plan = source.plan_rejected(chain.positions, chain.next_epoch)
            else:
                self._plan = source.plan(chain.positions)
        self._completions.wait()
        plan = self._plan
        return SourcePlanned(bool(plan.ranges), plan.settles_in_s, not chain.positions, self._elapsed_s)

    def ingest(self, *, is_replay: bool) -> LoopEvidence:
        """Ingest the plan as one epoch.

        Args:
            is_replay: whether its records were rejected before, some perhaps because they crash the decoder.
        """
        source, chain = self._resumed()
        self._notify(Planned(chain.next_epoch, self._plan, chain.positions))
        job = self._job = self._job or self._first_job(source)
        try:
            pipeline = self._pipeline(chain, is_replay)
        except StoppedError:
            return StopRequested()  # no epoch is open yet
        if self._stop.is_set():
            return StopRequested()
        self._decided_before = chain.last
        epoch = NextEpoch(chain, self._plan.ranges, self._applied_through)
        try:
            result = run_epoch(job, pipeline, epoch, self._lease, stop=self._stop, completions=self._completions)
        except StoppedError as stopped:
            return self._stopped(str(stopped))
        except OutrunError as outrun:
            # Go on: a former writer must not end the current one.
            self._notify(Fenced(outrun))
            log.warning("%s", outrun)
            return self._gave_up(GivenUp.DECIDED_BY_LATE_WRITER, outrun)
        except TargetBusyError as busy:
            return self._gave_up(GivenUp.TARGET_BUSY, busy)
        except RangeRewrittenError as rewritten:
            # A log was truncated in place: the next plan goes on in its copy, or fails and names the lost records.
            return self._gave_up(GivenUp.REWRITTEN, rewritten)
        self._advance(source, chain, result)
        return EpochCommitted(bool(self._plan.behind), self._elapsed_s)

    def pause(self, action: Pause) -> LoopEvidence:
        """Wait for the action's time, or until the run is stopped."""
        self._warn_of_no_records(action.warns)
        if action.is_idle:
            self._notify(Idle(action.seconds))
        else:
            self._completions.wait()
        self._stop.wait(action.seconds)
        return StopRequested() if self._stop.is_set() else Waited()

    def _gave_up(self, reason: GivenUp, error: TidelineError) -> EpochGivenUp:
        self._given_up_for = error
        return EpochGivenUp(reason)

    def _stopped(self, words: str) -> StopRequested:
        """Record the outcome of the open epoch."""
        if self._chain is None or self._job is None:
            self._summary = Summary(is_stopped=True, exit_message=words)
        else:
            epoch = self._chain.next_epoch
            log.info("epoch %d: stopped: %s", epoch, words)
            self._summary = replace(self._summary, exit_message=_fate(self._job, epoch))
        return StopRequested()

    def _advance(self, source: WithQuarantine, chain: Chain, result: EpochResult) -> None:
        """Advance chain, source and summary behind a committed epoch."""
        self._applied_through = chain.next_epoch
        chain = chain.advanced(result.decision)
        source.completed(result.decision.positions)
        if chain.is_snapshot_due:
            self._completions.wait()
        write_snapshot(self._opened.store, chain, self._opened.retry)
        finished = f"epoch {self._applied_through} was finished" if self._stop.is_set() else ""
        self._summary = replace(self._summary.after(result), exit_message=finished)
        self._chain = chain

    @property
    def _elapsed_s(self) -> float:
        """Seconds since the planning of this epoch began."""
        return time.monotonic() - self._began_s

    def _resumed(self) -> tuple[WithQuarantine, Chain]:
        """Source and chain; the first call, with nothing pending, also refuses targets that lack epochs."""
        source = self._writers.source(self._opened)
        if self._chain is not None:
            return source, self._chain
        chain = self._load_chain()
        if self._job is not None:
            refuse_losses(self._job, chain)
            _ensure(self._job)
        self._notify(Resumed(chain))
        self._chain = chain
        return source, chain

    def _load_chain(self) -> Chain:
        store, retry = self._opened.store, self._opened.retry
        return load_chain(store, ActiveTimeline.recent(store, retry), retry, repair=True)

    def _first_job(self, source: WithQuarantine) -> JobContext:
        """Create the timeline: fix the schema, and check the targets before any row is written."""
        schema = known_schema(self._opened)
        if schema is None:
            schema = source.infer_schema(self._plan)
            log.info("schema inferred, kept from now on: %s", ", ".join(f"{f.name} {f.type}" for f in schema))
        has_query = self._opened.config.transform is not None
        result = self._writers.query(self._opened, schema).analysis.schema if has_query else None
        self._opened = create_timeline(self._opened, schema, result)
        job = self._build_job()
        _ensure(job)
        return job

    def _build_job(self) -> JobContext:
        # Records of the epoch may have crashed the decoder at its first write.
        rewrite = Replay(lambda: self._writers.pipeline(self._opened, is_isolated=True), self._stop)
        return replace(
            build_job(self._opened, on_deleted=self._notify), rewrite=rewrite, parallel=self._writers.parallel
        )

    def _pipeline(self, chain: Chain, is_replay: bool) -> EpochWriter:
        """The pipeline for the next epoch, on a running engine.

        Raises:
            StoppedError: the run was stopped meanwhile.
        """
        has_crashed = chain.crashes >= CRASHES
        if has_crashed:
            log.warning(
                "epoch %d: a crash ended %s from these offsets; this one decodes its records in child "
                "processes, and a record that crashes the decoder goes to the quarantine",
                chain.next_epoch,
                count(chain.crashes, "epoch"),
            )
        return self._writers.pipeline(self._opened, is_isolated=has_crashed or is_replay)

    def _warn_of_no_records(self, warns: bool) -> None:
        if warns:
            place = self._opened.config.source.place
            log.warning("source %s has no records yet: is this the place that is meant?", place)

    def _require_timeline(self) -> None:
        """Stop where the timeline is no longer the one that this writer began with.

        Raises:
            InvariantError: the timeline was deleted, and perhaps another one created; or the decision before the
                newest is missing.
        """
        found, mine = read_identity(self._opened.store, self._opened.retry), self._opened.identity
        if found is None or mine is None or found.timeline_id != mine.timeline_id:
            what = "is gone" if found is None else f"is another one now ({found.name!r}, {found.timeline_id})"
            raise InvariantError(
                f"{self._opened.store.url}: the timeline that this process writes {what}: somebody deleted it. This "
                "process stops. Restore it before anything else runs: a new one would read everything again"
            )
        last = self._decided_before
        if last is not None and read_decision(self._opened.store, last.epoch, self._opened.retry) is None:
            raise InvariantError(
                f"{self._opened.store.url}: epoch {last.epoch} is decided, and its decision "
                f"{decision_path(last.epoch)} is gone: somebody deletes objects of the timeline. This process stops. "
                "Restore it from the store's versions or a backup before anything else runs"
            )


def _fate(job: JobContext, epoch: int) -> str:
    """Outcome of an epoch that was open when the job was stopped."""
    try:
        decision = read_decision(job.store, epoch, job.retry)
    except StoreUnavailableError:
        decision = None
    match decision:
        case None:
            return f"epoch {epoch} is pending: the next start settles it"
        case Decision(outcome=Outcome.COMMIT):
            return f"epoch {epoch} is decided: the next start goes on to apply it"
        case _:
            return f"epoch {epoch} was rolled back"


def _ensure(job: JobContext) -> None:
    for sink in job.sinks:
        sink.ensure()
