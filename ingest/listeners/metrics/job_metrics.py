"""Metrics of a run: some are updated by each event, the others are computed at each scrape.

Every metric begins with ``tideline_`` and has the label ``job``. The values of each label are bounded:
shards to the worst few, reasons of rejected rows to `MOST_REASONS`, all others are fixed by the job file.
Counters count since this process began.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ingest.execution.reasons import OTHER
from ingest.listeners.metrics.lag import WORST, LagWatch
from ingest.protocol.events import (
    Completed,
    EpochOpened,
    EpochResult,
    Event,
    Fenced,
    Idle,
    Leased,
    LeftPending,
    PendingFound,
    Phase,
    PhaseBegan,
    PhaseDone,
    Planned,
    Renewed,
    Resumed,
    RolledBack,
)
from sinks.base import DeletedFiles
from timeline.chain import Chain
from timeline.epoch import Plan
from timeline.instant import parse_time
from timeline.lease import WriterLease

MOST_REASONS = 50
"""Reasons of rejected rows that have a series of their own."""

OUTCOMES = ("committed", "rolled_back", "pending")
LEASE_STATES = ("none", "held", "lost", "released")

_BUCKETS_S = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)


class JobMetrics:
    """The metrics of one run; a `Listener`. Thread-safe: scrapes come from other threads."""

    def __init__(
        self,
        job: str,
        lag: LagWatch,
        *,
        now_s: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start all counters at 0; no endpoint is opened.

        Args:
            job: the job's name.
            lag: knows the job's lag.
            now_s: the wall clock, seconds since 1970.
            monotonic: measures intervals.
        """
        self.registry = CollectorRegistry()
        self._job = job
        self._lag = lag
        self._now_s = now_s
        self._monotonic = monotonic
        self._began_s: dict[Phase, float] = {}
        self._lease: WriterLease | None = None
        self._pending: dict[str, float] = {}
        self._reasons: set[str] = set()
        self._define_amounts()
        self._define_events()
        self.registry.register(_Looked(self._looked_up))

    def _define_amounts(self) -> None:
        self._rows_read = self._counter("rows_read", "Records read by completed epochs")
        self._rows_accepted = self._counter("rows_committed", "Rows accepted into completed epochs")
        self._rows_rejected = self._counter("rows_rejected", "Rows quarantined, by reason", "reason")
        self._rows_written = self._counter("rows_written", "Rows written to a target", "target")
        self._rows_dropped = self._counter(
            "rows_dropped",
            "Rows that a target left out: another one has their key, or the query leaves them out",
            "target",
        )
        self._files = self._counter("written_files", "Data files of completed epochs", "target")
        self._bytes = self._counter("written_bytes", "Bytes of completed epochs, as the target stores them", "target")
        self._deleted = self._counter(
            "orphan_files_deleted", "Data files deleted that no commit names (rollbacks, late tasks)", "target"
        )
        self._deleted_bytes = self._counter("orphan_deleted_bytes", "Bytes of the data files deleted", "target")

    def _define_events(self) -> None:
        job = self._job
        self._epochs = self._counter("epochs", "Epochs by what became of them", "outcome")
        self._recommits = self._counter("recommits", "Epochs that recovery brought to their end").labels(job)
        self._rollbacks = self._counter("rollbacks", "Instants rolled back").labels(job)
        self._fenced = self._counter(
            "fencing_rejections", "Times that another process had decided this one's epoch, or had taken over"
        ).labels(job)
        self._missed = self._counter(
            "lease_renewal_failures", "Signs of life that the store did not take; the next one follows"
        ).labels(job)
        self._calls = self._counter("callbacks", "on_commit calls by what became of them", "callback", "outcome")
        self._call_retries = self._counter("callback_retries", "on_commit calls that were made again", "callback")
        self._phases = Histogram(
            "tideline_phase_seconds",
            "How long each phase of an epoch took, and recovery",
            ("job", "phase"),
            registry=self.registry,
            buckets=_BUCKETS_S,
        )
        self._last_epoch = self._gauge("last_completed_epoch", "Number of the newest completed epoch")
        self._last_time = self._gauge(
            "last_completed_timestamp_seconds", "When the newest completed epoch was decided, by its writer's clock"
        )
        self._looked_at = self._gauge("last_plan_timestamp_seconds", "When the source was last looked at")
        started = self._gauge("start_timestamp_seconds", "When this process began to measure")
        started.labels(job).set(self._now_s())
        build = self._gauge("build_info", "What runs", "version", "python")
        build.labels(job, version("tideline"), platform.python_version()).set(1)
        for outcome in OUTCOMES:
            self._epochs.labels(job, outcome)
        for phase in Phase:
            self._phases.labels(job, phase.value)
        for metric in (self._rows_read, self._rows_accepted):
            metric.labels(job)

    def __call__(self, event: Event) -> None:
        """See `ingest.protocol.events.Listener`."""
        job = self._job
        match event:
            case Leased(lease):
                self._lease = lease
            case Renewed(is_done):
                self._missed.inc(0 if is_done else 1)
            case PendingFound(instants):
                self._pending = {instant: parse_time(instant) / 1000 for instant in instants}
            case Resumed(chain):
                self._resumed(chain)
            case PhaseBegan(phase):
                self._began_s[phase] = self._monotonic()
            case PhaseDone(phase):
                began_s = self._began_s.pop(phase, self._monotonic())
                self._phases.labels(job, phase.value).observe(self._monotonic() - began_s)
                if phase is Phase.PLAN:
                    self._looked_at.labels(job).set(self._now_s())
            case Planned(_, plan, positions):
                self._lag.planned(plan, positions)
            case EpochOpened(plan):
                self._opened(plan)
            case Completed(result):
                self._completed(result, event.is_recovered)
            case RolledBack(ref):
                self._pending.pop(ref.instant, None)
                self._rollbacks.inc()
                self._epochs.labels(job, "rolled_back").inc()
            case LeftPending():
                self._epochs.labels(job, "pending").inc()
            case DeletedFiles(target, files, size):
                self._deleted.labels(job, target).inc(files)
                self._deleted_bytes.labels(job, target).inc(size)
            case Fenced():
                self._fenced.inc()
            case Idle():
                self._lag.caught_up()

    def called(self, callback: str, *, is_delivered: bool | None) -> None:
        """Count a call of ``on_commit``: delivered, given up, or (None) retried."""
        if is_delivered is None:
            self._call_retries.labels(self._job, callback).inc()
        else:
            self._calls.labels(self._job, callback, "delivered" if is_delivered else "given_up").inc()

    def expect_calls(self, callback: str) -> None:
        """Create a callback's series at 0, so that its first failure is a rise from 0."""
        self._call_retries.labels(self._job, callback)
        for outcome in ("delivered", "given_up"):
            self._calls.labels(self._job, callback, outcome)

    def _resumed(self, chain: Chain) -> None:
        # Rollbacks may have followed: the age of the last commit matters most then.
        if chain.committed is not None:
            self._last_epoch.labels(self._job).set(chain.committed.epoch)
            self._last_time.labels(self._job).set(parse_time(chain.committed.completion_time) / 1000)

    def _opened(self, plan: Plan) -> None:
        self._pending[plan.ref.instant] = parse_time(plan.ref.instant) / 1000
        for target in plan.targets:
            deleted = (self._deleted, self._deleted_bytes)
            for metric in (self._rows_written, self._rows_dropped, self._files, self._bytes, *deleted):
                metric.labels(self._job, target)

    def _completed(self, result: EpochResult, is_recovered: bool) -> None:
        job, manifest = self._job, result.manifest
        self._pending.pop(result.decision.instant, None)
        self._epochs.labels(job, "committed").inc()
        if is_recovered:
            self._recommits.inc()
        else:
            self._lag.completed()
        self._rows_read.labels(job).inc(sum(count.read for count in manifest.counts))
        self._rows_accepted.labels(job).inc(manifest.rows)
        for count in manifest.counts:
            for reason, rows in count.reasons.items():
                self._reject(reason, rows)
            self._reject("not recorded", count.rejected - sum(count.reasons.values()))
        for part in manifest.parts:
            self._reject(f"refused by target {part.target}", part.rejected)
            self._rows_written.labels(job, part.target).inc(part.rows)
            self._rows_dropped.labels(job, part.target).inc(part.dropped)
            self._files.labels(job, part.target).inc(len(part.files))
            self._bytes.labels(job, part.target).inc(part.bytes)
        self._last_epoch.labels(job).set(result.decision.epoch)
        self._last_time.labels(job).set(parse_time(result.decision.completion_time) / 1000)

    def _reject(self, reason: str, rows: int) -> None:
        if rows > 0:
            if reason not in self._reasons and len(self._reasons) >= MOST_REASONS:
                reason = OTHER
            self._reasons.add(reason)
            self._rows_rejected.labels(self._job, reason).inc(rows)

    def _looked_up(self) -> Iterator[Metric]:
        """Metrics computed at a scrape: the state at this moment."""
        oldest = min(list(self._pending.values()), default=None)
        age = self._family("oldest_pending_instant_age_seconds", "Age of the oldest unsettled instant; 0: none")
        age.add_metric([self._job], 0.0 if oldest is None else max(0.0, self._now_s() - oldest))
        yield age
        state = self._family("lease_state", "1 for the state of this process's lease on the timeline", "state")
        for each in LEASE_STATES:
            state.add_metric([self._job, each], float(each == self._lease_state()))
        yield state
        lag = self._lag.lag
        if lag is not None:
            total = self._family("offset_lag_sum", "Bytes or records that are there and not committed", "unit")
            total.add_metric([self._job, lag.unit.value], lag.units)
            yield total
            shards = self._family("shards_behind", "Shards that have something new")
            shards.add_metric([self._job], lag.shards)
            yield shards
            each_shard = self._family("offset_lag", "The same of the shards that are furthest behind", "shard", "unit")
            for shard, units in lag.largest(WORST):
                each_shard.add_metric([self._job, shard, lag.unit.value], units)
            yield each_shard

    def _lease_state(self) -> str:
        lease = self._lease
        if lease is None:
            return "none"
        return "lost" if lease.is_lost else "released" if lease.is_released else "held"

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(f"tideline_{name}", words, ("job", *labels), registry=self.registry)

    def _gauge(self, name: str, words: str, *labels: str) -> Gauge:
        return Gauge(f"tideline_{name}", words, ("job", *labels), registry=self.registry)

    def _family(self, name: str, words: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"tideline_{name}", words, labels=("job", *labels))


class _Looked(Collector):
    """Metrics computed at each scrape: a shard that is no longer among the worst has no series left."""

    def __init__(self, look: Callable[[], Iterator[Metric]]) -> None:
        self._look = look

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        return self._look()
