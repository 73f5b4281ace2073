"""Checks of the store guarantees that Tideline needs: the calls of writers, recoveries and readers, raced.

A check returns its observation. Its objects stay below the scratch prefix; the caller removes them.
"""

from __future__ import annotations

import enum
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from timeline.errors import AlreadyExistsError, NotFoundError, StoppedError, StoreUnavailableError
from timeline.stores.base import ObjectInfo, ObjectStore, UnfinishedUpload, size_of
from timeline.units import count

RACERS = 16
"""Concurrent creators of one object."""

LISTED = 1_050
"""Objects of the long listing: more than one page of S3."""

MIB = 1 << 20
UPLOAD_MIB = 17
"""Size of a streaming upload: more than one part."""


class CheckVerdict(enum.Enum):
    """Verdict of a check."""

    OK = "ok"
    FAILED = "FAILED"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class CheckOutcome:
    """A check's verdict and its observation, human-readable."""

    verdict: CheckVerdict
    seen: str


@dataclass(frozen=True)
class CheckContext:
    """Scratch prefix and bounds of the checks.

    Attributes:
        store: the scratch prefix.
        storage: fsspec options; may hold secrets.
        rounds: repetitions in each check.
        stop: set from outside to end the checks; no store call is in flight then.
    """

    store: ObjectStore
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)
    rounds: int = 20
    stop: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def url(self) -> str:
        """URL of the scratch prefix."""
        return self.store.url

    def each_round(self) -> Iterator[int]:
        """Yield the number of each round.

        Raises:
            StoppedError: `stop` was set.
        """
        for number in range(self.rounds):
            self.raise_if_stopped()
            yield number

    def raise_if_stopped(self) -> None:
        """End the checks where `stop` is set.

        Raises:
            StoppedError: `stop` was set.
        """
        if self.stop.is_set():
            raise StoppedError("the checks were stopped")


def ok(seen: str) -> CheckOutcome:
    """Outcome of a check that the store passed."""
    return CheckOutcome(CheckVerdict.OK, seen)


def failed(seen: str) -> CheckOutcome:
    """Outcome of a check that the store failed."""
    return CheckOutcome(CheckVerdict.FAILED, seen)


def skipped(why: str) -> CheckOutcome:
    """Outcome of a check that was skipped."""
    return CheckOutcome(CheckVerdict.SKIPPED, why)


def one_creator_wins(context: CheckContext) -> CheckOutcome:
    """Of concurrent creators of one object exactly one wins, and the object holds the winner's whole body."""
    store, barrier = context.store, threading.Barrier(RACERS)
    bodies = [b"%02d" % racer * 2_000 for racer in range(RACERS)]

    def creates(path: str, racer: int) -> bool:
        barrier.wait()
        try:
            store.put_if_absent(path, bodies[racer])
        except (AlreadyExistsError, StoreUnavailableError):
            return False  # or the reply was lost: then the body identifies the winner
        return True

    with ThreadPoolExecutor(RACERS) as pool:
        for number in context.each_round():
            path = f"race/{number:04}"
            answers = list(pool.map(lambda racer, path=path: creates(path, racer), range(RACERS)))
            winners = [racer for racer, has_won in enumerate(answers) if has_won]
            held = store.get(path)
            if len(winners) > 1:
                return failed(f"{len(winners)} of {RACERS} creators of one object were told that they had won")
            if held not in bodies:
                return failed(
                    f"the object of {RACERS} creators is no creator's body: {held[:20]!r}…, {count(len(held), 'byte')}"
                )
            if winners and held != bodies[winners[0]]:
                return failed("a creator was told that it had won, and the object is another one's")
    return ok(f"{count(context.rounds, 'object')}, {RACERS} creators each: one winner, its body whole")


def reads_see_the_latest_write(context: CheckContext) -> CheckOutcome:
    """A read sees the latest create, replacement or delete at once."""
    store = context.store
    for number in context.each_round():
        path = f"reads/{number:04}"
        for body in (b"created", b"replaced by something longer"):
            store.put(path, body)
            if (found := store.get(path)) != body or size_of(store, path) != len(body):
                return failed(f"read {found!r} after {body!r} was written")
        store.delete([path])
        if size_of(store, path) is not None or not _is_absent(store, path):
            return failed("an object that was deleted is still read")
    return ok(f"{count(3 * context.rounds, 'read')}, each saw the latest write")


def listings_see_the_latest_write(context: CheckContext) -> CheckOutcome:
    """A listing shows the latest create or delete at once."""
    store, expected = context.store, list[ObjectInfo]()
    for number in context.each_round():
        expected.append(ObjectInfo(f"listed/{number:04}", number))
        store.put_if_absent(expected[-1].path, bytes(number))
        if (found := store.list("listed")) != expected:
            return failed(f"{count(len(found), 'object')} listed right after {len(expected)} were created")
    for _ in context.each_round():
        store.delete([expected.pop().path])
        if (found := store.list("listed")) != expected:
            return failed(f"{count(len(found), 'object')} listed right after all but {len(expected)} were deleted")
    return ok(f"{count(2 * context.rounds, 'listing')}, each saw the latest create or delete")


def replacement_is_atomic(context: CheckContext) -> CheckOutcome:
    """A reader of an object that is replaced sees one of its bodies, never a mixture."""
    store, over = context.store, threading.Event()
    bodies = [bytes([97 + place]) * size for place, size in enumerate((1, MIB, 300, 65_536, 10, 500_000))]
    store.put("replaced", bodies[0])

    def read() -> tuple[int, bytes | None]:
        reads = 0
        while not over.is_set():
            reads += 1
            if (found := store.get("replaced")) not in bodies:
                return reads, found
        return reads, None

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for number in context.each_round():
                store.put("replaced", bodies[number % len(bodies)])
        finally:
            over.set()
        answers = [reader.result() for reader in readers]
    for _, mixed in answers:
        if mixed is not None:
            return failed(
                f"a reader saw {count(len(mixed), 'byte')} that nobody wrote, of {sorted(set(mixed))} in the main"
            )
    reads = count(sum(reads for reads, _ in answers), "read")
    return ok(f"{reads} beside {count(context.rounds, 'replacement')} of 1 B to 1 MiB")


def long_listing_is_complete(context: CheckContext) -> CheckOutcome:
    """A listing of more than one page has every object."""
    store, paths = context.store, [f"long/{number:05}" for number in range(LISTED)]
    with ThreadPoolExecutor(RACERS) as pool:
        for start in range(0, LISTED, RACERS):
            context.raise_if_stopped()
            list(pool.map(lambda path: store.put(path, b""), paths[start : start + RACERS]))
    found = [info.path for info in store.list("long")]
    if found != paths:
        return failed(f"{len(found)} of {LISTED} objects listed")
    return ok(f"{LISTED} objects")


def upload_is_invisible_until_closed(context: CheckContext) -> CheckOutcome:
    """An object uploaded in parts is invisible until the upload is closed, and whole afterwards."""
    if context.store.traits.unfinished_upload is UnfinishedUpload.AT_ITS_PATH:
        return skipped("a file is visible while it is written; its marker names it before")
    store, path = context.store, "uploads/closed"
    writer = store.open_write(path)
    try:
        for number in range(UPLOAD_MIB):
            writer.sink.write(bytes([number]) * MIB)
        if size_of(store, path) is not None or store.list("uploads"):
            return failed("an object is visible before its upload is closed")
        size = writer.close()
    finally:
        writer.discard()
    if store.get(path) != b"".join(bytes([number]) * MIB for number in range(UPLOAD_MIB)):
        return failed(f"an upload of {count(size, 'byte')} is not what was written")
    return ok(f"{UPLOAD_MIB} MiB in parts: unseen, then whole")


def given_up_upload_leaves_nothing(context: CheckContext) -> CheckOutcome:
    """An upload aborted by its writer or a recovery leaves no object, and cannot be closed any more."""
    if context.store.traits.unfinished_upload is not UnfinishedUpload.IN_PARTS:
        return skipped("only S3 keeps parts of unfinished uploads")
    store = context.store
    discarded, orphaned = store.open_write("uploads/discarded"), store.open_write("uploads/orphaned")
    try:
        for writer in (discarded, orphaned):
            writer.sink.write(bytes(UPLOAD_MIB * MIB))
        discarded.discard()
        store.abandon(["uploads/orphaned"])
        try:
            orphaned.close()
        except StoreUnavailableError:
            pass
        else:
            return skipped("a recovery may not list and abort uploads here; let a lifecycle rule of the bucket do that")
    finally:
        discarded.discard()
        orphaned.discard()
    found = [path for path in ("uploads/discarded", "uploads/orphaned") if size_of(store, path) is not None]
    return failed(f"{', '.join(found)} is there") if found else ok("ended by its writer and by a recovery")


def clocks_agree(context: CheckContext) -> CheckOutcome:
    """Offset of the store's clock from this machine's; informative, the protocol compares no clocks."""
    before = datetime.now(UTC)
    clock = context.store.clock()
    if clock is None:
        return skipped("one clock")
    away_s = (clock - before).total_seconds()
    # The store reports whole seconds, and the request takes time.
    if abs(away_s) < 2:
        return ok("within 2 s of this machine's")
    return ok(f"{abs(away_s):.0f} s {'behind' if away_s < 0 else 'ahead of'} this machine's; nothing compares them")


def latencies(context: CheckContext) -> CheckOutcome:
    """Median latency of each small call; informative."""
    store = context.store
    calls: Sequence[tuple[str, Callable[[str], object]]] = (
        ("create", lambda path: store.put_if_absent(path, bytes(1_000))),
        ("read", store.get),
        ("list", lambda path: store.list("timed")),
        ("delete", lambda path: store.delete([path])),
    )
    took_ms: dict[str, list[float]] = {name: [] for name, _ in calls}
    for number in context.each_round():
        for name, call in calls:
            started = time.perf_counter()
            call(f"timed/{number}")
            took_ms[name].append((time.perf_counter() - started) * 1000)
    return ok(" · ".join(f"{name} {statistics.median(times):.1f} ms" for name, times in took_ms.items()) + " (median)")


def _is_absent(store: ObjectStore, path: str) -> bool:
    try:
        store.get(path)
    except NotFoundError:
        return True
    return False
