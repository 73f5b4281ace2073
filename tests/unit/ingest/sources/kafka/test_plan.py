from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.sources.kafka.options import KafkaOptions
from ingest.sources.kafka.plan import begin, doubtful, go_on, loss_error, plan_ranges
from ingest.sources.kafka.shards import KafkaPosition, Log, Partition, Shard, Stretch
from timeline.chain import Chain
from timeline.epoch import OffsetRange, Position
from timeline.errors import RangeGoneError, SourceChangedError, SourceError
from timeline.holes import first_there, holes_of

P0, P1 = Partition("orders", 0), Partition("orders", 1)


def options_of(**changes: Any) -> KafkaOptions:
    return KafkaOptions.model_validate(
        {"bootstrap_servers": "b:9092", "topics": ["orders"], "format": "json"} | changes
    )


def position(offset: int, topic_id: str = "A", leader_epoch: int | None = None) -> Position:
    return Position(offset, KafkaPosition(topic_id, leader_epoch).to_json())


def first_ranges(
    logs: Mapping[Partition, Log], at_time: Mapping[Partition, int] | None = None, **changes: Any
) -> tuple[OffsetRange, ...]:
    options = options_of(**changes)
    return plan_ranges(begin(options, logs, at_time or {}), options, {}).ranges


def stretches_of(
    logs: Mapping[Partition, Log], after: Mapping[str, Position], cuts: Mapping[Partition, int] | None = None
) -> list[Stretch]:
    return go_on(options_of(), logs, after, cuts or {})


def committed(stretches: list[Stretch], after: Mapping[str, Position]) -> dict[str, Position]:
    """Positions once the stretches are read."""
    ranges = plan_ranges(stretches, options_of(), {}).ranges
    Chain(1, after).check(ranges)
    return {**after, **{offsets.shard: offsets.end for offsets in ranges}}


def spans(ranges: tuple[OffsetRange, ...]) -> list[str]:
    return [str(offsets) for offsets in ranges]


@pytest.mark.parametrize("shard", [Shard(P0), Shard(P1, 3), Shard(Partition("a.b-c_d", 12), 1)])
def test_shards_and_their_names_go_both_ways(shard: Shard) -> None:
    assert Shard.parse(str(shard)) == shard


def test_first_plan_pins_every_partition_also_an_empty_one() -> None:
    logs = {P0: Log("A", 5, 9), P1: Log("A", 0, 0)}
    assert spans(first_ranges(logs)) == ["orders/0[5, 9)", "orders/1[0, 0)"]
    assert spans(first_ranges(logs, start="latest")) == ["orders/0[9, 9)", "orders/1[0, 0)"]


def test_nothing_is_planned_while_all_logs_are_empty_and_the_start_is_the_earliest() -> None:
    assert first_ranges({P0: Log("A", 7, 7)}) == ()
    assert spans(first_ranges({P0: Log("A", 7, 7)}, start="latest")) == ["orders/0[7, 7)"]


def test_start_at_a_time_is_the_end_where_nothing_is_that_late() -> None:
    logs = {P0: Log("A", 0, 9), P1: Log("A", 0, 4)}
    ranges = first_ranges(logs, {P0: 6}, start={"timestamp": "2026-03-01T00:00:00Z"})
    assert spans(ranges) == ["orders/0[6, 9)", "orders/1[4, 4)"]


def test_start_at_offsets_is_the_beginning_for_partitions_that_are_not_named() -> None:
    logs = {P0: Log("A", 2, 9), P1: Log("A", 1, 4)}
    ranges = first_ranges(logs, start={"offsets": {"orders": {"0": 5}}})
    assert spans(ranges) == ["orders/0[5, 9)", "orders/1[1, 4)"]


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ({"orders": {"0": 10}}, r"offset 10 is not in the log of orders/0; \[2, 9\] is allowed"),
        ({"orders": {"0": 1}}, "offset 1 is not in the log"),
        ({"orders": {"7": 1}}, "no partition orders/7"),
        ({"others": {"0": 1}}, "no partition others/0"),
    ],
)
def test_start_offset_that_is_not_there_is_refused(offsets: dict[str, dict[str, int]], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        first_ranges({P0: Log("A", 2, 9)}, start={"offsets": offsets})


def test_new_partition_begins_at_its_beginning_once_it_has_records() -> None:
    after = {"orders/0": position(9)}
    stretches = stretches_of({P0: Log("A", 0, 9), P1: Log("A", 3, 3)}, after)
    assert plan_ranges(stretches, options_of(start="latest"), {}).ranges == ()
    stretches = stretches_of({P0: Log("A", 0, 9), P1: Log("A", 3, 5)}, after)
    assert spans(plan_ranges(stretches, options_of(start="latest"), {}).ranges) == ["orders/1[3, 5)"]


def test_topic_that_the_job_no_longer_names_is_left_alone() -> None:
    after = {"orders/0": position(9), "others/0": position(50, "X")}
    assert not any(stretch.records or stretch.hole for stretch in stretches_of({P0: Log("A", 0, 9)}, after))


LOSSES: dict[str, tuple[dict[Partition, Log], dict[Partition, int], type[SourceError], list[str], str]] = {
    "retention ran past": (
        {P0: Log("A", 150, 170)},
        {},
        RangeGoneError,
        ["orders/0[100, 170)"],
        "orders/0 [100, 150): deleted by retention",
    ),
    "retention took all": (
        {P0: Log("A", 150, 150)},
        {},
        RangeGoneError,
        ["orders/0[100, 150)"],
        "orders/0 [100, 150): deleted by retention",
    ),
    "topic made anew": (
        {P0: Log("B", 0, 300)},
        {},
        SourceChangedError,
        ["orders/0[100, 100)", "orders/0~1[0, 300)"],
        "orders/0 [100, …): the topic was deleted and created again",
    ),
    "log too short": (
        {P0: Log("A", 0, 60)},
        {},
        SourceChangedError,
        ["orders/0[100, 100)", "orders/0~1[60, 60)"],
        "orders/0 [60, 100): the log was cut off",
    ),
    "log cut off and grown": (
        {P0: Log("A", 0, 120)},
        {P0: 60},
        SourceChangedError,
        ["orders/0[100, 100)", "orders/0~1[60, 120)"],
        "orders/0 [60, 100): the log was cut off",
    ),
    "log cut off somewhere": (
        {P0: Log("A", 0, 70)},
        {P0: 100},
        SourceChangedError,
        ["orders/0[100, 100)", "orders/0~1[70, 70)"],
        "orders/0 [70, 100): the log was cut off",
    ),
    "partition gone": (
        {},
        {},
        SourceChangedError,
        ["orders/0[100, 100)"],
        "orders/0 [100, …): the partition does not exist any more",
    ),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_loss_names_the_range_and_the_next_plan_knows_nothing_of_it(kind: str) -> None:
    logs, cuts, error_class, planned, message = LOSSES[kind]
    after = {"orders/0": position(100)}
    stretches = stretches_of(logs, after, cuts)
    error = loss_error(stretches)
    assert type(error) is error_class
    assert message in str(error)
    assert "--accept-loss" in str(error)
    ranges = plan_ranges(stretches, options_of(), {}).ranges
    assert spans(ranges) == planned
    (hole,) = holes_of(ranges[0].after)
    assert str(hole) in str(error)

    after = committed(stretches, after)
    for _ in range(2):
        stretches = stretches_of(logs, after)
        assert loss_error(stretches) is None
        assert not any(stretch.records for stretch in stretches)
        after = committed(stretches, after)


def test_reading_begins_behind_the_hole() -> None:
    (offsets,) = plan_ranges(
        stretches_of({P0: Log("A", 150, 170)}, {"orders/0": position(100)}), options_of(), {}
    ).ranges
    assert first_there(offsets) == 150
    assert (offsets.start, offsets.until) == (100, 170)


def test_third_life_of_a_partition_follows_its_second() -> None:
    after: dict[str, Position] = {"orders/0": position(100)}
    for topic_id in "BC":
        after = committed(stretches_of({P0: Log(topic_id, 0, 10)}, after), after)
    assert {shard: at.offset for shard, at in after.items()} == {"orders/0": 100, "orders/0~1": 10, "orders/0~2": 10}
    (stretch,) = stretches_of({P0: Log("C", 0, 15)}, after)
    assert (str(stretch.shard), stretch.records, stretch.hole) == ("orders/0~2", 5, None)


def test_topic_that_comes_back_after_its_end_was_accepted_is_read_from_its_beginning() -> None:
    after = committed(stretches_of({}, {"orders/0": position(100)}), {"orders/0": position(100)})
    assert spans(plan_ranges(stretches_of({P0: Log("B", 3, 8)}, after), options_of(), {}).ranges) == [
        "orders/0~1[3, 8)"
    ]
    # The same topic, never deleted: no record is read twice.
    again = stretches_of({P0: Log("A", 0, 108)}, after)
    assert spans(plan_ranges(again, options_of(), {}).ranges) == ["orders/0~1[100, 108)"]


def test_topic_without_ids_is_told_by_its_offsets_alone() -> None:
    after = {"orders/0": Position(100, KafkaPosition().to_json())}
    assert loss_error(stretches_of({P0: Log(None, 0, 120)}, after)) is None
    assert loss_error(stretches_of({P0: Log(None, 0, 20)}, after)) is not None


def test_log_is_in_doubt_where_its_leader_changed_or_it_ends_too_early() -> None:
    after = {"orders/0": position(100, leader_epoch=3)}
    assert doubtful({P0: Log("A", 0, 200, 3)}, after) == {}
    assert doubtful({P0: Log("A", 0, 200, 4)}, after) == {P0: (100, 3)}
    assert doubtful({P0: Log("A", 0, 50, 3)}, after) == {P0: (100, 3)}
    assert doubtful({P0: Log("B", 0, 50, 4)}, after) == {}
    assert doubtful({P0: Log("A", 150, 200, 4)}, after) == {}
    assert doubtful({P0: Log("A", 0, 200, 4)}, {"orders/0": position(100)}) == {}


logs_strategy = st.dictionaries(
    st.builds(Partition, st.sampled_from(["orders"]), st.integers(0, 12)),
    st.builds(lambda start, size: Log("A", start, start + size), st.integers(0, 50), st.integers(0, 200)),
    min_size=1,
)


@given(logs_strategy, st.integers(10, 500), st.integers(1000, 100_000), st.integers(0, 500))
def test_epochs_take_every_record_once_within_the_limits(
    logs: dict[Partition, Log], most_records: int, most_bytes: int, record_bytes: int
) -> None:
    options = options_of(max_records_per_epoch=most_records, max_bytes_per_epoch=most_bytes)
    sizes = {"orders": record_bytes} if record_bytes else {}
    chain = Chain()
    stretches = begin(options, logs, {})
    total = sum(log.end - log.start for log in logs.values())
    taken = 0
    while True:
        plan = plan_ranges(stretches, options, sizes)
        chain.check(plan.ranges)
        records = sum(offsets.until - offsets.start for offsets in plan.ranges)
        active = sum(stretch.records > 0 for stretch in stretches)
        assert records <= max(most_records, active)
        assert records * record_bytes <= max(most_bytes, active * record_bytes)
        taken += records
        assert plan.behind == total - taken
        if not records:
            break
        positions = {**chain.positions, **{offsets.shard: offsets.end for offsets in plan.ranges}}
        chain = Chain(chain.next_epoch + 1, positions)
        stretches = go_on(options, logs, chain.positions, {})
    assert taken == total
