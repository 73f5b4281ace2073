from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ingest.sources.base import Block
from ingest.sources.decode.decimals import exact, to_decimals
from ingest.sources.decode.json.exponents import rows_of_exponents
from ingest.sources.decode.options import UnknownField
from ingest.sources.decode.values import Number, to_value
from ingest.sources.files.parquet import ParquetDecoder
from tests.unit.ingest.sources.rows import block_of, outcome, schema_of, source_of

WRAPS = "380754864410884207981"
"""One digit too many for decimal(38,18): in 128 bits it wraps around to another value."""
TINY = ["1e-77", "1e-10000000", "1E-5000", "0.5e-2147483649", "1e-99999999999999999999", "0." + "0" * 5000 + "1"]


def _values(lines: list[str], kind: str, **options: Any) -> list[object]:
    """The values of accepted lines."""
    decoder = source_of("x", **options).decoder(schema_of({"v": kind, "k": "int"}), lineage=True)
    accepted, rejected = outcome(decoder.decode(block_of("".join(f"{line}\n" for line in lines).encode())))
    assert len(accepted) + len(rejected) == len(lines)
    return [row["v"] for _, row in accepted]


def _parquet(values: pa.Array, kind: str) -> tuple[list[object], list[str]]:
    """Accepted values, and the reasons of rejected ones."""
    decoder = ParquetDecoder(schema_of({"v": kind}), UnknownField.DROP, lineage=True)
    batch = pa.RecordBatch.from_arrays([values], ["v"])
    accepted, rejected = outcome(decoder.decode(Block("shard", 0, len(values), batch)))
    return [row["v"] for _, row in accepted], [reason for _, reason, _ in rejected]


@pytest.mark.parametrize("count", [1, 1000])
def test_a_decimal_that_128_bits_do_not_hold_is_rejected_in_csv_and_text(count: int) -> None:
    texts = ["12.5", WRAPS, *["1"] * (count - 1)]
    good = [Decimal("12.5"), *[Decimal(1)] * (count - 1)]
    csv = _values([f"{text},1" for text in texts], "decimal(38,18)", format="csv", csv={"header": False})
    assert csv == good
    pattern = r"(?P<v>\S+) (?P<k>\d)"
    assert _values([f"{text} 1" for text in texts], "decimal(38,18)", format="text", pattern=pattern) == good


@pytest.mark.parametrize("shape", ["{}", "struct<x:{}>", "array<{}>", "map<string,{}>"])
@pytest.mark.parametrize("source", [pa.decimal128(38, 0), pa.decimal256(76, 0), pa.string()])
def test_a_decimal_that_128_bits_do_not_hold_is_rejected_in_parquet_wherever_it_stands(
    source: pa.DataType, shape: str
) -> None:
    def column(text: str) -> pa.Array:
        values = pa.array([text if source == pa.string() else Decimal(text)], source)
        offsets = pa.array([0, 1], pa.int32())
        match shape:
            case "{}":
                return values
            case "struct<x:{}>":
                return pa.StructArray.from_arrays([values], ["x"])
            case "array<{}>":
                return pa.ListArray.from_arrays(offsets, values)
        return pa.MapArray.from_arrays(offsets, pa.array(["a"]), values)

    both = pa.concat_arrays([column(WRAPS), column("5")])
    accepted, reasons = _parquet(both, shape.format("decimal(38,18)"))
    assert repr(accepted).count("Decimal('5.000000000000000000')") == len(accepted) == len(reasons) == 1
    assert "decimal(38,18)" in reasons[0]


@pytest.mark.parametrize("kind", ["decimal(10,2)", "decimal(38,18)", "decimal(38,0)", "double", "float", "timestamp"])
@pytest.mark.parametrize("shape", ["{}", "struct<x:{}>", "array<{}>", "map<string,{}>"])
def test_a_tiny_exponent_in_json_is_rejected_and_no_zero_and_no_crash(kind: str, shape: str) -> None:
    inside = {"{}": "%s", "array<{}>": "[%s]"}.get(shape, '{"x":%s}')
    options = {"timestamp_format": {"v": "epoch_s"}} if (kind, shape) == ("timestamp", "{}") else {}
    written = [tiny for tiny in TINY if kind != "double" or tiny != "1e-77"]
    written += [f'"{tiny}"' for tiny in TINY] + ['"1\\u0065-10000000"', '"\\u0031e-10000000"']
    lines = [f'{{"v":{inside % text},"k":1}}' for text in written]
    around = ['{"v":null,"k":1}'] * 5
    assert _values([*around, *lines, *around], shape.format(kind), **options) == [None] * 10
    for line in lines:
        assert _values([line], shape.format(kind), **options) == []


@pytest.mark.parametrize("kind", ["decimal(10,2)", "decimal(38,18)", "double", "float", "timestamp"])
def test_a_tiny_exponent_in_texts_and_parquet_is_rejected_and_no_zero_and_no_crash(kind: str) -> None:
    tiny = [text for text in TINY if kind != "double" or text != "1e-77"]
    options: dict[str, Any] = {"timestamp_format": {"v": "epoch_ms"}} if kind == "timestamp" else {}
    assert _values([f"{text},1" for text in tiny], kind, format="csv", csv={"header": False}, **options) == []
    assert _values([f"{text} 1" for text in tiny], kind, format="text", pattern=r"(?P<v>\S+) (?P<k>1)", **options) == []
    assert _parquet(pa.array(tiny), kind)[0] == []


def test_a_tiny_exponent_in_a_field_that_is_no_column_is_passed_over() -> None:
    lines = [f'{{"other":{text},"v":1.5,"k":1}}' for text in TINY]
    assert _values(lines, "decimal(10,2)") == [Decimal("1.50")] * len(TINY)


def test_an_ordinary_exponent_is_left_to_arrow() -> None:
    in_texts = b'{"v":1.5e-05,"id":"9e-20","u":"e7b8-7e-99"}\n{"v":"5e-99-1","w":"x5e-99"}'
    assert rows_of_exponents(in_texts, 28) == set()
    assert rows_of_exponents(b'{"v":1}\n{"v":1e-29}\n', 28) == {1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("5.", "5.00"), (".5", "0.50"), ("+1", "1.00"), ("-0", "0.00"), ("1.500000", "1.50"), ("12e1", "120.00")],
        *[("1500e-3", "1.50"), ("0e-99999999", "0.00"), ("0" * 500 + "5", "5.00"), ("999.99", "999.99")],
        *[(text, None) for text in ("1000", "0.001", "1e3", "", ".", "+", "1e", "e1", " 1", "1_0", "٣", "NaN", "0x1")],
    ],
)
def test_a_text_is_the_decimal_that_it_says_in_a_column_and_alone(text: str, value: str | None) -> None:
    wanted = None if value is None else Decimal(value)
    assert exact(text, 5, 2) == wanted
    assert to_decimals(pa.array([text, "1"]), pa.decimal128(5, 2)).to_pylist() == [wanted, Decimal("1.00")]
    assert to_decimals(pa.array([text] * 3 + [None]), pa.decimal128(5, 2)).to_pylist() == [wanted] * 3 + [None]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array([1, 1000, None, -999]), ["1.00", None, None, "-999.00"]),
        (pa.array([2**64 - 1, 3], pa.uint64()), [None, "3.00"]),
        (pa.array([0.1, 1.005, 1e300, 5e-324, float("nan"), -0.0]), ["0.10", None, None, None, None, "0.00"]),
        (pa.array([0.1, 3.25], pa.float32()), ["0.10", "3.25"]),
        (pa.array([Decimal("1.50000"), Decimal("1.50001")]), ["1.50", None]),
        (pa.array([Decimal("1.5"), Decimal("1000.5")]), ["1.50", None]),
        (pa.array([b"1.5", b"\xff", None]), ["1.50", None, None]),
        (pa.array(["1.5", "x"]).dictionary_encode(), ["1.50", None]),
        (pa.array([True]), [None]),
    ],
)
def test_a_number_of_any_type_becomes_a_decimal_exactly_or_not_at_all(
    values: pa.Array, wanted: list[str | None]
) -> None:
    found = to_decimals(values, pa.decimal128(5, 2)).to_pylist()
    assert found == [None if text is None else Decimal(text) for text in wanted]


def test_numbers_and_texts_in_parquet_are_no_other_values() -> None:
    assert _parquet(pa.array([5, 1, 0]), "boolean")[0] == [True, False]
    assert _parquet(pa.array(["0x10", "16"]), "int")[0] == [16]
    assert _parquet(pa.array(["1e400", "1e-400", "1.5"]), "double")[0] == [1.5]
    assert _parquet(pa.array([1e-50, 1e300, 1.5]), "float")[0] == [1.5]
    assert _parquet(pa.array([[1e-50], [1e300], [1.5]]), "array<float>")[0] == [[1.5]]
    years = pa.array([[2**62], [0], None], pa.list_(pa.timestamp("us")))
    assert len(_parquet(years, "array<timestamp_ntz>")[0]) == 2


def test_32_bits_are_rounded_to_once_in_a_block_and_alone() -> None:
    """Rounded to 64 bits first, the number is a tie, which is rounded to the even neighbour, 1."""
    above_a_tie = "1.00000005960464477539062500000000000001"
    assert _values([f'{{"v":{above_a_tie}}}'], "float") == [1.0000001192092896]
    assert to_value(Number(above_a_tie), "v", pa.float32(), None) == 1.0000001192092896
