"""The epoch loop: take the lease, recover, then plan and ingest epoch after epoch until told to stop."""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from ingest.build import Opened, build_job, give_birth, known_schema, open_source
from ingest.epoch import EpochResult, Pipeline, run_epoch
from ingest.job import Job
from ingest.recovery import recover
from ingest.runner import Runner
from ingest.sources.base import Source, SourcePlan
from ingest.stores import probe_stores
from timeline.chain import Chain, load_chain, write_snapshot
from timeline.errors import OutrunError, StoppedError
from timeline.failpoints import reach
from timeline.lease import LeaseObserver, WriterLease, take_lease
from timeline.view import Timeline

log = logging.getLogger(__name__)


class Mode(enum.Enum):
    """How long the loop goes on."""

    ONCE = "once"
    CONTINUOUS = "continuous"


class Observer(Protocol):
    """Told what the loop does, for a person who watches."""

    def planned(self, epoch: int, plan: SourcePlan) -> None:
        """An epoch begins."""

    def completed(self, epoch: int, result: EpochResult, elapsed_s: float, plan: SourcePlan) -> None:
        """An epoch is completed."""

    def idle(self, wait_s: float) -> None:
        """Nothing new is there; the loop looks again after this time."""


@dataclass(frozen=True)
class Summary:
    """What one run of the loop did.

    Attributes:
        epochs: epochs completed.
        rows: rows committed.
        rejected: rows quarantined.
        is_stopped: whether a signal ended it, and not the source's end.
        last_word: what became of the epoch that was open at the signal; "" where none was.
    """

    epochs: int = 0
    rows: int = 0
    rejected: int = 0
    is_stopped: bool = False
    last_word: str = ""


class IngestLoop:
    """One run of a job as its timeline's writer."""

    def __init__(
        self,
        opened: Opened,
        open_runner: Callable[[], Runner],
        *,
        mode: Mode,
        stop: threading.Event,
        observer: Observer,
        accept_loss: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a run; nothing is touched before `run`.

        Args:
            opened: the job's timeline.
            open_runner: starts the engine; called only when there is something to ingest.
            mode: whether to end when the source has nothing new.
            stop: set from outside to end the run.
            observer: told what happens.
            accept_loss: go on behind records that the source no longer has, and record the hole.
            monotonic: measures intervals.
        """
        self._opened = opened
        self._open_runner = open_runner
        self._mode = mode
        self._stop = stop
        self._observer = observer
        self._accept_loss = accept_loss
        self._monotonic = monotonic
        self._runner: Runner | None = None
        self._has_waited = False
        self._has_warned = False

    def run(self) -> Summary:
        """Ingest until the source has nothing new (once), or until stopped.

        Raises:
            ConfigError: a store does not create objects exclusively; nothing was touched.
            WriterBusyError: another process writes this timeline.
            TidelineError: what ended the run; its message says what to do.
        """
        probe_stores(self._opened)
        try:
            lease = self._take_lease()
        except StoppedError as stopped:
            return Summary(is_stopped=True, last_word=str(stopped))
        lease.keep()
        reach("lease-taken")
        try:
            return self._run(lease)
        finally:
            try:
                if self._runner is not None:
                    self._runner.close()
            finally:
                lease.release()

    def _take_lease(self) -> WriterLease:
        opened = self._opened

        def sleep(wait_s: float) -> None:
            if self._stop.wait(wait_s):
                raise StoppedError("another writer's lease was waited for")

        return take_lease(
            opened.store,
            job=opened.config.name,
            ttl_ms=round(opened.config.writer.lease_ttl * 1000),
            retry=opened.retry,
            observer=LeaseObserver(opened.store, opened.retry),
            sleep=sleep,
        )

    def _run(self, lease: WriterLease) -> Summary:
        opened, summary = self._opened, Summary()
        job = self._start(opened, lease)
        source = open_source(opened.config, accept_loss=self._accept_loss)
        chain = _load_chain(opened)
        applied_through = -1
        while not self._stop.is_set():
            lease.check()
            started = self._monotonic()
            plan = source.plan(chain.positions)
            if not plan.ranges:
                if not chain.positions and plan.settles_in_s is None and not self._has_warned:
                    self._has_warned = True
                    log.warning(
                        "source %s has no records yet: is this the place that is meant?", opened.config.source.place
                    )
                if not self._wait_for_more(plan, started):
                    break
                continue
            self._has_waited = False
            self._observer.planned(chain.next_epoch, plan)
            if job is None:
                opened, job = self._begin(opened, source, plan)
            pipeline = self._pipeline(opened, source)
            if self._stop.is_set():
                break  # while the engine started: there is no epoch to settle yet
            began = self._monotonic()
            try:
                result = run_epoch(
                    job, pipeline, chain, lease, plan.ranges, stop=self._stop, applied_through=applied_through
                )
            except StoppedError as stopped:
                log.info("epoch %d was rolled back: %s", chain.next_epoch, stopped)
                summary = replace(summary, last_word=f"epoch {chain.next_epoch} was rolled back")
                break
            except OutrunError as outrun:
                # To stop for it would let a writer that is not the writer any more end the one that is.
                log.warning("%s", outrun)
                recover(job, lease)
                chain = _load_chain(opened)
                continue
            applied_through = chain.next_epoch
            chain = chain.advanced(result.decision)
            source.completed(result.decision.positions)
            write_snapshot(opened.store, chain, opened.retry)
            summary = Summary(
                summary.epochs + 1,
                summary.rows + result.decision.rows,
                summary.rejected + result.decision.rejected,
                last_word=f"epoch {applied_through} was finished" if self._stop.is_set() else "",
            )
            self._observer.completed(applied_through, result, self._monotonic() - began, plan)
            if self._mode is Mode.CONTINUOUS and not plan.behind:
                self._stop.wait(max(0.0, opened.config.epoch.interval - (self._monotonic() - started)))
        return replace(summary, is_stopped=self._stop.is_set())

    def _start(self, opened: Opened, lease: WriterLease) -> Job | None:
        """Recover what is pending; None while the timeline has not been born."""
        if opened.identity is None:
            return None
        job = build_job(opened)
        recover(job, lease)
        _ensure(job)
        return job

    def _begin(self, opened: Opened, source: Source, plan: SourcePlan) -> tuple[Opened, Job]:
        """The first epoch: fix the schema, and check the targets before anything is written."""
        schema = known_schema(opened)
        if schema is None:
            schema = source.infer_schema(plan)
            log.info("schema inferred, kept from now on: %s", ", ".join(f"{f.name} {f.type}" for f in schema))
        born = give_birth(opened, schema)
        job = build_job(born)
        _ensure(job)
        return born, job

    def _pipeline(self, opened: Opened, source: Source) -> Pipeline:
        schema = known_schema(opened)
        assert schema is not None
        if self._runner is None:
            self._runner = self._open_runner()
        return Pipeline(source, schema, opened.config.lineage, self._runner)

    def _wait_for_more(self, plan: SourcePlan, started: float) -> bool:
        """Wait until it is worth looking again; False when this run is over."""
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
        self._observer.idle(wait_s)
        self._stop.wait(wait_s)
        return not self._stop.is_set()


def _load_chain(opened: Opened) -> Chain:
    return load_chain(opened.store, Timeline.load(opened.store, opened.retry), opened.retry, repair=True)


def _ensure(job: Job) -> None:
    for sink in job.sinks:
        sink.ensure()
