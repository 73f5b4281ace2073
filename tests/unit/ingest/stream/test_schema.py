"""Columns of a query as columns of a job, and Spark's Arrow batches as rows of a job."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from pyspark.sql import types as spark_types
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType, TimestampType

from ingest.config.load import load_config
from ingest.driver.build import open_source
from ingest.execution.spark.rows import conform
from ingest.stream.schema import check_same, row_schema
from timeline.errors import ConfigError

UTC = datetime.UTC


def columns(**types: spark_types.DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


def test_every_type_of_a_job_file_can_come_from_a_query() -> None:
    found = row_schema(
        columns(
            a=spark_types.ByteType(),
            b=spark_types.ShortType(),
            c=spark_types.IntegerType(),
            d=LongType(),
            e=spark_types.FloatType(),
            f=spark_types.DoubleType(),
            g=spark_types.DecimalType(12, 2),
            h=StringType(),
            i=spark_types.BooleanType(),
            j=spark_types.BinaryType(),
            k=spark_types.DateType(),
            m=TimestampType(),
            n=spark_types.TimestampNTZType(),
            o=ArrayType(MapType(StringType(), columns(**{"x y.z": TimestampType()}), False), False),
        )
    )
    assert found.types == [
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.decimal128(12, 2),
        pa.string(),
        pa.bool_(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
        pa.list_(pa.map_(pa.string(), pa.struct([("x y.z", pa.timestamp("us", "UTC"))]))),
    ]


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (spark_types.DayTimeIntervalType(), "interval"),
        (spark_types.VariantType(), "variant"),
        (spark_types.NullType(), "void"),
        (ArrayType(spark_types.VarcharType(3)), "varchar"),
        (StructType([]), "struct"),
    ],
)
def test_a_type_that_no_target_has_is_refused_with_its_column(kind: spark_types.DataType, named: str) -> None:
    with pytest.raises(ConfigError, match=rf"column 'odd' is .*{named}.*cast it in the query"):
        row_schema(columns(id=LongType(), odd=kind))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (StructType([]), "no columns"),
        (columns(**{" ": LongType()}), "has no name"),
        (StructType([StructField("Id", LongType()), StructField("iD", LongType())]), "'Id' and 'iD'"),
    ],
    ids=["none", "no name", "differ in case"],
)
def test_columns_that_no_table_can_have_are_refused(found: StructType, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        row_schema(found)


def test_other_columns_than_the_jobs_are_refused_with_the_difference() -> None:
    wanted = pa.schema([("id", pa.int64()), ("host", pa.string()), ("ts", pa.date32())])
    check_same(pa.schema([wanted.field(2), wanted.field(0), wanted.field(1)]), wanted, "the job file")
    with pytest.raises(ConfigError, match="of the job file") as refused:
        check_same(pa.schema([("id", pa.int64()), ("ts", pa.string()), ("more", pa.int8())]), wanted, "the job file")
    assert str(refused.value).splitlines()[1:] == [
        "  host: the query has no such column, wanted is string",
        "  ts: the query has string, wanted is date",
        "  more: the query has tinyint, wanted is no such column",
    ]


def test_rows_are_the_same_whatever_zone_width_and_nullability_spark_gives_them() -> None:
    schema = pa.schema(
        [
            ("tags", pa.list_(pa.string())),
            ("at", pa.timestamp("us", "UTC")),
            ("by", pa.map_(pa.string(), pa.struct([("n", pa.decimal128(10, 3)), ("t", pa.timestamp("us", "UTC"))]))),
            ("raw", pa.binary()),
        ]
    )
    berlin = pa.timestamp("us", "Europe/Berlin")
    inner = pa.struct([pa.field("n", pa.decimal128(10, 3), nullable=False), ("t", berlin)])
    spark = pa.schema(
        [
            pa.field("c0", berlin),
            pa.field("c1", pa.large_binary(), nullable=False),
            pa.field("c2", pa.large_list(pa.field("element", pa.large_string(), nullable=False))),
            pa.field("c3", pa.map_(pa.large_string(), inner)),
        ]
    )
    at = datetime.datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
    row = {"c0": at, "c1": b"\xff", "c2": ["é"], "c3": [("k", {"n": Decimal("1.500"), "t": at})]}
    nulls = {"c0": None, "c1": b"", "c2": None, "c3": None}
    done = conform(pa.RecordBatch.from_pylist([row, nulls], spark), schema, order=[2, 0, 3, 1])
    assert done.schema.equals(schema)
    first, second = done.to_pylist()
    assert first == {"tags": ["é"], "at": at, "by": [("k", {"n": Decimal("1.500"), "t": at})], "raw": b"\xff"}
    assert second == {"tags": None, "at": None, "by": None, "raw": b""}


def job_file(folder: Path, **changes: object) -> Path:
    settings = {
        "name": "events",
        "source": {"type": "stream"},
        "targets": [{"type": "delta", "path": f"{folder}/lake"}],
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(settings | changes))
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lineage": True}, "lineage: a stream's rows have no offsets"),
        ({"on_unknown_field": "fail"}, "on_unknown_field: not for a stream: the query decodes"),
        ({"epoch": {"interval": "1s"}}, "epoch: not for a stream: an epoch is a micro-batch"),
        ({"spark": {"master": "local[2]"}}, "spark: not for a stream: the session is the query's own"),
        ({"source": {"type": "stream", "format": "json"}}, "source.format: unknown key; allowed are type"),
    ],
    ids=["lineage", "on_unknown_field", "epoch", "spark", "format"],
)
def test_what_the_query_decides_is_refused_in_the_job_file(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(job_file(tmp_path, **changes))
    assert message in str(refused.value)


def test_the_command_line_says_who_runs_a_stream(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"from ingest.stream import stream"):
        open_source(load_config(job_file(tmp_path)))
