"""Texts at the edges of every type, decoded in every format and on every path, and compared with `values_oracle`.

By hand, for as long as you like: ``python -m tests.property.values_at_length --values 5000000 --seed 7``.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
from confluent_kafka import Message

from ingest.sources.base import Block, Decoded
from ingest.sources.decode.options import RecordFormat, UnknownField
from ingest.sources.decode.raw_records import RawDecoder
from ingest.sources.decode.records import TextRecords
from ingest.sources.files.parquet import ParquetDecoder
from ingest.sources.kafka.messages import message_batch
from ingest.sources.kafka.options import KafkaOptions
from ingest.sources.kafka.source import KafkaSource
from sinks.sql_types import parse_type
from tests.property.values_oracle import REJECTED, of_json, of_number, of_text, same
from tests.unit.ingest.sources.rows import block_of, source_of

_MANY, _SOME, _FEW = 1000, 200, 10
"""Values per batch, by the time that one value takes."""
_DECIMALS = ["(1,0)", "(5,2)", "(10,0)", "(12,2)", "(18,9)", "(28,10)", "(38,0)", "(38,1)", "(38,18)", "(38,38)"]
TYPES = [
    *("tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "string", "binary"),
    *("date", "timestamp", "timestamp_ntz"),
    *(f"decimal{each}" for each in _DECIMALS),
]
SHAPES = ["{}", "array<{}>", "struct<x:{}>", "map<string,{}>", "struct<x:array<struct<x:{}>>>"]
_WORDS = [
    "",
    " ",
    "null",
    "true",
    "True",
    "FALSE",
    "yes",
    "0",
    "1",
    "-0",
    "+1",
    "1_000",
    "٣",
    "0x10",
    "1,5",
    "1f",
]
_FLOAT_WORDS = ["NaN", "nan", "Infinity", "-inf", "+Inf", "-NaN", "1e400", "1e-400", "3.4028235677973366e38", "7e-46"]
_TEXTS = ["x", "a,b", 'say "no"', "ä€😀", "\\", "\t", "QUJD", "QUJ", "QQ==", "Q Q=", "e-1", "\x7f", "'", "{}", "[1]"]
_MIDDLES_OF_32 = ["1.000000059604644775390625", "16777217", "0.50000002980232238769531250", "7.00649232162408535e-46"]


@dataclass(frozen=True)
class Difference(Exception):
    """A value that was decoded differently than by Python."""

    path: str
    kind: pa.DataType
    text: str
    wanted: object
    found: object

    def __str__(self) -> str:
        wanted = "rejected" if self.wanted is REJECTED else repr(self.wanted)
        found = "rejected" if self.found is REJECTED else repr(self.found)
        return f"{self.path}, {self.kind}: {self.text!r} is {wanted}, decoded as {found}"


class Texts:
    """Random texts from a seed."""

    def __init__(self, seed: int) -> None:
        """The same seed gives the same texts."""
        self._draw = random.Random(seed)

    def one(self, kind: pa.DataType) -> str:
        """A random text, mostly a valid or nearly valid value of the type."""
        draw = self._draw
        if draw.random() < 0.04:
            return draw.choice(_WORDS + _FLOAT_WORDS + _TEXTS)
        if pa.types.is_temporal(kind):
            return self._moment(pa.types.is_date(kind))
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            return draw.choice(_TEXTS) + draw.choice(["", "", *_TEXTS])
        if pa.types.is_boolean(kind):
            return draw.choice(["true", "false", "True", "FALSE", "0", "1", "2", "t", ""])
        if pa.types.is_integer(kind) and draw.random() < 0.7:
            limit = 2 ** draw.choice([3, 7, 8, 15, 16, 31, 32, kind.bit_width - 1, 63, 64])
            number = draw.choice([draw.randint(-limit, limit), limit, limit - 1, -limit, -limit - 1])
            return draw.choice(["", "", "", "", "0", "000", "+"]) + str(number)
        if pa.types.is_float32(kind) and draw.random() < 0.2:
            return draw.choice(_MIDDLES_OF_32) + draw.choice(["", "", "0", "00000000000000000000001"])
        return self._number(kind)

    def json(self, kind: pa.DataType) -> str:
        """A random JSON text, mostly a valid or nearly valid value of the type."""
        draw = self._draw
        if draw.random() < 0.03:
            return draw.choice(["null", "{}", "[]", "[null]", '{"x":null}', "tru", '"open', "1 2", "-", '"\\ud800"'])
        if pa.types.is_struct(kind):
            return '{"x":' + self.json(kind.field(0).type) + "}"
        if pa.types.is_map(kind):
            names = draw.sample(["a", "b", "x", "ä"], draw.randint(0, 2))
            return "{" + ",".join(f"{json.dumps(name)}:{self.json(kind.item_type)}" for name in names) + "}"
        if pa.types.is_list(kind):
            return "[" + ",".join(self.json(kind.value_type) for _ in range(draw.randint(0, 2))) + "]"
        text = self.one(kind)
        is_quoted = pa.types.is_temporal(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind)
        if draw.random() < (0.97 if is_quoted else 0.1):
            return json.dumps(text, ensure_ascii=draw.random() < 0.5)
        return text or "null"

    def _number(self, kind: pa.DataType) -> str:
        draw = self._draw
        digits = 38
        if pa.types.is_decimal(kind):
            digits = draw.choice([kind.precision - kind.scale, kind.precision, kind.precision + 1, 76, 78])
        whole = draw.choice([str(draw.randrange(10 ** draw.randint(1, digits + 1))), "9" * max(1, digits), "0", "1"])
        scale = kind.scale if pa.types.is_decimal(kind) else draw.randint(0, 20)
        count = draw.choice([0, 0, 1, scale, scale, scale + 1, draw.randint(0, 40)])
        fraction = "".join(draw.choices("0123456789" if draw.random() < 0.6 else "00009", k=count))
        if draw.random() < 0.01:
            fraction = "0" * draw.choice([44, 45, 46, 322, 323, 324, 5000]) + draw.choice(["1", "0", "5"])
        exponent = ""
        if draw.random() < 0.3:
            size = draw.choice([draw.randint(0, 9), draw.randint(0, 60), draw.choice([76, 77, 78, 308, 309, 323, 324])])
            size = draw.choice([5000, 99999, 10**7, 2**31, 10**19]) if draw.random() < 0.1 else size
            exponent = draw.choice("eE") + draw.choice(["", "+", "-", "-", "-0", "-000"]) + str(size)
        point = "." if fraction or draw.random() < 0.01 else ""
        sign = draw.choice(["", "", "", "-", "-", "+"] if draw.random() < 0.2 else ["", "", "-"])
        zeros = draw.choice(["0", "00", "0" * 40, "0" * 300]) if draw.random() < 0.03 else ""
        return sign + zeros + ("" if point and draw.random() < 0.02 else whole) + point + fraction + exponent

    def _moment(self, is_date: bool) -> str:
        draw = self._draw
        year = draw.choice([draw.randint(1, 9999), 0, 1, 4, 1582, 1900, 1970, 2000, 2024, 9999])
        month, day = draw.choice(
            [(draw.randint(1, 12), draw.randint(1, 31)), (2, 28), (2, 29), (2, 30), (13, 1), (1, 0)]
        )
        text = f"{year:04d}-{month:02d}-{day:02d}"
        if draw.random() < 0.03:
            return draw.choice(
                [f"{year}-{month}-{day}", f"1{text}", f"+{text}", f" {text}", f"{text} ", text[:7], f"-{text}"]
            )
        if (is_date and draw.random() < 0.95) or draw.random() < 0.05:
            return text
        hour, minute, second = draw.choice([(draw.randint(0, 23), draw.randint(0, 59), draw.randint(0, 59)), (0, 0, 0)])
        if draw.random() < 0.06:
            hour, minute, second = draw.choice([(24, 0, 0), (25, 0, 0), (23, 60, 0), (23, 59, 60), (23, 59, 61)])
        text += draw.choice(["T", "T", " ", "T", "t", "  ", "_"] if draw.random() < 0.1 else "T ") + f"{hour:02d}"
        depth = draw.choice([0, 1, 2, 2, 3, 3, 3, 3])
        text += f":{minute:02d}" * (depth > 0) + f":{second:02d}" * (depth > 1)
        if depth > 2:
            text += draw.choice("....,") + "".join(
                draw.choices("0123456789", k=draw.choice([1, 3, 6, 6, 7, 9, 10, 12]))
            )
        zones = ["", "", "Z", "Z", "+00:00", "+01:00", "-11:30", "+0530", "+14", "-23:59", "+23:59"]
        odd = ["z", "+24:00", "-24:00", "+1", "+01:0", " Z", "UTC", "+", "+01:00:00"]
        return text + draw.choice(odd if draw.random() < 0.05 else zones)


@dataclass(frozen=True)
class Path:
    """A code path that decodes records.

    Attributes:
        name: human-readable.
        is_json: whether values are JSON.
        decode: decodes each text as a record with one column of the type.
        wanted: the value of a text, by Python.
        batch: number of values that are decoded together.
        takes: whether the path decodes a type.
    """

    name: str
    is_json: bool
    decode: Callable[[Sequence[str], pa.DataType], Sequence[object]]
    wanted: Callable[[str, pa.DataType], object]
    batch: int = _MANY
    takes: Callable[[pa.DataType], bool] = lambda _: True

    @property
    def is_nested(self) -> bool:
        """Whether texts may be lists, structs and maps: Parquet stores those as nested columns, not as texts."""
        return not self.name.startswith("Parquet")


def _by_row(decoded: Decoded, starts: Sequence[int]) -> list[object]:
    """The value of each record, or REJECTED."""
    assert decoded.offsets is not None
    values = dict(zip(decoded.offsets.to_pylist(), decoded.accepted.column("v").to_pylist(), strict=True))
    rejected = set(decoded.rejected.column("offset").to_pylist())
    assert len(values) + len(rejected) == len(starts), "rows are lost or doubled"
    assert rejected.isdisjoint(values)
    return [values.get(start, REJECTED) for start in starts]


def _lines(lines: Sequence[str]) -> tuple[bytes, list[int]]:
    encoded = [line.encode() + b"\n" for line in lines]
    return b"".join(encoded), [0, *itertools.accumulate(map(len, encoded))][:-1]


def _json(texts: Sequence[str], kind: pa.DataType, *, other: str = "int", around: str = "") -> Sequence[object]:
    lines = [f'{{"v":{text},"k":null}}' for text in texts]
    if around:
        lines = [line for pair in zip(lines, itertools.repeat(around), strict=False) for line in pair]
    data, starts = _lines(lines)
    schema = pa.schema([("v", kind), ("k", parse_type(other))])
    found = _by_row(source_of("x").decoder(schema, lineage=True).decode(block_of(data)), starts)
    return found[:: 2 if around else 1]


def _json_alone(texts: Sequence[str], kind: pa.DataType) -> Sequence[object]:
    return [found for text in texts for found in _json([text], kind)]


def _json_good(texts: Sequence[str], kind: pa.DataType) -> Sequence[object]:
    """Decode only texts that Python accepts, so that Arrow reads all of them at once."""
    wanted = [of_json(text, kind) for text in texts]
    good = iter(_json([text for text, value in zip(texts, wanted, strict=True) if value is not REJECTED], kind))
    return [REJECTED if value is REJECTED else next(good) for value in wanted]


def _csv(texts: Sequence[str], kind: pa.DataType) -> Sequence[object]:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([text, "1"] for text in texts)
    data, starts = _lines(out.getvalue().split("\n")[:-1])
    schema = pa.schema([("v", kind), ("k", pa.int32())])
    source = source_of("x", format="csv", csv={"header": False})
    return _by_row(source.decoder(schema, lineage=True).decode(block_of(data)), starts)


def _text(texts: Sequence[str], kind: pa.DataType) -> Sequence[object]:
    data, starts = _lines([f"{text}|1" for text in texts])
    source = source_of("x", format="text", pattern=r"(?P<v>.*)\|(?P<k>1)")
    schema = pa.schema([("v", kind), ("k", pa.int32())])
    return _by_row(source.decoder(schema, lineage=True).decode(block_of(data)), starts)


def _text_alone(texts: Sequence[str], kind: pa.DataType) -> Sequence[object]:
    return [found for text in texts for found in _text([text], kind)]


def _kafka(texts: Sequence[str], kind: pa.DataType) -> Sequence[object]:
    options = KafkaOptions(bootstrap_servers="127.0.0.1:1", topics=("orders",), format=RecordFormat.JSON)
    messages = [Message("orders", 3, at, value=f'{{"v":{text},"k":null}}'.encode()) for at, text in enumerate(texts)]
    batch = message_batch(messages, options.columns)
    decoder = KafkaSource(options).decoder(pa.schema([("v", kind), ("k", pa.int32())]), lineage=True)
    return _by_row(decoder.decode(Block("orders/3~1", 0, len(texts), batch)), range(len(texts)))


def _parquet(values: pa.Array, kind: pa.DataType) -> Sequence[object]:
    batch = pa.RecordBatch.from_arrays([values], ["v"])
    decoder = ParquetDecoder(pa.schema([("v", kind)]), UnknownField.DROP, lineage=True)
    return _by_row(decoder.decode(Block("shard", 0, len(values), batch)), range(len(values)))


def _parquet_texts(texts: Sequence[str], kind: pa.DataType) -> Sequence[object]:
    return _parquet(pa.array(texts, pa.string()), kind)


def _or_null(text: str, kind: pa.DataType) -> object:
    return of_text(text, kind) if text else None


def _is_number(kind: pa.DataType) -> bool:
    return not pa.types.is_temporal(kind) and (pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def _numbers(source: pa.DataType, *, inside: bool = False) -> Path:
    """Columns of numbers of this type, null for a text that is no number; `inside`: in structs."""

    def number(text: str) -> int | float | Decimal | None:
        found = of_text(text, source)
        return found if isinstance(found, (int, float, Decimal)) and found == found else None

    def decode(texts: Sequence[str], kind: pa.DataType) -> Sequence[object]:
        values = pa.array(map(number, texts), source)
        if not inside:
            return _parquet(values, kind)
        found = _parquet(pa.StructArray.from_arrays([values], ["x"]), pa.struct([("x", kind)]))
        return [each["x"] if isinstance(each, dict) else each for each in found]

    def wanted(text: str, kind: pa.DataType) -> object:
        value = number(text)
        return None if value is None else of_number(value, kind)

    return Path(
        f"Parquet, {source}{', in structs' * inside}", False, decode, wanted, _SOME if inside else _MANY, _is_number
    )


def _raw(texts: Sequence[str], kind: pa.DataType) -> Sequence[object]:
    records = TextRecords("shard", pa.array([text.encode() for text in texts], pa.binary()), pa.arange(0, len(texts)))
    return _by_row(RawDecoder(pa.schema([("v", kind)]), lineage=True).decode(records), range(len(texts)))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


_BROKEN = '{"v":{"x":[{"x":tru}]},"k":"x"}'
PATHS = [
    Path("JSON", True, _json, of_json, _SOME),
    Path("JSON that Arrow reads at once", True, _json_good, of_json),
    Path("JSON line by line", True, lambda texts, kind: _json(texts, kind, other="binary"), of_json),
    Path("JSON beside maps", True, lambda texts, kind: _json(texts, kind, other="map<string,int>"), of_json, _SOME),
    Path("JSON around broken lines", True, lambda texts, kind: _json(texts, kind, around=_BROKEN), of_json, _SOME),
    Path("JSON alone", True, _json_alone, of_json, _FEW),
    Path("Kafka, JSON", True, _kafka, of_json, _SOME),
    Path("CSV", False, _csv, _or_null),
    Path("text", False, _text, _or_null),
    Path("text alone", False, _text_alone, _or_null, _FEW),
    Path("raw", False, _raw, of_text, _MANY, _is_text),
    Path("Parquet, texts", False, _parquet_texts, of_text),
    _numbers(pa.decimal256(76, 20)),
    _numbers(pa.decimal128(38, 0)),
    _numbers(pa.decimal128(38, 0), inside=True),
    _numbers(pa.int64()),
    _numbers(pa.float64()),
    _numbers(pa.float64(), inside=True),
]


def check(seed: int, values: int) -> int:
    """Decode at least `values` values, up to the end of a batch; returns their number.

    Raises:
        Difference: a value is decoded differently than by Python.
    """
    texts, done = Texts(seed), 0
    for shape, path, name in itertools.cycle(itertools.product(SHAPES, PATHS, TYPES)):
        kind = parse_type(shape.format(name))
        if (shape != "{}" and not path.is_nested) or not path.takes(kind):
            continue
        count = path.batch if shape == "{}" else path.batch // 2  # so that 500,000 values cover everything once
        batch = [texts.json(kind) if path.is_json or shape != "{}" else texts.one(kind) for _ in range(count)]
        for text, found in zip(batch, path.decode(batch, kind), strict=True):
            wanted = path.wanted(text, kind)
            if not same(wanted, found):
                raise Difference(path.name, kind, text, wanted, found)
        done += count
        if done >= values:
            return done
    return done


def main() -> None:
    """Check as many values as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=5_000_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    start_s = time.monotonic()
    print(f"{check(given.seed, given.values):,} values, no difference, {time.monotonic() - start_s:.0f} s")


if __name__ == "__main__":
    main()
