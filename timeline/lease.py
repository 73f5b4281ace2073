"""Who writes a timeline: generations, and a lease that says whether the latest one still lives.

::

    .hoodie/writers/<generation>.json    put-if-absent: one owner for each generation
          │ replaced by its owner every third of its TTL (`beat`), and once at the end (`released`)
          ▼
    observers: body unchanged for a TTL by their own monotonic clock → expired; no two clocks are compared

A lease decides who waits, never who is right: a writer that lost its lease without knowing is
stopped by the decision object. Taking over is creating the next generation.
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
from timeline.process import ProcessId, is_gone, this_process
from timeline.stores.base import ObjectStore, Retry, create_or_read, read_or_none

log = logging.getLogger(__name__)

WRITERS_FOLDER = ".hoodie/writers"
"""Folder of the generations, below the timeline's base path."""


_MOST_UNSEEN = 10
"""Looks at a folder that does not show a generation which its creator was told to exist."""

_UNSEEN_PAUSE_S = 0.05


class LeaseState(enum.Enum):
    """What an observer knows about the latest writer."""

    NONE = "no writer"
    MINE = "mine"
    LIVE = "live"
    EXPIRED = "expired"


@dataclass(frozen=True)
class WriterRecord:
    """Body of one generation.

    Attributes:
        generation: its number; the highest one is the current writer.
        process: who owns it.
        job: the job's name.
        ttl_ms: how long an unchanged body counts as alive.
        beat: grows with every heartbeat.
        released: the owner has ended; nobody needs to wait.
        token: tells this owner from another one's attempt at the same generation.
        ended_by: of one that is released, the error that ended it, as `timeline.redact.shown_error` shows it; "" where
            none did; None of a version that did not tell it.
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
        """Whether the writer's version creates ``owner.json`` before an epoch, as all versions with `ended_by` do."""
        return self.ended_by is not None


WRITER = BodyFormat("writer", WriterRecord)


def writer_path(generation: int) -> str:
    """Where a generation lives, below the timeline's base path."""
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
    """The record of a generation, or of the next one that is there where that one was pruned; None where none is."""
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
        process_is_gone: Callable[[ProcessId], bool] = is_gone,
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
        """Whether a heartbeat was seen since this observer began: the writer certainly lives."""
        return self._has_beaten

    def look(self) -> LeaseState:
        """Read the record once more. LIVE means: not known to be dead yet."""
        asked = self._monotonic()
        record = latest_writer(self.store, self.retry)
        if record is None:
            return LeaseState.NONE
        if record != self._seen:
            self._has_beaten = self._seen is not None and self._seen.token == record.token
            # The record is as it is now since the answer at the latest, and still was when it was asked for:
            # however slow the store answers, silence is never counted longer than it was.
            self._seen, self._since = record, self._monotonic()
        if record.released or self._process_is_gone(record.process):
            return LeaseState.EXPIRED
        return LeaseState.EXPIRED if (asked - self._since) * 1000 >= record.ttl_ms else LeaseState.LIVE

    def remaining_s(self) -> float:
        """Seconds until the writer counts as dead unless it shows a sign of life."""
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
        """This writer's number."""
        return self._record.generation

    @property
    def process(self) -> ProcessId:
        """This writer's process, as others see it."""
        return self._record.process

    @property
    def is_lost(self) -> bool:
        """Whether a later generation was seen: settle what is open, and begin nothing."""
        return self._lost

    @property
    def is_released(self) -> bool:
        """Whether this writer has ended its lease itself."""
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

    def saw(self, generation: int) -> None:
        """Learn of another writer where it has left its number; sooner than the next `beat` would find it."""
        self._lost = self._lost or generation > self.generation

    def beat(self) -> None:
        """Show a sign of life, and look whether a later generation exists, or the lease itself is gone."""
        if read_or_none(self._store, writer_path(self.generation), self._retry) is None:
            self._gone = self._lost = True
            return  # put again it would make a timeline look alive of which the rest may be gone
        self._record = replace(self._record, beat=self._record.beat + 1)
        self._store.put(writer_path(self.generation), WRITER.dump(self._record))
        # Not a look at the next generation alone: that one may have been pruned after many more.
        listed = self._store.list(WRITERS_FOLDER)
        self._lost = self._lost or any(info.path > writer_path(self.generation) for info in listed)

    def keep(self, on_beat: Callable[[bool], None] = lambda is_done: None) -> None:
        """Beat every third of the TTL from a thread of its own until `release`.

        Args:
            on_beat: told, from that thread, of each sign of life whether the store took it; does not raise.
        """
        self._on_beat = on_beat
        self._thread = threading.Thread(target=self._run, name="tideline-lease", daemon=True)
        self._thread.start()

    def release(self, ended_by: str = "") -> None:
        """End the lease: the next writer need not wait. A store that does not answer is no error here.

        Args:
            ended_by: the error that ends this writer; without what may be secret.
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
                self.beat()
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

    A writer that shows a sign of life while it is watched ends the wait at once.

    Args:
        observer: watches the present writer, in the timeline's store.
        job: the job's name, for the record.
        ttl_ms: TTL of the new lease in milliseconds.
        force: do not wait for a live writer; it will find itself fenced once it has settled what it has open.
        process: the process that takes it.
        sleep: waits between looks.

    Raises:
        WriterBusyError: the present writer lives; the message names it.
        StoreUnavailableError: the store's listings do not show what it holds.
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
            # Another process was faster, and the next look shows it.
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
    """Create a generation; False where another process has it."""
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
    """Drop generations that nobody looks at any more; the listing stays short over years of restarts."""
    try:
        for info in store.list(WRITERS_FOLDER):
            if info.path < writer_path(generation - 8):
                store.delete([info.path])
    except (StoreUnavailableError, NotFoundError) as error:
        log.debug("old generations not pruned: %s", error)
