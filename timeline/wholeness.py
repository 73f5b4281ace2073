"""Check for missing timeline objects that only a person, or a lifecycle rule of the store, deletes.

::

    .hoodie/hoodie.properties   as long as there is anything else
    .hoodie/owner.json          from before the first epoch of a version that creates it
    .hoodie/timeline/           a completed instant keeps the files of all its states
    .hoodie/decisions/          one for each epoch, without a gap, up to the newest completed one at least
    .hoodie/offsets/            says that all epochs up to its own are decided

Costs two listings, one body and two sizes beside the view, however long the timeline is; `tideline fsck`, which reads
everything, finds losses older than the newest snapshot. Objects whose absence looks like a crash (a completed file) are
created again. A timeline without an owner whose newest decision is of an older version never had one: its next writer
becomes the owner. Losses without a trace on the timeline itself show in the targets: their markers are ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from timeline.active import ActiveTimeline, states_before
from timeline.chain import SNAPSHOT_EVERY, SNAPSHOTS_FOLDER, newest_completed_epoch
from timeline.decision import DECISIONS_FOLDER, decision_path, read_decision
from timeline.errors import InvariantError
from timeline.hudi.layout import PROPERTIES_PATH
from timeline.instant import TIMELINE_FOLDER, Action, Instant, TimelineLayout
from timeline.lease import first_writer_since
from timeline.owner import OWNER_PATH
from timeline.stores.base import ObjectStore, Retry, size_of

_MOST_NAMED = 3


@dataclass(frozen=True)
class MissingObject:
    """One missing object.

    Attributes:
        path: path of the object, or of its folder, below the timeline's base path.
        words: the evidence that it existed, human-readable.
    """

    path: str
    words: str

    def __str__(self) -> str:
        """The evidence, human-readable."""
        return self.words


def missing(store: ObjectStore, timeline: ActiveTimeline, retry: Retry) -> list[MissingObject]:
    """The missing objects; empty if none is missing.

    Args:
        store: the timeline's store.
        timeline: a view of its newest instants at least (`ActiveTimeline.recent`).
        retry: retry bounds.

    Raises:
        StoreUnavailableError: the timeline could not be listed.
        FormatError: ``owner.json`` does not exist, and the newest decision or its writer's record is damaged.
    """
    return [*_of_instants(timeline), *_of_decisions(store, timeline, retry)]


def require_whole(store: ObjectStore, timeline: ActiveTimeline, retry: Retry, *, is_moved: bool = False) -> None:
    """Refuse a timeline with missing objects.

    Args:
        store: the timeline's store.
        timeline: see `missing`.
        retry: retry bounds.
        is_moved: whether its owner is about to be replaced, on purpose.

    Raises:
        InvariantError: the message names the missing objects; nothing was touched.
    """
    found = [gone for gone in missing(store, timeline, retry) if not (is_moved and gone.path == OWNER_PATH)]
    if found:
        raise InvariantError(f"{store.url}: {missing_message(found)}")


def missing_message(found: Sequence[MissingObject]) -> str:
    """Message with the missing objects and the next step."""
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return (
        f"the timeline is not whole: {'; '.join(map(str, found[:_MOST_NAMED]))}{more}. Tideline never deletes "
        "these: restore them from the store's versions or a backup before anything else runs, and look for a person or "
        "a lifecycle rule that deletes below .hoodie; tideline fsck compares everything"
    )


def _of_instants(timeline: ActiveTimeline) -> Iterator[MissingObject]:
    for instant in timeline.completed().by_action(Action.COMMIT, Action.ROLLBACK):
        if instant.layout is TimelineLayout.TWO:
            yield from _of_states(timeline, instant)


def _of_states(timeline: ActiveTimeline, instant: Instant) -> Iterator[MissingObject]:
    words = {Action.COMMIT: ("plan", "manifest"), Action.ROLLBACK: ("request", "inflight file")}[instant.action]
    for word, name in zip(words, states_before(instant), strict=True):
        if name not in timeline.modified_ms:
            words_of_it = f"{instant.action.value} {instant.time} is completed, and its {word} {name} is gone"
            yield MissingObject(f"{TIMELINE_FOLDER}/{name}", words_of_it)


def _of_decisions(store: ObjectStore, timeline: ActiveTimeline, retry: Retry) -> Iterator[MissingObject]:
    snapshots = _epochs(store, SNAPSHOTS_FOLDER, retry)
    newest = snapshots[-1] if snapshots else -1
    first = max(0, newest - SNAPSHOT_EVERY + 1)
    decided = _epochs(store, DECISIONS_FOLDER, retry, after=decision_path(first - 1) if first else "")
    _, completed = newest_completed_epoch(store, timeline, retry)
    last = max([newest, completed, *decided[-1:]])
    gone = sorted(set(range(first, last + 1)) - set(decided))
    for epoch in gone:
        path = decision_path(epoch)
        yield MissingObject(path, f"epoch {epoch} is decided, and its decision {path} is gone")
    # The first instant may have been created since the timeline was listed.
    if decided and not timeline.instants and not ActiveTimeline.recent(store, retry).instants:
        yield MissingObject(TIMELINE_FOLDER, f"epochs up to {decided[-1]} are decided, and the timeline has no instant")
    is_begun = bool(decided or snapshots or timeline.instants)
    if is_begun and retry.call(partial(size_of, store, PROPERTIES_PATH)) is None:
        yield _of_all_epochs(PROPERTIES_PATH, "the timeline's id and the columns of its tables")
    if decided and _has_lost_owner(store, decided[-1], retry):
        holds = "the job and source that it belongs to (tideline run CONF --new-source writes it anew)"
        yield _of_all_epochs(OWNER_PATH, holds)


def _of_all_epochs(path: str, holds: str) -> MissingObject:
    return MissingObject(path, f"it has epochs, and {path}, which holds {holds}, is gone")


def _has_lost_owner(store: ObjectStore, newest: int, retry: Retry) -> bool:
    """Whether ``owner.json`` was deleted, not merely unwritten: the newest decision's writer had to create it first.

    The newest lease proves nothing: a writer may be killed between its lease and ``owner.json``. A writer that has
    decided an epoch has passed both.
    """
    if retry.call(partial(size_of, store, OWNER_PATH)) is not None:
        return False
    decision = read_decision(store, newest, retry)
    writer = None if decision is None else first_writer_since(store, decision.generation, retry)
    return writer is not None and writer.claims_timeline


def _epochs(store: ObjectStore, folder: str, retry: Retry, after: str = "") -> list[int]:
    """Epochs in the names of a folder's objects, sorted."""
    listed = retry.call(lambda: store.list(folder, after=after))
    names = (info.path.rpartition("/")[2].removesuffix(".json") for info in listed)
    return [int(name) for name in names if name.isdecimal()]
