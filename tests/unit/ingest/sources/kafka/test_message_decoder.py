from __future__ import annotations

import datetime
import pickle
from collections.abc import Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message
from hypothesis import given
from hypothesis import strategies as st

from ingest.sources.base import Block, Decoder
from ingest.sources.decode.options import UnknownField
from ingest.sources.kafka.messages import contexts_of, message_batch, restore_messages, with_values
from ingest.sources.kafka.options import KafkaOptions
from ingest.sources.kafka.source import KafkaSource
from tests.unit.ingest.sources.rows import outcome, schema_of
from timeline.errors import ConfigError, DataError

COLUMNS = {"id": "bigint", "host": "string"}
ALL = {name: f"k_{name}" for name in ("key", "key_bytes", "timestamp", "headers", "topic", "partition", "offset")}


def options_of(**changes: Any) -> KafkaOptions:
    return KafkaOptions.model_validate(
        {"bootstrap_servers": "127.0.0.1:1", "topics": ["orders"], "format": "json"} | changes
    )


def decoder_of(
    values: dict[str, str] | None = None, on_unknown_field: UnknownField = UnknownField.DROP, **changes: Any
) -> Decoder:
    options = options_of(**changes)
    schema = pa.schema([*schema_of(values or COLUMNS), *options.added_columns])
    source = KafkaSource(options, on_unknown_field=on_unknown_field)
    decoder: Decoder = pickle.loads(pickle.dumps(source.decoder(schema, lineage=True)))
    return decoder


def message(offset: int, value: bytes | None, **fields: Any) -> Message:
    return Message("orders", 3, offset, value=value, **{"timestamp": (TIMESTAMP_NOT_AVAILABLE, 0)} | fields)


def block_of(messages: Sequence[Message], **changes: Any) -> Block:
    batch = message_batch(messages, options_of(**changes).columns)
    return Block("orders/3~1", batch.column("offset")[0].as_py(), batch.num_rows, batch)


def values(*texts: bytes | None) -> list[Message]:
    """Messages with a gap of offsets before all but the first two, as markers of transactions leave them."""
    return [message(10 + at if at < 2 else 20 + 2 * at, text) for at, text in enumerate(texts)]


def test_rows_and_rejects_keep_kafkas_offsets_and_the_order_of_the_records() -> None:
    block = block_of(
        values(b'{"id": 1, "host": "a"}', b"{broken", b'{"id": 2}', b"", b'{\n  "id": 3\n}\n', b'{"id": "x"}\r\n')
    )
    accepted, rejected = outcome(decoder_of().decode(block))
    assert accepted == [(10, {"id": 1, "host": "a"}), (24, {"id": 2, "host": None}), (28, {"id": 3, "host": None})]
    assert [(offset, raw) for offset, _, raw in rejected] == [(11, b"{broken"), (26, b""), (30, b'{"id": "x"}\r\n')]
    assert all(reason for _, reason, _ in rejected)


@pytest.mark.parametrize(
    ("source", "good", "bad"),
    [
        ({"format": "csv", "csv": {"delimiter": ";"}}, [b"1;a", b"2;b\n", b"3;\r\n"], [b"", b"4", b"x;a", b"1;a;b"]),
        (
            {"format": "text", "pattern": r"(?P<id>\d+) (?P<host>\S*)"},
            [b"1 a", b"2 b\n", b"3 \r\n"],
            [b"", b"x", b"4 \xff"],
        ),
    ],
)
def test_one_line_end_behind_a_value_is_no_part_of_it(
    source: dict[str, Any], good: list[bytes], bad: list[bytes]
) -> None:
    accepted, rejected = outcome(decoder_of(**source).decode(block_of(values(*good, *bad))))
    assert [row for _, row in accepted] == [{"id": 1, "host": "a"}, {"id": 2, "host": "b"}, {"id": 3, "host": None}]
    assert [raw for _, _, raw in rejected] == bad


def test_raw_values_are_kept_byte_for_byte() -> None:
    decoder = decoder_of({"value": "binary"}, format="raw")
    accepted, rejected = outcome(decoder.decode(block_of(values(b"a\n", b"", b"\xff\x00"))))
    assert [row["value"] for _, row in accepted] == [b"a\n", b"", b"\xff\x00"]
    assert not rejected


def test_value_without_bytes_goes_where_the_job_says() -> None:
    columns = {"offset": "at"}
    block = block_of(values(None, b'{"id": 1}', None, b"{", b'{"id": 2}', None), columns=columns)
    accepted, rejected = outcome(decoder_of(columns=columns).decode(block))
    assert [offset for offset, _ in accepted] == [11, 28]
    assert [(offset, raw) for offset, _, raw in rejected] == [(10, None), (24, None), (26, b"{"), (30, None)]
    assert rejected[0][1] == "no value: a tombstone"

    accepted, rejected = outcome(decoder_of(columns=columns, tombstones="row").decode(block))
    assert [(row["id"], row["at"]) for _, row in accepted] == [(None, 10), (1, 11), (None, 24), (2, 28), (None, 30)]
    assert [offset for offset, _, _ in rejected] == [26]

    assert isinstance(block.data, pa.RecordBatch)
    assert with_values(block.data).column("offset").to_pylist() == [11, 26, 28]


def test_what_kafka_knows_of_a_record_stands_behind_its_value() -> None:
    fields = {
        "key": b"k1",
        "timestamp": (TIMESTAMP_CREATE_TIME, 1_700_000_000_123),
        "headers": [("trace", b"\x01"), ("empty", None), ("trace", b"\x02")],
    }
    block = block_of([message(7, b'{"id": 1}', **fields), message(8, b"{}")], columns=ALL)
    accepted, rejected = outcome(decoder_of(columns=ALL).decode(block))
    assert not rejected
    moment = datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=datetime.UTC)
    headers = [{"key": "trace", "value": b"\x01"}, {"key": "empty", "value": None}, {"key": "trace", "value": b"\x02"}]
    of_the_shard = {"k_topic": "orders", "k_partition": 3}
    assert accepted[0][1] == {
        **{"id": 1, "host": None, "k_key": "k1", "k_key_bytes": b"k1", "k_timestamp": moment, "k_headers": headers},
        **of_the_shard,
        "k_offset": 7,
    }
    nothing = dict.fromkeys(("id", "host", "k_key", "k_key_bytes", "k_timestamp", "k_headers"))
    assert accepted[1][1] == {**nothing, **of_the_shard, "k_offset": 8}


def test_key_or_time_that_no_column_holds_rejects_its_record_alone() -> None:
    columns = {"key": "key", "timestamp": "time"}
    late = (TIMESTAMP_CREATE_TIME, 1 << 60)
    block = block_of(
        [
            message(0, b'{"id": 0}', key=b"\xff"),
            message(1, b'{"id": 1}', key=b"fine"),
            message(2, b'{"id": 2}', timestamp=late),
            message(3, b'{"id": 3}'),
        ],
        columns=columns,
    )
    accepted, rejected = outcome(decoder_of(columns=columns).decode(block))
    assert [(offset, row["id"], row["key"]) for offset, row in accepted] == [(1, 1, "fine"), (3, 3, None)]
    assert [(offset, raw) for offset, _, raw in rejected] == [(0, b'{"id": 0}'), (2, b'{"id": 2}')]
    assert rejected[0][1] == "key: not UTF-8: byte 0xff at 0"
    assert "is not in the years 1 to 9999" in rejected[1][1]


def test_unknown_field_stops_the_job_with_kafkas_offset_where_it_says_so() -> None:
    block = block_of(values(b'{"id": 1}', b'{"id": 2}', b'{"id": 3, "new": 1}'))
    with pytest.raises(DataError, match="shard orders/3~1, offset 24: the schema has no field 'new'"):
        decoder_of(on_unknown_field=UnknownField.FAIL).decode(block)
    _, rejected = outcome(decoder_of(on_unknown_field=UnknownField.QUARANTINE).decode(block))
    assert [offset for offset, _, _ in rejected] == [24]


def test_columns_that_the_timeline_does_not_have_are_refused() -> None:
    source = KafkaSource(options_of(columns={"key": "k"}))
    with pytest.raises(ConfigError, match="the timeline's columns are id, host, and k are not the last of them"):
        source.decoder(schema_of(COLUMNS), lineage=False)


texts = st.one_of(
    st.none(),
    st.sampled_from(
        [
            b'{"id": 1}',
            b'{"id": 2, "host": "b"}\n',
            b"{",
            b"",
            b'{"id":\n3}',
            b'{"id": 1}{"id": 2}',
            b"\xff",
            b"[]",
            b"{}",
        ]
    ),
)
keys = st.sampled_from([None, b"k", b"\xff", b""])


@given(st.lists(st.tuples(texts, keys), min_size=1, max_size=12), st.sampled_from(["quarantine", "row"]))
def test_what_becomes_of_a_record_does_not_depend_on_those_around_it(
    records: list[tuple[bytes | None, bytes | None]], tombstones: str
) -> None:
    columns = {"key": "key", "offset": "at"}
    messages = [message(at, value, key=key) for at, (value, key) in enumerate(records)]
    decoder = decoder_of(columns=columns, tombstones=tombstones)
    together = outcome(decoder.decode(block_of(messages, columns=columns)))
    alone = [outcome(decoder.decode(block_of([each], columns=columns))) for each in messages]
    assert together == ([row for rows, _ in alone for row in rows], [row for _, rows in alone for row in rows])


def test_rejected_message_comes_back_with_all_that_was_known_of_it() -> None:
    columns = options_of(columns={"key": "k", "headers": "h", "timestamp": "t"}).columns
    headers = [("a", b"\x00\xff"), ("a", None), ("", b"")]
    messages = [
        message(7, b"value", key=b"\xff", headers=headers, timestamp=(TIMESTAMP_CREATE_TIME, 1_700_000_000_123)),
        message(9, None),
    ]
    batch = message_batch(messages, columns)
    rejected = pa.RecordBatch.from_pydict(
        {"offset": batch.column("offset"), "raw": batch.column("value"), "context": contexts_of(batch)}
    )
    again = restore_messages(rejected, columns)
    assert again.select(batch.schema.names).equals(batch)


def test_column_that_a_job_did_not_have_when_a_message_was_rejected_is_null() -> None:
    batch = message_batch([message(7, b"value", key=b"key")], options_of().columns)
    assert contexts_of(batch).to_pylist() == ["{}"]
    rejected = pa.RecordBatch.from_pydict(
        {"offset": batch.column("offset"), "raw": batch.column("value"), "context": contexts_of(batch)}
    )
    again = restore_messages(rejected, options_of(columns={"key": "k"}).columns)
    assert again.column("key").to_pylist() == [None]


class Unsayable(Message):
    """A message with a header name that is not UTF-8: the client fails to return headers, and nothing else."""

    def headers(self) -> NoReturn:
        raise SystemError("<method 'headers'> returned a result with an exception set")


def test_a_header_whose_name_is_no_text_rejects_its_record_alone() -> None:
    messages = [message(at, b'{"id": 1}', headers=[("a", b"x")]) for at in range(3)]
    messages[1] = Unsayable("orders", 3, 1, value=b'{"id": 1}', timestamp=(TIMESTAMP_NOT_AVAILABLE, 0))
    changes: Any = {"columns": {"headers": "headers"}}
    accepted, rejected = outcome(decoder_of(**changes).decode(block_of(messages, **changes)))
    assert [offset for offset, _ in accepted] == [0, 2]
    assert [(offset, reason) for offset, reason, _ in rejected] == [(1, "headers: the name of one is not UTF-8")]


def test_a_record_of_two_lines_does_not_make_up_for_an_empty_one_at_the_end() -> None:
    block = block_of([message(0, b'{"id": 1}\n{"id": 2}'), message(1, b"")])
    accepted, rejected = outcome(decoder_of().decode(block))
    assert accepted == []
    assert [offset for offset, *_ in rejected] == [0, 1]
