"""The epoch loop: take the lease, recover, then plan and ingest epoch after epoch until told to stop."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ingest.config.models import JobConfig
from ingest.driver.build import Opened, build_job, give_birth, known_schema, require_whole
from ingest.driver.completion import Completions
from ingest.driver.epoch import EpochResult, Pipeline, run_epoch
from ingest.driver.exit_message import last_error
from ingest.driver.losses import refuse_ahead, refuse_losses
from ingest.driver.replay import Replay
from ingest.driver.stores import probe_stores
from ingest.driver.summary import Mode, Summary
from ingest.driver.writers import Writers
from ingest.execution.isolated import CRASHES
from ingest.execution.runner import Runner
from ingest.protocol.events import (
    EventBus,
    Fenced,
    Idle,
    Leased,
    Listener,
    Phase,
    PhaseBegan,
    PhaseDone,
    Planned,
    Renewed,
    Resumed,
)
from ingest.protocol.job import Job
from ingest.protocol.recovery import recover
from ingest.sources.base import SourcePlan
from timeline.active import ActiveTimeline
from timeline.chain import Chain, load_chain, write_snapshot
from timeline.decision import Decision, Outcome, decision_path, read_decision
from timeline.errors import (
    ConfigError,
    FencedError,
    InvariantError,
    OutrunError,
    RangeRewrittenError,
    StoppedError,
    StoreUnavailableError,
    TargetBusyError,
)
from timeline.failpoints import reach
from timeline.hudi.layout import read_identity
from timeline.lease import LeaseObserver, WriterLease
from timeline.units import count

if TYPE_CHECKING:
    from ingest.sources.quarantine import WithQuarantine
    from ingest.transform.pipeline import QueryPipeline

log = logging.getLogger(__name__)

BUSY_TRIES = 5
"""Times in a row that an epoch is tried again because someone else writes the same rows, or its files are rewritten."""

_FIRST_BUSY_WAIT_S = 0.5


class IngestLoop:
    """One run of a job as its timeline's writer."""

    def __init__(
        self,
        opened: Opened,
        open_runner: Callable[[], Runner],
        *,
        mode: Mode,
        stop: threading.Event,
        listeners: Sequence[Listener] = (),
        accept_loss: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a run; nothing is touched before `run`.

        Args:
            opened: the job's timeline.
            open_runner: starts the engine; called only when there is something to ingest.
            mode: whether to end when the source has nothing new.
            stop: set from outside to end the run.
            listeners: called with every event, in this order; none of them can fail the run.
            accept_loss: go on behind records that the source no longer has, and record the hole.
            monotonic: measures intervals.
        """
        self._opened = opened
        self._mode = mode
        self._stop = stop
        self._notify = EventBus(listeners)
        self._monotonic = monotonic
        self._writers = Writers(open_runner, stop, accept_loss=accept_loss)
        self._busy = 0
        self._decided_before: Decision | None = None
        self._has_waited = False
        self._has_warned = False

    def run(self) -> Summary:
        """Ingest until the source has nothing new (once), or until stopped.

        Raises:
            ConfigError: a store does not create objects exclusively, or a target takes the whole source as one epoch
                and this run is continuous; nothing was touched.
            WriterBusyError: another process writes this timeline.
            TargetBusyError: someone else kept writing the same rows.
            TidelineError: what ended the run; its message says what to do.
        """
        if self._mode is Mode.CONTINUOUS:
            _refuse_whole_source(self._opened.config)
        require_whole(self._opened)
        probe_stores(self._opened)
        try:
            lease = self._take_lease()
        except StoppedError as stopped:
            return Summary(is_stopped=True, last_word=str(stopped))
        lease.keep(lambda is_done: self._notify(Renewed(is_done)))
        self._notify(Leased(lease))
        reach("lease-taken")
        ended_by = ""
        try:
            return self._run(lease)
        except Exception as error:
            if isinstance(error, FencedError):
                self._notify(Fenced(error))
            ended_by = last_error(error)
            raise
        finally:
            try:
                self._writers.close()
            finally:
                lease.release(ended_by)

    def _take_lease(self) -> WriterLease:
        opened = self._opened

        def sleep(wait_s: float) -> None:
            if self._stop.wait(wait_s):
                raise StoppedError("another writer's lease was waited for")

        return opened.take_lease(LeaseObserver(opened.store, opened.retry), sleep=sleep)

    def _run(self, lease: WriterLease) -> Summary:
        with Completions(self._notify, beside=True, check=self._require_timeline) as completions:
            return self._run_epochs(lease, completions)

    def _run_epochs(self, lease: WriterLease, completions: Completions) -> Summary:
        summary = Summary()
        try:
            job = self._start(lease)
        except StoppedError as stopped:
            return Summary(is_stopped=True, last_word=str(stopped))
        source = self._writers.source(self._opened)
        chain = _load_chain(self._opened)
        if job is not None:
            refuse_losses(job, chain)
            _ensure(job)
        self._notify(Resumed(chain))
        applied_through = -1
        while not self._stop.is_set():
            lease.check()
            started = self._monotonic()
            self._notify(PhaseBegan(Phase.PLAN))
            plan = self._plan(source, chain)
            self._notify(PhaseDone(Phase.PLAN))
            completions.wait()
            if not plan.ranges or self._waits_for_the_rest(plan):
                if not chain.positions and plan.settles_in_s is None and not self._has_warned:
                    self._has_warned = True
                    log.warning(
                        "source %s has no records yet: is this the place that is meant?",
                        self._opened.config.source.place,
                    )
                if not self._wait_for_more(plan, started):
                    break
                continue
            self._has_waited = False
            self._notify(Planned(chain.next_epoch, plan, chain.positions))
            if job is None:
                job = self._begin(source, plan)
            pipeline = self._pipeline(chain)
            if pipeline is None:
                break
            job = replace(job, spread=pipeline.runner.spread)
            self._decided_before = chain.last
            try:
                result = self._run_epoch(job, pipeline, chain, lease, plan, applied_through, completions)
            except StoppedError as stopped:
                log.info("epoch %d: stopped: %s", chain.next_epoch, stopped)
                summary = replace(summary, last_word=_fate(job, chain.next_epoch))
                break
            if result is None:
                chain = _load_chain(self._opened)
                continue
            applied_through = chain.next_epoch
            chain = chain.advanced(result.decision)
            source.completed(result.decision.positions)
            if chain.is_snapshot_due:
                completions.wait()
            write_snapshot(self._opened.store, chain, self._opened.retry)
            finished = f"epoch {applied_through} was finished" if self._stop.is_set() else ""
            summary = replace(summary.after(result), last_word=finished)
            if self._mode is Mode.REJECTED:
                break  # what this epoch rejects again is for another replay
            if self._opened.config.takes_whole_source:
                break  # what has come since belongs to another transaction, in a run of its own
            if self._mode is Mode.CONTINUOUS and not plan.behind:
                completions.wait()
                self._stop.wait(max(0.0, self._opened.config.epoch.interval - (self._monotonic() - started)))
        return replace(summary, is_stopped=self._stop.is_set())

    def _require_timeline(self) -> None:
        """Stop where the timeline is no longer the one that this writer began with.

        Raises:
            InvariantError: it was deleted, and perhaps another one begun; or the decision before the newest is gone.
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

    def _plan(self, source: WithQuarantine, chain: Chain) -> SourcePlan:
        if self._mode is Mode.REJECTED:
            return source.plan_rejected(chain.positions, chain.next_epoch)
        return source.plan(chain.positions)

    def _run_epoch(
        self,
        job: Job,
        pipeline: Pipeline | QueryPipeline,
        chain: Chain,
        lease: WriterLease,
        plan: SourcePlan,
        applied_through: int,
        completions: Completions,
    ) -> EpochResult | None:
        """One epoch; None where it was given up for a reason that goes away, and has to be planned again."""
        try:
            result = run_epoch(
                job,
                pipeline,
                chain,
                lease,
                plan.ranges,
                stop=self._stop,
                applied_through=applied_through,
                notify=self._notify,
                completions=completions,
            )
        except OutrunError as outrun:
            # To stop for it would let a writer that is not the writer any more end the one that is.
            self._notify(Fenced(outrun))
            log.warning("%s", outrun)
        except TargetBusyError as busy:
            self._wait_for_target(busy)
        except RangeRewrittenError as rewritten:
            # A log that is truncated in place: the next plan goes on in its copy, or stops with what is lost.
            if self._busy >= BUSY_TRIES:
                raise
            self._busy += 1
            log.warning("%s; planning again (%d of %d)", rewritten, self._busy, BUSY_TRIES)
        else:
            self._busy = 0
            return result
        self._recover(job, lease)
        return None

    def _recover(self, job: Job, lease: WriterLease) -> None:
        self._notify(PhaseBegan(Phase.RECOVER))
        while True:
            try:
                recover(job, lease, self._notify)
            except TargetBusyError as busy:
                self._wait_for_target(busy)
            else:
                self._notify(PhaseDone(Phase.RECOVER))
                return

    def _wait_for_target(self, busy: TargetBusyError) -> None:
        """Let the other writer of these rows go first, a little longer each time.

        Raises:
            TargetBusyError: it has been in the way too often in a row.
            StoppedError: told to stop meanwhile.
        """
        if self._busy >= BUSY_TRIES:
            raise busy
        wait_s = _FIRST_BUSY_WAIT_S * 2**self._busy * random.uniform(0.5, 1.5)
        self._busy += 1
        log.warning("%s; trying again in %.1f s (%d of %d)", busy, wait_s, self._busy, BUSY_TRIES)
        if self._stop.wait(wait_s):
            raise StoppedError(f"a target was busy: {busy}")

    def _pipeline(self, chain: Chain) -> Pipeline | QueryPipeline | None:
        """What writes the next epoch, started; None where told to stop meanwhile: there is no epoch to settle yet."""
        is_isolated = chain.crashes >= CRASHES
        if is_isolated:
            log.warning(
                "epoch %d: a crash ended %s from these offsets; this one decodes its records in child "
                "processes, and a record that crashes the decoder goes to the quarantine",
                chain.next_epoch,
                count(chain.crashes, "epoch"),
            )
        try:
            # A replay's records were refused once: what some of them do to a decoder may be why.
            pipeline = self._writers.pipeline(self._opened, is_isolated=is_isolated or self._mode is Mode.REJECTED)
        except StoppedError:
            return None
        return None if self._stop.is_set() else pipeline

    def _start(self, lease: WriterLease) -> Job | None:
        """Recover what is pending; None while the timeline has not been born."""
        if self._opened.identity is None:
            return None
        job = self._build_job()
        refuse_ahead(job)
        self._recover(job, lease)
        return job

    def _begin(self, source: WithQuarantine, plan: SourcePlan) -> Job:
        """The first epoch: fix the schema, and check the targets before anything is written."""
        schema = known_schema(self._opened)
        if schema is None:
            schema = source.infer_schema(plan)
            log.info("schema inferred, kept from now on: %s", ", ".join(f"{f.name} {f.type}" for f in schema))
        result = (
            None if self._opened.config.transform is None else self._writers.query(self._opened, schema).analysis.schema
        )
        self._opened = give_birth(self._opened, schema, result)
        job = self._build_job()
        _ensure(job)
        return job

    def _build_job(self) -> Job:
        return replace(
            build_job(self._opened, on_deleted=self._notify),
            # Some of an epoch's records may have crashed the decoder when it was written first.
            rewrite=Replay(lambda: self._writers.pipeline(self._opened, is_isolated=True), self._stop),
        )

    def _waits_for_the_rest(self, plan: SourcePlan) -> bool:
        """Whether one epoch has to hold everything, and some of it has not settled yet."""
        return self._opened.config.takes_whole_source and plan.settles_in_s is not None and not self._has_waited

    def _wait_for_more(self, plan: SourcePlan, started: float) -> bool:
        """Wait until it is worth looking again; False when this run is over."""
        if self._mode is Mode.REJECTED:
            return False
        if self._mode is Mode.ONCE:
            # Something unsettled (an unterminated last line) gets one chance to settle: what is there is taken.
            if plan.settles_in_s is None or self._has_waited:
                return False
            self._has_waited = True
            wait_s = plan.settles_in_s
        else:
            wait_s = max(0.0, self._opened.config.epoch.interval - (self._monotonic() - started))
            if plan.settles_in_s is not None:
                wait_s = min(wait_s, plan.settles_in_s)
            wait_s = max(wait_s, 0.05)
        self._notify(Idle(wait_s))
        self._stop.wait(wait_s)
        return not self._stop.is_set()


def _refuse_whole_source(config: JobConfig) -> None:
    for number, target in enumerate(config.targets):
        if target.takes_whole_source:
            raise ConfigError(
                f"targets[{number}] ({target.type}) takes all that the source has in one transaction, so the job has "
                "an end: run it with --once, or let the target commit epoch by epoch (transaction: checkpoint)"
            )


def _load_chain(opened: Opened) -> Chain:
    return load_chain(opened.store, ActiveTimeline.recent(opened.store, opened.retry), opened.retry, repair=True)


def _fate(job: Job, epoch: int) -> str:
    """What became of an epoch that was open when the job was told to stop."""
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


def _ensure(job: Job) -> None:
    for sink in job.sinks:
        sink.ensure()
