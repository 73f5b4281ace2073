"""Queries that crash, lose checkpoints and get old ones back, in any order: no row twice, none lost, or a refusal.

The model is Spark as seen from a sink: a checkpoint plans batches, a batch may be run again, and a checkpoint may be
lost, or replaced by an older copy. Batches judged to be ingested go into a table; the table is compared with the log.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ingest.stream.judge import BatchVerdict, judge
from ingest.stream.offsets import Batch, StreamPosition

Log = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Checkpoint:
    """A query's positions: its beginning, and the end of each of its batches."""

    places: tuple[StreamPosition, ...]
    reads: tuple[Log, ...]
    """The records that are read up to each position, whatever its offsets say."""

    @property
    def batch(self) -> Batch:
        """The newest batch."""
        return Batch(len(self.places) - 2, self.places[-2], self.places[-1])


class Histories(RuleBasedStateMachine):
    """Rules that both kinds of sources share."""

    @initialize(partitions=st.integers(1, 2))
    def begin(self, partitions: int) -> None:
        self.ids = count()
        self.clock_ms = count()
        self.log: Log = {"a": {str(number): 0 for number in range(partitions)}}
        self.committed: StreamPosition | None = None
        self.table: Counter[tuple[str, str, int]] = Counter()
        self.base: Log = {}
        self.is_refused = False
        self.is_continuous = True
        self.copies: list[Checkpoint] = []
        self.checkpoint: Checkpoint
        self.start_query("earliest")

    def offsets(self, reads: Log, batches: int) -> Any:
        raise NotImplementedError

    def start_query(self, where: str) -> None:
        raise NotImplementedError

    @rule(data=st.data(), records=st.integers(1, 5))
    def append(self, data: st.DataObject, records: int) -> None:
        topic = data.draw(st.sampled_from(sorted(self.log)))
        partition = data.draw(st.sampled_from(sorted(self.log[topic])))
        self.log[topic][partition] += records

    @precondition(lambda self: not self.is_refused)
    @rule(data=st.data())
    def run_batch(self, data: st.DataObject) -> None:
        """Spark plans a batch up to any offset and runs it."""
        begun = self.checkpoint.reads[-1]
        until: Log = {}
        for topic, partitions in self.log.items():
            for partition, end in partitions.items():
                start = begun.get(topic, {}).get(partition, 0)
                until.setdefault(topic, {})[partition] = data.draw(st.integers(start, end))
        end_place = StreamPosition(
            self.checkpoint.places[0].query, next(self.clock_ms), (self.offsets(until, len(self.checkpoint.places)),)
        )
        self.checkpoint = Checkpoint((*self.checkpoint.places, end_place), (*self.checkpoint.reads, until))
        self.run_newest()

    @precondition(lambda self: not self.is_refused and len(self.checkpoint.places) > 1)
    @rule()
    def run_again(self) -> None:
        """Spark runs its newest batch again, as it has not logged the batch's end."""
        self.run_newest()

    @rule()
    def copy_checkpoint(self) -> None:
        self.copies.append(self.checkpoint)

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def put_copy_back(self, data: st.DataObject) -> None:
        self.checkpoint = data.draw(st.sampled_from(self.copies))
        self.is_refused = False
        self.is_continuous = False

    @rule(where=st.sampled_from(["earliest", "latest"]))
    def lose_checkpoint(self, where: str) -> None:
        self.start_query(where)
        self.is_refused = False
        self.is_continuous = False

    def run_newest(self) -> None:
        batch = self.checkpoint.batch
        verdict = judge(self.committed, batch).verdict
        self.is_refused = verdict is BatchVerdict.REFUSE
        if verdict is BatchVerdict.INGEST:
            self.committed = batch.end.after(self.committed)
            self.commit(*self.checkpoint.reads[-2:])
        assert not (self.is_refused and self.is_continuous), "a query with its own checkpoint always goes on"

    def commit(self, begun: Log, until: Log) -> None:
        for topic, partitions in until.items():
            joins = topic not in self.base
            for partition, end in partitions.items():
                start = begun.get(topic, {}).get(partition, 0)
                self.base.setdefault(topic, {}).setdefault(partition, start if joins else 0)
                self.table.update((topic, partition, offset) for offset in range(start, end))

    @invariant()
    def every_record_is_in_the_table_once_up_to_where_it_stands(self) -> None:
        ends: dict[tuple[str, str], int] = {}
        for topic, partition, offset in self.table:
            ends[topic, partition] = max(ends.get((topic, partition), 0), offset + 1)
        expected = Counter(
            (topic, partition, offset)
            for (topic, partition), end in ends.items()
            for offset in range(self.base[topic][partition], end)
        )
        assert self.table == expected


class LogHistories(Histories):
    """Kafka: offsets are the log's own, partitions and topics join, a new query may begin anywhere."""

    def offsets(self, reads: Log, batches: int) -> Any:
        return {topic: dict(partitions) for topic, partitions in reads.items()}

    def start_query(self, where: str) -> None:
        latest = self.offsets(self.log, 0)
        earliest = {topic: dict.fromkeys(partitions, 0) for topic, partitions in self.log.items()}
        self.begin_at(latest if where == "latest" else earliest)

    def begin_at(self, offsets: Log) -> None:
        self.checkpoint = Checkpoint(
            (StreamPosition(f"q{next(self.ids)}", None, (self.offsets(offsets, 0),)),), (offsets,)
        )

    @precondition(lambda self: len(self.log["a"]) < 4)
    @rule()
    def add_partition(self) -> None:
        self.log["a"][str(len(self.log["a"]))] = 0

    @precondition(lambda self: "b" not in self.log)
    @rule()
    def add_topic(self) -> None:
        self.log["b"] = {"0": 0}

    @precondition(lambda self: self.committed is not None)
    @rule()
    def lose_checkpoint_and_begin_where_the_timeline_stands(self) -> None:
        """The result of `starting_offsets`; Spark requires new partitions to be named too, at their beginning."""
        assert self.committed is not None and self.committed.logs is not None
        (known,) = self.committed.logs
        self.begin_at(
            {
                topic: {partition: known.get(topic, {}).get(partition, 0) for partition in partitions}
                for topic, partitions in self.log.items()
            }
        )
        self.is_refused = False
        self.is_continuous = True
        self.copies.clear()

    @rule(data=st.data())
    def lose_checkpoint_and_begin_anywhere(self, data: st.DataObject) -> None:
        self.begin_at(
            {
                topic: {partition: data.draw(st.integers(0, end)) for partition, end in partitions.items()}
                for topic, partitions in self.log.items()
            }
        )
        self.is_refused = False
        self.is_continuous = False


class OpaqueHistories(Histories):
    """Files: offsets count a query's own batches, and a new query begins at the beginning."""

    def offsets(self, reads: Log, batches: int) -> Any:
        return {"logOffset": batches}

    def start_query(self, where: str) -> None:
        beginning: Log = {topic: dict.fromkeys(partitions, 0) for topic, partitions in self.log.items()}
        self.checkpoint = Checkpoint((StreamPosition(f"q{next(self.ids)}", None, (None,)),), (beginning,))


SETTINGS = settings(max_examples=300, stateful_step_count=30)

TestLogHistories = LogHistories.TestCase
TestLogHistories.settings = SETTINGS
TestOpaqueHistories = OpaqueHistories.TestCase
TestOpaqueHistories.settings = SETTINGS
