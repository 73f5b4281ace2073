"""Decoding in a child process: a record that crashes or blocks the decoder is rejected alone."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from ingest.execution.isolated import IsolatedDecoder, is_crash
from ingest.sources.base import Block, Decoded, Decoder
from ingest.sources.decode.lines import TextBlock
from ingest.sources.decode.options import UnknownField
from ingest.sources.files.options import FilesOptions
from ingest.sources.files.source import FilesSource
from ingest.sources.kafka.options import KafkaOptions
from ingest.sources.kafka.source import KafkaSource
from tests.poison import CRASH, ERROR, HANG, MEMORY, SHORT, PoisonedDecoder
from timeline.errors import DataError, SparkJobError, StoreUnavailableError

SCHEMA = pa.schema([("id", pa.int64()), ("host", pa.string())])


def decoder(unknown: UnknownField = UnknownField.DROP, **options: object) -> Decoder:
    source = FilesOptions.model_validate({"type": "files", "path": "logs", "format": "json"} | options)
    return FilesSource(source, on_unknown_field=unknown).decoder(SCHEMA, lineage=True)


def lines(*texts: str) -> Block:
    data = TextBlock.of("".join(f"{text}\n" for text in texts).encode())
    return Block("a.jsonl", 100, data.bounds.rows, data)


def record(number: int, host: str = "web") -> str:
    return f'{{"id":{number},"host":"{host}"}}'


def ids(found: Decoded) -> list[int]:
    return list(found.accepted.column("id").to_pylist())


def test_rows_are_those_that_the_decoder_makes_without_a_child() -> None:
    block = lines(record(1), "{malformed", record(2))
    assert IsolatedDecoder(decoder()).decode(block) == decoder().decode(block)


@pytest.mark.parametrize(
    ("poison", "how"),
    [
        (CRASH, "signal 11"),
        (HANG, "no answer in 3 s"),
        (MEMORY, "out of memory"),
        (ERROR, "LookupError)"),
    ],
)
def test_a_record_that_ends_its_decoder_is_rejected_alone(poison: str, how: str) -> None:
    block = lines(*(record(number, poison if number == 2 else "web") for number in range(5)))
    found = IsolatedDecoder(PoisonedDecoder(decoder()), SHORT).decode(block)
    assert ids(found) == [0, 1, 3, 4]
    (rejected,) = found.rejected.to_pylist()
    assert rejected["reason"].startswith(f"crashed the decoder ({how}")
    assert rejected["raw"] == record(2, poison).encode()
    assert rejected["offset"] == 100 + sum(len(record(number)) + 1 for number in range(2))
    assert found.offsets is not None and len(found.offsets) == 4


@dataclass(frozen=True)
class DiesOnce(PoisonedDecoder):
    """Killed once, for no reason in the record, in the first child process that decodes a single record."""

    flag: Path

    def decode(self, block: Block) -> Decoded:
        if block.rows == 1 and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.decoder.decode(block)


def test_a_record_is_not_refused_for_what_happens_once(tmp_path: Path) -> None:
    found = IsolatedDecoder(DiesOnce(decoder(), tmp_path / "died"), SHORT).decode(lines(record(1)))
    assert (ids(found), found.rejected.num_rows) == ([1], 0)


def test_a_record_that_has_to_stop_the_job_stops_it() -> None:
    strict = IsolatedDecoder(decoder(UnknownField.FAIL))
    with pytest.raises(DataError, match="the schema has no field 'more'"):
        strict.decode(lines(record(1), '{"id":2,"more":1}'))


@dataclass(frozen=True)
class NotToBeLoaded(PoisonedDecoder):
    def __setstate__(self, state: object) -> None:
        raise ImportError("no such module here")


def test_no_record_is_refused_where_children_do_not_start() -> None:
    with pytest.raises(SparkJobError, match=r"cannot be started with .*no such module here"):
        IsolatedDecoder(NotToBeLoaded(decoder())).decode(lines(record(1)))


@dataclass(frozen=True)
class Talkative(PoisonedDecoder):
    def decode(self, block: Block) -> Decoded:
        os.write(1, b"a decoder's own words")
        return self.decoder.decode(block)


def test_what_a_decoder_prints_is_no_answer() -> None:
    assert ids(IsolatedDecoder(Talkative(decoder())).decode(lines(record(1)))) == [1]


def test_it_travels_to_executors_without_its_child() -> None:
    isolated = IsolatedDecoder(decoder())
    isolated.decode(lines(record(1)))
    assert ids(pickle.loads(pickle.dumps(isolated)).decode(lines(record(2)))) == [2]


def parquet_block() -> Block:
    rows = [{"id": number, "host": "web", "blob": b"\xff"} for number in range(5)]
    return Block("a.parquet", 40, 5, pa.RecordBatch.from_pylist(rows))


def message_block() -> Block:
    found = {"offset": pa.array([3, 5, 8, 9, 12]), "value": pa.array([record(n).encode() for n in range(5)])}
    keys = pa.array([b"k%d" % number for number in range(5)])
    return Block("orders/0", 3, 5, pa.RecordBatch.from_pydict(found | {"key": keys}))


def kafka_decoder() -> Decoder:
    options = KafkaOptions.model_validate(
        {"type": "kafka", "bootstrap_servers": "b:1", "topics": ["orders"], "format": "json", "columns": {"key": "k"}}
    )
    schema = pa.schema([*SCHEMA, *options.added_columns])
    return KafkaSource(options).decoder(schema, lineage=True)


BLOCKS: Sequence[tuple[Callable[[], Decoder], Callable[[], Block]]] = [
    (decoder, lambda: lines(record(0), "", record(1), record(2), "", record(3), record(4))),
    (lambda: decoder(format="parquet"), parquet_block),
    (kafka_decoder, message_block),
]


@pytest.mark.parametrize(("make", "block"), BLOCKS)
def test_halves_of_a_block_hold_its_records_at_their_offsets(
    make: Callable[[], Decoder], block: Callable[[], Block]
) -> None:
    whole = make().decode(block())
    pending, alone = [block()], []
    while pending:
        each = pending.pop()
        if each.rows > 1:
            pending += make().halves(each)
        else:
            alone.append(make().decode(each))
    found = sorted(
        (part.offsets[0].as_py(), part.accepted.to_pylist()[0]) for part in alone if part.offsets is not None
    )
    assert whole.offsets is not None
    assert found == list(zip(whole.offsets.to_pylist(), whole.accepted.to_pylist(), strict=True))


@pytest.mark.parametrize(("make", "block"), BLOCKS)
def test_refused_records_keep_their_offsets_and_can_be_decoded_again(
    make: Callable[[], Decoder], block: Callable[[], Block]
) -> None:
    whole, refused = make().decode(block()), make().refuse(block(), "for a test")
    assert refused.accepted.num_rows == 0
    assert refused.rejected.column("offset") == whole.offsets
    assert set(refused.rejected.column("reason").to_pylist()) == {"for a test"}
    assert all(raw for raw in refused.rejected.column("raw").to_pylist())


def test_a_refused_message_keeps_its_key() -> None:
    refused = kafka_decoder().refuse(message_block(), "for a test")
    assert refused.rejected.column("context")[1].as_py() == '{"key": "azE="}'


def test_errors_that_say_what_was_wrong_are_no_crash() -> None:
    assert is_crash(SparkJobError("a worker died")) and is_crash(MemoryError()) and is_crash(ValueError())
    assert not (is_crash(StoreUnavailableError("")) or is_crash(DataError("")) or is_crash(KeyboardInterrupt()))


def test_half_a_block_of_rows_is_half_as_large_for_another_process() -> None:
    rows = pa.RecordBatch.from_pydict({"id": list(range(1000)), "host": ["x" * 1000] * 1000})
    half, _ = decoder(format="parquet").halves(Block("a.parquet", 0, 1000, rows))
    assert len(pickle.dumps(half)) < 0.6 * len(pickle.dumps(Block("a.parquet", 0, 1000, rows)))
