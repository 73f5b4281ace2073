"""Writers of a timeline: generations, and a lease that shows whether the latest one is alive.

::

    .hoodie/writers/<generation>.json    put-if-absent: one owner for each generation
          │ replaced by its owner every third of its TTL (`send_heartbeat`), and once at the end (`released`)
          ▼
    observers: body unchanged for a TTL by their own monotonic clock → expired; no two clocks are compared

A lease decides which process waits, never which one is right: the decision object stops a writer that
lost its lease without knowing. A takeover creates the next generation.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from timeline.body import BodyFormat
from timeline.errors import (
    FencedError,
    NotFoundError,
    StoreUnavailableError,
    WriterBusyError,
)
from timeline.process import ProcessId, has_ended, this_process
from timeline.stores.base import ObjectStore, Retry, create_or_read, read_or_none

log = logging.getLogger(__name__)

WRITERS_FOLDER = ".hoodie/writers"
"""Folder of the generations, below the timeline's base path."""


_MOST_UNSEEN = 10
"""Listings in a row without a generation that the store reported as existing, before an error."""

_UNSEEN_PAUSE_S = 0.05


class LeaseState(enum.Enum):
    """State of the latest writer, as known to an observer."""

    NONE = "no writer"
    MINE = "mine"
    LIVE = "live"
    EXPIRED = "expired"


@dataclass(frozen=True)
class WriterRecord:
    """Body of one generation's object.

    Attributes:
        generation: its number; the highest one is the current writer.
        process: the process that owns it.
        job: the job's name.
        ttl_ms: milliseconds for which an unchanged body counts as alive.
        beat: number of heartbeats.
        released: whether the owner has ended its lease, so that no process needs to wait.
        token: distinguishes this owner from another process's attempt at the same generation.
        ended_by: for a released lease, the error that ended the writer, as `timeline.redact.shown_error` shows it; ""
            if there was none; None in records of versions without this field.
    """

    generation: int
    process: ProcessId
    job: str
    ttl_ms: int
    beat: int
    released: bool
    token: str
    ended_by: str | None = None

    @property
    def claims_timeline(self) -> bool:
        """Whether the writer's version creates ``owner.json`` before an epoch, like all versions with `ended_by`."""
        return self.ended_by is not None


WRITER = BodyFormat("writer", WriterRecord)


def writer_path(generation: int) -> str:
    """Path of a generation's object, below the timeline's base path."""
    return f"{WRITERS_FOLDER}/{generation:020d}.json"


def latest_writer(store: ObjectStore, retry: Retry) -> WriterRecord | None:
    """The record of the highest generation; None on a timeline that never had a writer."""
    names = retry.call(lambda: store.list(WRITERS_FOLDER))
    for info in reversed(names):
        body = read_or_none(store, info.path, retry)
        if body is not None:
            return WRITER.load(info.path, body)
    return None


def first_writer_since(store: ObjectStore, generation: int, retry: Retry) -> WriterRecord | None:
    """The record of a generation, or of the next existing one if it was pruned; None if there is none.

    Args:
        store: the timeline's store.
        generation: the first generation to consider.
        retry: retry bounds.
    """
    for info in retry.call(lambda: store.list(WRITERS_FOLDER, after=writer_path(generation - 1))):
        body = read_or_none(store, info.path, retry)
        if body is not None:
            return WRITER.load(info.path, body)
    return None


class LeaseObserver:
    """Watches the latest writer's record with this process's own monotonic clock."""

    def __init__(
        self,
        store: ObjectStore,
        retry: Retry,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        process_is_gone: Callable[[ProcessId], bool] = has_ended,
    ) -> None:
        self.store = store
        self.retry = retry
        self._monotonic = monotonic
        self._process_is_gone = process_is_gone
        self._seen: WriterRecord | None = None
        self._since = 0.0
        self._has_beaten = False

    @property
    def writer(self) -> WriterRecord | None:
        """The record last seen."""
        return self._seen

    @property
    def has_beaten(self) -> bool:
        """Whether a heartbeat of the present writer was seen: the writer is certainly alive."""
        return self._has_beaten

    def look(self) -> LeaseState:
        """Read the record again. LIVE means: not known to be dead yet."""
        asked = self._monotonic()
        record = latest_writer(self.store, self.retry)
        if record is None:
            return LeaseState.NONE
        if record != self._seen:
            self._has_beaten = self._seen is not None and self._seen.token == record.token
            # Silence counts from the answer that first showed this record to the start of the latest request: a slow
            # store never makes it longer than it was.
            self._seen, self._since = record, self._monotonic()
        if record.released or self._process_is_gone(record.process):
            return LeaseState.EXPIRED
        return LeaseState.EXPIRED if (asked - self._since) * 1000 >= record.ttl_ms else LeaseState.LIVE

    def remaining_s(self) -> float:
        """Seconds until the writer counts as dead unless a heartbeat is seen."""
        if self._seen is None:
            return 0.0
        return max(0.0, self._seen.ttl_ms / 1000 - (self._monotonic() - self._since))


class WriterLease:
    """The lease of this process on a timeline: one generation, kept alive until it is released."""

    def __init__(self, store: ObjectStore, record: WriterRecord, retry: Retry) -> None:
        self._store = store
        self._record = record
        self._retry = retry
        self._lost = False
        self._gone = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._on_beat: Callable[[bool], None] = lambda is_done: None

    @property
    def generation(self) -> int:
        """This writer's generation."""
        return self._record.generation

    @property
    def process(self) -> ProcessId:
        """This writer's process, as recorded in the lease."""
        return self._record.process

    @property
    def is_lost(self) -> bool:
        """Whether a later generation was seen, or the lease was deleted: settle the open epoch, and begin no other."""
        return self._lost

    @property
    def is_released(self) -> bool:
        """Whether this writer has released its lease."""
        return self._record.released

    def check(self) -> None:
        """Stop a writer that was taken over before it wastes work; safety does not depend on it.

        Raises:
            FencedError: a later generation exists, or this one was deleted.
        """
        if self._gone:
            raise FencedError(
                f"the lease of writer generation {self.generation} is gone from {self._store.url}/{WRITERS_FOLDER}, "
                "and nobody but a person deletes it: this process stops. Was the timeline deleted under it? Restore "
                "it, or look what is left of it with tideline fsck, before you start again"
            )
        if self._lost:
            raise FencedError(
                f"writer generation {self.generation} was taken over by a later one: this process stops; "
                "the other one goes on from what is decided"
            )

    def note_generation(self, generation: int) -> None:
        """Record a generation found on the timeline, which may be later, before the next heartbeat finds it."""
        self._lost = self._lost or generation > self.generation

    def send_heartbeat(self) -> None:
        """Write a heartbeat, and check whether a later generation exists, or the lease itself was deleted."""
        if read_or_none(self._store, writer_path(self.generation), self._retry) is None:
            self._gone = self._lost = True
            return  # another put would make a timeline look alive whose other objects may be deleted
        self._record = replace(self._record, beat=self._record.beat + 1)
        self._store.put(writer_path(self.generation), WRITER.dump(self._record))
        # A check for the next generation alone would miss a later one once the next one is pruned.
        listed = self._store.list(WRITERS_FOLDER)
        self._lost = self._lost or any(info.path > writer_path(self.generation) for info in listed)

    def start_heartbeats(self, on_beat: Callable[[bool], None] = lambda is_done: None) -> None:
        """Send a heartbeat every third of the TTL from a thread of its own until `release`.

        Args:
            on_beat: called from that thread after each heartbeat with whether the store accepted it; must not raise.
        """
        self._on_beat = on_beat
        self._thread = threading.Thread(target=self._run, name="tideline-lease", daemon=True)
        self._thread.start()

    def release(self, ended_by: str = "") -> None:
        """End the lease, so that the next writer need not wait. A store that does not answer is no error here.

        Args:
            ended_by: the error that ends this writer, without secrets; "" for none.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._lost:
            return
        self._record = replace(self._record, released=True, ended_by=ended_by)
        try:
            self._retry.call(lambda: self._store.put(writer_path(self.generation), WRITER.dump(self._record)))
        except StoreUnavailableError as error:
            log.warning("lease of generation %d not released, others wait for its TTL: %s", self.generation, error)

    def _run(self) -> None:
        while not self._stop.wait(self._record.ttl_ms / 3000):
            try:
                self.send_heartbeat()
                self._on_beat(True)
            except StoreUnavailableError as error:
                self._on_beat(False)
                log.warning("heartbeat of generation %d failed, next one follows: %s", self.generation, error)


def take_lease(
    observer: LeaseObserver,
    *,
    job: str,
    ttl_ms: int,
    force: bool = False,
    process: Callable[[], ProcessId] = this_process,
    sleep: Callable[[float], None] = time.sleep,
) -> WriterLease:
    """Become the timeline's writer: wait until the latest one is known to be dead, then create the next generation.

    A heartbeat of the watched writer ends the wait at once.

    Args:
        observer: watches the present writer, in the timeline's store.
        job: the job's name, for the record.
        ttl_ms: TTL of the new lease in milliseconds.
        force: do not wait for a live writer, which is fenced once it has settled its open epoch.
        process: returns the process that takes the lease.
        sleep: waits between reads of the record.

    Raises:
        WriterBusyError: the present writer is alive; the message names it.
        StoreUnavailableError: the store's listings do not show existing objects.
    """
    announced = False
    unseen: Counter[int] = Counter()
    while True:
        state = observer.look()
        writer = observer.writer
        if writer is None or state in (LeaseState.NONE, LeaseState.EXPIRED) or force:
            record = _next_record(writer, process(), job, ttl_ms)
            if _create(observer.store, record, observer.retry):
                return WriterLease(observer.store, record, observer.retry)
            # Another process was faster, and the next listing shows its record.
            unseen[record.generation] += 1
            if unseen[record.generation] >= _MOST_UNSEEN:
                raise _unlisted(observer.store, record.generation)
            if unseen[record.generation] > 1:
                sleep(_UNSEEN_PAUSE_S * unseen[record.generation])
            continue
        if observer.has_beaten:
            raise WriterBusyError(
                f"job {writer.job!r} already writes this timeline: {writer.process}, generation {writer.generation}, "
                "and it is alive. Stop it first, or start with another timeline.path"
            )
        if not announced:
            announced = True
            held = f"{writer.process} (generation {writer.generation}) holds the lease"
            log.info("%s; watching it for up to %.0f s", held, observer.remaining_s())
        sleep(min(observer.remaining_s(), max(0.05, writer.ttl_ms / 12000)))


def _create(store: ObjectStore, record: WriterRecord, retry: Retry) -> bool:
    """Create a generation; returns False if another process owns it."""
    body = WRITER.dump(record)
    if create_or_read(store, writer_path(record.generation), body, retry) != body:
        return False
    log.info("writer generation %d taken by %s", record.generation, record.process)
    _prune(store, record.generation)
    return True


def _unlisted(store: ObjectStore, generation: int) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"{store.url}/{writer_path(generation)} exists, but {_MOST_UNSEEN} listings of {WRITERS_FOLDER} do not show "
        "it: the store does not list what it holds. Check the path's spelling and what lies between this machine "
        "and the store (tideline check-store tells more)"
    )


def _next_record(latest: WriterRecord | None, process: ProcessId, job: str, ttl_ms: int) -> WriterRecord:
    return WriterRecord(
        generation=latest.generation + 1 if latest else 1,
        process=process,
        job=job,
        ttl_ms=ttl_ms,
        beat=0,
        released=False,
        token=uuid.uuid4().hex,
        ended_by="",
    )


def _prune(store: ObjectStore, generation: int) -> None:
    """Delete old generations, which no process needs any more; the listing stays short over years of restarts."""
    try:
        for info in store.list(WRITERS_FOLDER):
            if info.path < writer_path(generation - 8):
                store.delete([info.path])
    except (StoreUnavailableError, NotFoundError) as error:
        log.debug("old generations not pruned: %s", error)
