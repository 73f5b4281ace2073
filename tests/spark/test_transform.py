"""A job with a query, on Spark: the queries allowed, and each record's row exactly once."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ingest.config.load import load_config
from ingest.driver.build import TimelineHandle, open_source, open_timeline
from ingest.driver.fsck import check, fix
from ingest.driver.loop import IngestLoop
from ingest.driver.summary import Mode, Summary
from ingest.execution.task import TaskReport, TaskSpec
from ingest.transform.analysis import Analysis, analyze
from ingest.transform.layout import added_columns
from ingest.transform.session import open_session
from sinks.audit import Problem
from sinks.base import sequential
from sinks.parquet.partition_rows import with_partition_columns
from sinks.partition import PartitionField, Transform
from timeline.active import ActiveTimeline
from timeline.errors import ConfigError, DataError, RowCountError, SparkJobError
from timeline.stores.opening import open_store

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
TResult = TypeVar("TResult")
TS = pa.timestamp("us", tz="UTC")
SOURCE = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", TS),
        ("host", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("user", pa.struct([("first name", pa.string())])),
    ]
)


def look(spark: SparkSession, query: str) -> Analysis:
    return analyze(open_session(spark), query, SOURCE)


def test_a_query_tells_its_columns_and_those_that_it_reads(spark: SparkSession) -> None:
    found = look(spark, "SELECT upper(host) AS h, id + 1 AS n, user.`first name` AS f FROM source WHERE id > 3")
    assert found.schema == pa.schema([("h", pa.string()), ("n", pa.int64()), ("f", pa.string())])
    assert found.columns == ("id", "host", "user") and found.leaves_out


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT * FROM source", ("id", "ts", "host", "tags", "user")),
        ("SELECT * EXCEPT (ts, tags) FROM source", ("id", "host", "user")),
        ("SELECT 1 AS one FROM source", ("id",)),
        ("SELECT 'now' AS n, host = 'today' AS h, ts > '2020-01-01' AS t FROM source", ("ts", "host")),
        ("WITH a AS (SELECT id, host FROM source) SELECT host FROM a", ("host",)),
        ("SELECT transform(tags, t -> upper(t)) AS tags FROM source s", ("tags",)),
        ("FROM source |> SELECT id, named_struct('a b', host) AS s", ("id", "host")),
        ("SELECT id FROM IDENTIFIER('source')", ("id",)),
        ("WITH a(user) AS (SELECT host FROM source) SELECT user FROM a", ("host",)),
    ],
)
def test_queries_that_take_each_row_by_itself_are_taken(
    spark: SparkSession, query: str, columns: tuple[str, ...]
) -> None:
    found = look(spark, query)
    assert found.columns == columns and not found.leaves_out


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT host, count(*) AS n FROM source GROUP BY host", "GROUP BY"),
        ("SELECT max(id) AS n FROM source", "aggregate"),
        ("SELECT DISTINCT host FROM source", "DISTINCT"),
        ("SELECT host FROM source ORDER BY id", "ORDER BY"),
        ("SELECT host FROM source LIMIT 3", "LIMIT"),
        ("SELECT host FROM source UNION ALL SELECT host FROM source", "UNION"),
        ("SELECT a.id FROM source a JOIN source b ON a.id = b.id", "JOIN"),
        ("SELECT row_number() OVER (ORDER BY id) AS r FROM source", "window"),
        ("SELECT explode(tags) AS t FROM source", "explode"),
        ("SELECT t FROM source LATERAL VIEW explode(tags) x AS t", "explode"),
        ("SELECT id FROM source TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT /*+ REPARTITION(3) */ id FROM source", "hint"),
        ("SELECT id FROM source WHERE id IN (SELECT id FROM source)", "inside of an expression"),
        ("SELECT (SELECT max(id) FROM source) AS m FROM source", "inside of an expression"),
        ("SELECT id + rand() AS r FROM source", "rand:"),
        ("SELECT uuid() AS u FROM source", "uuid:"),
        ("SELECT monotonically_increasing_id() AS u FROM source", "monotonically_increasing_id:"),
        ("SELECT input_file_name() AS f FROM source", "input_file_name:"),
        ("SELECT current_timestamp() AS t FROM source", "current_timestamp:"),
        ("SELECT id FROM source WHERE ts > now()", "now:"),
        ("SELECT unix_timestamp() AS t FROM source", "current_timestamp:"),
        ("SELECT id FROM source WHERE ts > 'now'", "'now': the same record"),
        ("SELECT id FROM source WHERE ts BETWEEN '2020-01-01' AND 'today'", "'today': the same record"),
        ("SELECT try_cast('tomorrow' AS DATE) AS d FROM source", "'tomorrow': the same record"),
        ("SELECT to_date('yesterday') AS d FROM source", "'yesterday': the same record"),
        ("SELECT to_timestamp(' NOW ') AS d FROM source", "'now': the same record"),
        ("SELECT id FROM source WHERE ts > concat('to', 'day')", "'today': the same record"),
        ("SELECT CAST(CAST('now' AS STRING) AS DATE) AS d FROM source", "'now': the same record"),
        ("SELECT timestamp'now' AS t FROM source", "'now': the same record"),
        ("SELECT CAST(t.a AS TIMESTAMP) AS x FROM (SELECT '12:30' AS a FROM source) t", "'12:30': the same record"),
        (
            "WITH a AS (SELECT '12:30' AS t, id FROM source), b AS (SELECT t AS u FROM a) "
            "SELECT CAST(concat(u, '') AS TIMESTAMP) AS x FROM b",
            "'12:30': the same record",
        ),
        ("FROM source |> EXTEND 'now' AS a |> SELECT ts > a AS x", "'now': the same record"),
        (
            "SELECT to_date(s.d) AS x FROM (SELECT named_struct('d', 'today') AS s FROM source)",
            "'today': the same record",
        ),
        (
            "SELECT id FROM source WHERE named_struct('a', ts) IN (named_struct('a', '12:00'))",
            "'12:00': the same record",
        ),
        ("SELECT id FROM source WHERE ts IN ('2020-01-01', host, '12:00')", "'12:00': the same record"),
        ("SELECT id FROM source WHERE exists(SELECT 1)", "inside of an expression"),
        ("SELECT TRANSFORM(id) USING 'cat' AS (x) FROM source", "TRANSFORM ... USING"),
        ("SELECT /*+ BROADCAST(source) */ id FROM source", "a hint"),
        ("SELECT v FROM source UNPIVOT (v FOR k IN (id))", "UNPIVOT"),
        ("EXECUTE IMMEDIATE 'SELECT id FROM source'", "PARSE_SYNTAX_ERROR"),
        ("FROM source INSERT INTO x SELECT id", "PARSE_SYNTAX_ERROR"),
        ("BEGIN SELECT id FROM source; END", "PARSE_SYNTAX_ERROR"),
        ("SELECT 1 AS one", "something else"),
        ("VALUES (1)", "something else"),
        ("SELECT id FROM range(3)", "something else"),
        ("SELECT * FROM parquet.`/etc`", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT id FROM nowhere", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT nothing FROM source", "Did you mean"),
        ("SELECT id FROM source; DROP TABLE x", "PARSE_SYNTAX_ERROR"),
        ("CREATE TABLE x AS SELECT id FROM source", "PARSE_SYNTAX_ERROR"),
        ("INSERT INTO source SELECT * FROM source", "PARSE_SYNTAX_ERROR"),
        ("SELECT id + 1 FROM source", "needs a name"),
        ("SELECT id, host AS ID FROM source", "case does not matter"),
        ("SELECT NULL AS n FROM source", "cannot be stored"),
        ("SELECT parse_json(host) AS v FROM source", "cannot be stored"),
    ],
)
def test_a_query_that_is_none_of_single_rows_is_refused_and_says_why(
    spark: SparkSession, query: str, reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        look(spark, query)
    assert reason in str(caught.value)
    assert "\tat " not in str(caught.value) and "LogicalRDD" not in str(caught.value)


@pytest.mark.parametrize(
    "expression",
    [
        "timestamp/* */'now'",
        "timestamp -- a comment\n 'now'",
        r"timestamp'n\u006fw'",
        "date r'yesterday'",
        'TIMESTAMP_NTZ" today "',
        "timestamp_ltz'Tomorrow UTC'",
        "date/**/'today' + INTERVAL 1 DAY",
        "id > 0 AND ts BETWEEN timestamp\n'yesterday' AND ts",
        "CAST(right('xnow', 3) AS TIMESTAMP)",
        "CAST(nvl(NULL, 'today') AS DATE)",
        "CAST(split_part('a,now', ',', 2) AS TIMESTAMP_NTZ)",
        "date(decode(unhex('6e6f77'), 'utf-8'))",
        "hour('now')",
        "size(transform(tags, t -> ts > 'today'))",
        # Without a date, Spark takes today's.
        "timestamp'12:30'",
        "CAST('T12:30:00Z' AS TIMESTAMP)",
        "to_timestamp(concat('12', ':30'))",
        "CAST(array('12:30') AS ARRAY<TIMESTAMP>)[0]",
        "CAST(named_struct('a', '12:30') AS STRUCT<a: TIMESTAMP>).a",
        "CAST(map('a', '12:30') AS MAP<STRING, TIMESTAMP>)['a']",
        "CAST(array(host, '12:30') AS ARRAY<TIMESTAMP>)[0]",
        "CAST('12:30' COLLATE UTF8_LCASE AS TIMESTAMP)",
        "CAST(CAST('12:30' AS VARIANT) AS TIMESTAMP)",
        "CAST(parse_json('\"12:30\"') AS TIMESTAMP)",
        "variant_get(parse_json('[\"12:30\"]'), '$[0]', 'timestamp')",
        "try_variant_get(to_variant_object(named_struct('a', '12:30')), '$.a', 'timestamp')",
        "from_json('{\"a\": \"12:30\"}', 'a timestamp').a",
        r"from_json('{\"a\": \"1\\u0032:30\"}', 'a timestamp').a",
        "from_json('[\"12:30\"]', 'array<timestamp>')[0]",
        "from_json(coalesce(host, '{\"a\": \"12:30\"}'), 'a timestamp').a",
        "from_json('{\"a\": \"12:30\"}', 'a string').a::timestamp",
        "from_csv('a,12:30', 'a string, b timestamp').b",
        "from_csv('12:30', 'a variant').a::string",
        "from_csv('a;12:30', 'a string, b timestamp', map('sep', ';')).b",
        "from_xml('<r><a>12:30</a></r>', 'a timestamp').a",
        "transform(array('12:30'), t -> CAST(t AS TIMESTAMP))[0]",
        "transform(array('12', '13'), t -> CAST(concat(t, ':30') AS TIMESTAMP))[0]",
        "aggregate(array('12:30'), ts, (a, t) -> CAST(t AS TIMESTAMP))",
        "aggregate(array(1), '12:30', (a, t) -> a, a -> CAST(a AS TIMESTAMP))",
        "CAST(filter(array('12:30'), t -> t > host)[0] AS TIMESTAMP)",
        "CAST(if(id > 0, '12:30', '13:30') AS TIMESTAMP)",
        "CAST(CASE id WHEN 1 THEN host WHEN 2 THEN '12:30' END AS TIMESTAMP)",
        "CAST(nvl(host, '12:30') AS TIMESTAMP)",
        "CAST(nullif('12:30', host) AS TIMESTAMP)",
        "CAST(decode(id, 77, '12:30', '2020-01-01') AS TIMESTAMP)",
        "CAST(concat(if(id > 77, '12', '2020-01-01 12'), ':30') AS TIMESTAMP)",
        "CAST(concat(id, ':30') AS TIMESTAMP)",
        "CAST(date_format(ts, 'HH:mm') AS TIMESTAMP)",
        "CAST(elt(id, '2020-01-01', '12:30') AS TIMESTAMP)",
        "CAST(split_part('12:30,13:30', ',', CAST(id AS INT)) AS TIMESTAMP)",
        "CAST(map('a', '12:30')[host] AS TIMESTAMP)",
        "CAST(substring('2020-01-01 12:30', CAST(id AS INT)) AS TIMESTAMP)",
        "coalesce(ts, '12:30')",
        "IDENTIFIER(if(hour(now()) < 24, 'id', 'host'))",
        "IDENTIFIER(if(current_date > date'2020-01-01', 'id', 'host'))",
        "to_json(from_json(host, if(timestamp/**/'now' > date'2020-01-01', 'a INT', 'b INT')))",
        "size(transform(tags, t -> now()))",
        "current_time()",
        "current_timezone()",
        "version()",
        "uniform(0, 10)",
        "size(shuffle(tags))",
        "try_reflect('java.util.UUID', 'randomUUID')",
        # Deterministic for Spark, with a random initialization vector.
        "aes_encrypt(host, '0000111122223333')",
        "aes_encrypt(host, '0000111122223333', 'CBC', 'DEFAULT', '')",
    ],
)
def test_a_value_that_does_not_follow_from_the_row_is_refused_however_it_is_written(
    spark: SparkSession, expression: str
) -> None:
    with pytest.raises(ConfigError, match="the same record would give another row the next time"):
        look(spark, f"WITH a AS (SELECT {expression} AS x FROM source) SELECT CAST(x AS STRING) AS x FROM a")


@pytest.mark.parametrize(
    "expression",
    [
        "'timestamp ''now'' '",
        "concat(host, 'date \"today\"') /* timestamp'now' */",
        "CAST('epoch' AS TIMESTAMP)",
        "timestamp'epoch'",
        "timestamp'2020-01-01 12:30:00+02:00'",
        "try_to_timestamp('2020-01-01')",
        "CAST('12:30' AS STRING)",
        "aes_encrypt(host, '0000111122223333', 'ecb')",
        "aes_encrypt(host, '0000111122223333', 'GCM', 'DEFAULT', CAST(host AS BINARY))",
        "CASE WHEN id = 0 THEN 1 / 0 ELSE id END",
        "coalesce(host, raise_error('no host'))",
        "if(id < 0, CAST(raise_error('less than none') AS STRING), host)",
        "assert_true(id > 0) IS NULL",
        "format_string('%05d %s', id, host)",
        "split(split_part(host, ',', 1), '[a-c]')[0]",
        "host RLIKE host AND host LIKE '%a' AND date_format(ts, host) = ''",
        "aes_decrypt(CAST(host AS BINARY), '0000111122223333')",
        "aes_decrypt(CAST(host AS BINARY), host)",
        "CASE WHEN id = 0 THEN elt(5, 'a', 'b') ELSE host END",
        "tags[0] = 'a' OR elt(5, 'a', 'b') = 'x'",
        "host = '' AND bit_get(id, CAST(id AS INT)) = 0 AND id / 0 = 1",
        "elt(id, 'a', 'b')",
        "element_at(array(1, 2), CAST(id AS INT)) + element_at(tags, -1)",
        "split_part('a-b', '-', CAST(id AS INT))",
        "next_day('2020-01-01', host)",
        "encode('a', host)",
        "from_utc_timestamp(ts, host)",
        "regexp_extract(host, host, 3) || regexp_extract(host, '(a)', 1)",
        "map_from_arrays(tags, array('a'))",
        "make_date(2020, CAST(id AS INT), 40)",
        "parse_url(host, 'HOST', 'x')",
        "tags[5] || CAST(host::int AS STRING)",
        "CASE WHEN id = 0 THEN id / 0 ELSE id END",
        # Strings of the row are cast as they are; constants have a date, or a format.
        "CAST(concat(host, ' 12:30') AS TIMESTAMP)",
        "transform(tags, t -> CAST(concat(t, ' 12:30') AS TIMESTAMP))",
        "CAST(concat(date(ts), ' 12:30') AS TIMESTAMP)",
        "CAST(concat('2020-01-01 ', id, ':30') AS TIMESTAMP)",
        "CAST(from_unixtime(id) AS TIMESTAMP)",
        "CAST(nvl(host, '2020-01-01') AS TIMESTAMP)",
        "CAST(array('2020-01-01 12:30', host) AS ARRAY<TIMESTAMP>)[0]",
        "CAST(named_struct('a', '12:30', 'b', host).b AS TIMESTAMP)",
        "CAST(named_struct('a', '12:30', 'b', ts) AS STRUCT<a: STRING, b: TIMESTAMP_NTZ>).b",
        "from_json(nvl(host, '{}'), 'a timestamp').a",
        "from_json('{\"a\": \"2020-01-01 12:30\"}', 'a timestamp').a",
        "from_json('{\"a\": \"12:30\"}', 'a timestamp', map('timestampFormat', 'HH:mm')).a",
        "variant_get(parse_json(host), '$.a', 'timestamp')",
        "10 / (id - 7) + 10 / if(id > 1000, 1, 0)",
        "id = 7 AND id % 0 = 1",
        "size(filter(tags, t -> id % 0 = 1))",
        "try_divide(id, 0)",
        "map_from_arrays(array('a', 'b', 'c', 'd'), tags)",
        "to_timestamp(host, 'dd/MMM/yyyy:HH:mm:ss Z')",
        "CAST(split_part(host, ' ', 3) AS INT)",
        "from_json(host, 'a int', map('mode', 'FAILFAST')).a",
        "from_csv(host, 'a int, b int', map('mode', 'FAILFAST')).a",
        "from_json(host, 'a timestamp', map('timestampFormat', 'yyyy-MM-dd HH:mm')).a",
        "sequence(date'2020-01-01', CAST(ts AS DATE), INTERVAL 1 DAY)",
        "sequence(1000, id, 1)",
        "CAST(id + 300 AS TINYINT) + element_at(array(1, 2), CAST(id AS INT))",
        "to_number(host, '999')",
    ],
)
def test_a_value_that_follows_from_the_row_is_taken(spark: SparkSession, expression: str) -> None:
    look(spark, f"SELECT {expression} AS x FROM source")


@pytest.mark.parametrize(
    ("expression", "blamed", "condition"),
    [
        ("1/0", "1/0", "DIVIDE_BY_ZERO"),
        ("id + CAST('x' AS INT)", "CAST('x' AS INT)", "CAST_INVALID_INPUT"),
        ("element_at(array(1), 5)", "element_at(array(1), 5)", "INVALID_ARRAY_INDEX_IN_ELEMENT_AT"),
        ("substring(host, array(1)[4])", "array(1)[4]", "INVALID_ARRAY_INDEX"),
        ("upper(encode('a', 'none'))", "encode", "INVALID_PARAMETER_VALUE.CHARSET"),
        ("'a' RLIKE '('", "RLIKE('a', '(')", "INVALID_PARAMETER_VALUE.PATTERN"),
        ("CAST(raise_error('x') AS STRING)", "raise_error", "USER_RAISED_EXCEPTION"),
        ("coalesce(assert_true(1 > 2), id)", "raise_error", "USER_RAISED_EXCEPTION"),
        ("host RLIKE '['", "RLIKE(source.host, '[')", "INVALID_PARAMETER_VALUE.PATTERN"),
        ("split(host, '(')[0]", "split(source.host, '('", "Unclosed group"),
        ("format_string('%q', id)", "format_string('%q', source.id)", "Conversion = 'q'"),
        ("host LIKE '%x' ESCAPE '%'", "LIKE '%x'", "INVALID_FORMAT.ESC_IN_THE_MIDDLE"),
        ("to_timestamp(host, 'qqqqq')", "'qqqqq'", "INVALID_DATETIME_PATTERN"),
        ("date_format(ts, 'YYYY')", "date_format(source.ts, 'YYYY')", "DATETIME_PATTERN_RECOGNITION"),
        ("concat(elt(5, 'a', 'b'), host)", "elt(5, 'a', 'b')", "INVALID_ARRAY_INDEX"),
        ("elt(5, host, 'b')", "elt(5, source.host, 'b')", "INVALID_ARRAY_INDEX"),
        ("transform(array(1), x -> elt(5, 'a', 'b'))", "elt(5, 'a', 'b')", "INVALID_ARRAY_INDEX"),
        ("encode(host, 'nosuch')", "Encode.encode(host, nosuch", "INVALID_PARAMETER_VALUE.CHARSET"),
        ("from_utc_timestamp(ts, 'No/Zone')", "'No/Zone'", "INVALID_TIMEZONE"),
        ("make_timestamp(id, 1, 1, 1, 1, 1, 'No/Zone')", "'No/Zone'", "INVALID_TIMEZONE"),
        ("xpath_string(host, 'a[')", "a[", "Invalid XPath"),
        ("aes_decrypt(CAST(host AS BINARY), 'short')", "short", "INVALID_PARAMETER_VALUE.AES_KEY_LENGTH"),
        ("aes_decrypt(unhex(host), '0000111122223333', 'XYZ')", "XYZ", "UNSUPPORTED_FEATURE.AES_MODE"),
        ("regexp_extract(host, '(a)', 3)", "regexp_extract(source.host, '(a)', 3)", "REGEX_GROUP_INDEX"),
        ("bit_get(id, 70)", "bit_get(source.id, 70)", "INVALID_PARAMETER_VALUE.BIT_POSITION_RANGE"),
        ("slice(tags, 0, 1)", "slice(source.tags, 0, 1)", "INVALID_PARAMETER_VALUE.START"),
        ("element_at(tags, 0)", "element_at(source.tags, 0)", "INVALID_INDEX_OF_ZERO"),
        ("split_part(host, '-', 0)", "'-'), 0)", "INVALID_INDEX_OF_ZERO"),
        ("next_day(CAST(ts AS DATE), 'nosuch')", "'nosuch'", "ILLEGAL_DAY_OF_WEEK"),
        ("variant_get(parse_json(host), 'a[', 'int')", "'a['", "INVALID_VARIANT_GET_PATH"),
        ("to_csv(struct(ts), map('timestampFormat', 'qqqqq'))", "to_csv", "INVALID_DATETIME_PATTERN"),
        ("from_csv(host, 'a int', map('sep', '')).a", "from_csv", "Delimiter cannot be empty"),
        ("str_to_map(host, '(', ':')", "str_to_map(source.host, '(', ':')", "Unclosed group"),
        (r"host ILIKE ANY ('%a', 'b\\')", "ILIKE ANY", "INVALID_FORMAT.ESC_AT_THE_END"),
        (r"host NOT LIKE ALL ('%a', 'b\\')", "NOT LIKE ALL", "INVALID_FORMAT.ESC_AT_THE_END"),
        ("sequence(date(ts), date(ts), INTERVAL 0 DAYS)", "INTERVAL '0' DAY", "sequence step must be"),
        ("from_xml(host, 'a int', map('rowTag', '')).a", "from_xml(host,", "'rowTag' option"),
        ("date_format(ts, 'e')", "date_format(source.ts, 'e')", "DATETIME_WEEK_BASED_PATTERN"),
        ("to_timestamp(host, 'e')", "'e'", "DATETIME_WEEK_BASED_PATTERN"),
        ("unix_timestamp(host, 'c')", "'c'", "DATETIME_WEEK_BASED_PATTERN"),
        ("to_csv(struct(ts), map('timestampFormat', 'e'))", "to_csv(", "DATETIME_WEEK_BASED_PATTERN"),
        ("to_json(struct(ts), map('timestampFormat', 'e'))", "timestampFormat", "DATETIME_WEEK_BASED_PATTERN"),
        ("format_number(CAST(id AS DOUBLE), '#.##.#')", "'#.##.#'", "Multiple decimal separators"),
        ("if(id > 0, format_number(id, '#.##.#'), '')", "'#.##.#'", "Multiple decimal separators"),
        ("map_from_arrays(array('a', 'a'), array(id, id))", "ARRAY('a', 'a')", "DUPLICATED_MAP_KEY"),
        ("map_concat(map('a', id), map('a', id))", "map_concat(", "DUPLICATED_MAP_KEY"),
        ("id / 0", "id / 0", "DIVIDE_BY_ZERO"),
        ("greatest(id, id % 0)", "id % 0", "REMAINDER_BY_ZERO"),
        ("if(id div 0 = 1, 1, 2)", "id div 0", "DIVIDE_BY_ZERO"),
        ("id % 0 = 1 AND host = 'a'", "id % 0", "REMAINDER_BY_ZERO"),
        ("pmod(id, 0)", "pmod(id, 0)", "REMAINDER_BY_ZERO"),
        ("CAST(id AS DECIMAL(20, 2)) / 0", "/ 0", "DIVIDE_BY_ZERO"),
        ("make_date(2020, 13, CAST(id AS INT))", "make_date(2020, 13,", "DATETIME_FIELD_OUT_OF_BOUNDS"),
        # These give null for each row instead of an error.
        (
            "from_json(host, 'a timestamp', map('timestampFormat', 'qqq')).a",
            "from_json(host",
            "INVALID_DATETIME_PATTERN",
        ),
        ("from_csv(host, 'a date', map('dateFormat', 'qqq')).a", "dateFormat 'qqq'", "INVALID_DATETIME_PATTERN"),
        ("from_xml(host, 'a timestamp', map('TIMESTAMPFORMAT', 'e')).a", "TIMESTAMPFORMAT", "WEEK_BASED_PATTERN"),
    ],
)
def test_a_constant_that_fails_is_refused_with_the_expression_and_spark_s_condition(
    spark: SparkSession, expression: str, blamed: str, condition: str
) -> None:
    with pytest.raises(ConfigError, match="fails whatever a row has") as caught:
        look(spark, f"SELECT {expression} AS x FROM source")
    assert blamed in str(caught.value) and condition in str(caught.value)


@pytest.mark.parametrize(
    ("condition", "is_taken"), [("id % 0 = 1", False), ("id > 3 AND id % 0 = 1", True), ("id / 0 > 1", False)]
)
def test_a_condition_that_every_row_fails_is_refused(spark: SparkSession, condition: str, is_taken: bool) -> None:
    query = f"SELECT id / 0 AS x FROM source WHERE {condition}"
    if is_taken:  # the first condition may leave no rows
        look(spark, query)
    else:
        with pytest.raises(ConfigError, match=f"{condition[:6]} fails whatever a row has"):
            look(spark, query)


def test_rows_of_another_table_of_the_session_are_refused(spark: SparkSession) -> None:
    spark.createDataFrame(spark.sparkContext.parallelize([(1,)]), "id bigint").createOrReplaceGlobalTempView("other")
    with pytest.raises(ConfigError, match="something else than source"):
        look(spark, "SELECT id FROM global_temp.other")


def test_a_query_is_read_as_the_job_file_has_it(spark: SparkSession) -> None:
    session = open_session(spark)
    query = "SELECT '${env:HOME} ${spark.master}' AS x FROM source"
    analyze(session, query, SOURCE)
    assert "${env:HOME} ${spark.master} AS x" in session.sql(query)._jdf.queryExecution().analyzed().toString()


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/St_Johns"])
@pytest.mark.parametrize("kind", [TS, pa.timestamp("us"), pa.date32()])
def test_spark_lays_a_table_out_as_our_own_writer_does(
    spark: SparkSession, kind: pa.DataType, zone: str, tmp_path: Path
) -> None:
    draw = random.Random(7)
    fields = [PartitionField("ts", Transform.DATE)]
    fields += [] if pa.types.is_date(kind) else [PartitionField("ts", Transform.HOUR)]
    first, span_s = datetime(1000, 1, 1), int(timedelta(days=365 * 8990).total_seconds())
    moments = [
        first + timedelta(seconds=draw.randrange(span_s), microseconds=draw.randrange(10**6)) for _ in range(300)
    ]
    moments += [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(1970, 1, 1), datetime(2026, 3, 29, 2, 30)]
    schema = pa.schema([("ts", kind)])
    values = pa.array([*moments, None], pa.timestamp("us"))
    values = values.cast(pa.date32(), safe=False) if pa.types.is_date(kind) else values.view(kind)
    ours = with_partition_columns(pa.RecordBatch.from_arrays([values], schema=schema), fields)
    pq.write_table(pa.table({"ts": values}), tmp_path / "ts.parquet")
    session = open_session(spark)
    session.conf.set("spark.sql.session.timeZone", zone)
    read = session.read.parquet(str(tmp_path / "ts.parquet"))
    read.coalesce(1).select(*added_columns(schema, fields)).write.parquet(str(tmp_path / "theirs"))
    theirs = pq.read_table(tmp_path / "theirs")
    assert theirs.to_pylist() == ours.select([field.column for field in fields]).to_pylist()


@dataclass
class Session:
    """A runner on the shared session; see `ingest.transform.session.SessionRunner`."""

    spark: SparkSession
    slots: int = 2

    def with_session(
        self, work: Callable[[SparkSession], Sequence[TResult]], tasks: int, stop: threading.Event
    ) -> Sequence[TResult]:
        self.spark.sparkContext.setJobGroup(f"test-{random.random()}", "a query")
        try:
            return work(self.spark)
        except (PySparkException, Py4JJavaError) as error:
            raise SparkJobError("a task failed") from error

    def run(self, specs: Sequence[TaskSpec], stop: threading.Event) -> Sequence[TaskReport]:
        raise AssertionError("the query's tasks are Spark's")

    def parallel(self, calls: Sequence[Callable[[], None]]) -> None:
        sequential(calls)

    def close(self) -> None: ...


@dataclass
class Losing(Session):
    """A session that loses one of the files that Spark has written."""

    lake: Path = Path()

    def with_session(
        self, work: Callable[[SparkSession], Sequence[TResult]], tasks: int, stop: threading.Event
    ) -> Sequence[TResult]:
        done = super().with_session(work, tasks, stop)
        for path in list(self.lake.glob("*/part-*.parquet"))[:1]:
            path.unlink()
        return done


def run_loop(opened: TimelineHandle, spark: SparkSession) -> Summary:
    """Run a job to the end of its source."""
    return IngestLoop(opened, lambda: Session(spark), mode=Mode.ONCE, stop=threading.Event()).run()


@dataclass
class Job:
    """A job with a query in a folder of its own."""

    spark: SparkSession
    folder: Path
    query: str = "SELECT id, upper(host) AS host, _shard, _offset FROM source WHERE id % 3 <> 0"

    def write(self, **changes: Any) -> None:
        settings = {
            "name": "queried",
            "source": {"type": "files", "path": f"{self.folder}/logs", "format": "json", "close_after": "0s"},
            "schema": {"id": "bigint", "ts": "timestamp", "host": "string"},
            "transform": self.query,
            "lineage": True,
            "targets": [{"type": "delta", "path": str(self.lake)}],
        }
        settings |= changes
        (self.folder / "job.yaml").write_text(yaml.safe_dump(settings))

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def append(self, ids: range, *, bad: int = 0) -> None:
        (self.folder / "logs").mkdir(exist_ok=True)
        with (self.folder / "logs" / "a.jsonl").open("a") as out:
            for number in ids:
                moment = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=number)
                out.write(json.dumps({"id": number, "ts": moment.isoformat(), "host": f"h{number % 5}"}) + "\n")
            out.write("{malformed\n" * bad)

    def run(self) -> Summary:
        return run_loop(open_timeline(load_config(self.folder / "job.yaml", {})), self.spark)

    def rows(self, table: str = "lake") -> list[dict[str, Any]]:
        return list(DeltaTable(self.folder / table).to_pyarrow_table().to_pylist())

    def folders(self) -> list[Path]:
        """Folders that Spark wrote into."""
        return sorted(path for path in self.lake.iterdir() if path.name[0] not in "_.")

    def is_settled(self) -> bool:
        """Whether nothing is pending, and no file without an epoch exists."""
        store = open_store(str(self.lake))
        found = check(open_timeline(load_config(self.folder / "job.yaml", {})), is_deep=True)
        return found.is_clean and not ActiveTimeline.load(store).pending().instants


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    job = Job(spark, tmp_path)
    job.write()
    return job


def test_each_record_is_a_row_or_left_out_or_rejected(job: Job) -> None:
    job.append(range(100), bad=3)
    summary = job.run()
    assert (summary.epochs, summary.rows, summary.rejected) == (1, 100, 3)
    target = summary.targets[f"delta:{job.lake}"]
    assert (target.written, target.dropped, target.rejected) == (66, 34, 0)
    rows = job.rows()
    assert sorted(row["id"] for row in rows) == [number for number in range(100) if number % 3]
    assert all(row["host"] == f"H{row['id'] % 5}" and row["_shard"] == "a.jsonl" for row in rows)
    assert len({row["_offset"] for row in rows}) == 66
    assert len(job.rows("lake_quarantine")) == 3
    job.append(range(100, 110))
    assert job.run().rows == 10
    assert len(job.rows()) == 66 + 7
    assert job.is_settled()


def test_spark_leaves_nothing_beside_its_files_and_no_marker(job: Job) -> None:
    job.append(range(20))
    job.run()
    (folder,) = job.folders()
    names = [path.name for path in folder.rglob("*")]
    assert names and all(name.endswith(".zstd.parquet") for name in names)
    assert not (job.lake / ".hoodie" / ".temp").exists()


def test_an_epoch_of_which_the_query_leaves_nothing_is_committed(job: Job) -> None:
    job.append(range(0, 30, 3))
    summary = job.run()
    assert (summary.rows, summary.targets[f"delta:{job.lake}"].dropped) == (10, 10)
    assert not (job.lake / "_delta_log").exists() and job.folders() == []
    job.append(range(1, 2))
    job.run()
    assert [row["id"] for row in job.rows()] == [1]
    assert job.is_settled()


def test_files_have_statistics_that_hold(job: Job) -> None:
    job.query = "SELECT id, id % 2 = 0 AS even, ts, host, CAST(id AS DECIMAL(20, 2)) AS d FROM source"
    job.write()
    job.append(range(50))
    job.run()
    actions = pa.table(DeltaTable(job.lake).get_add_actions(flatten=True)).to_pylist()
    assert sum(action["num_records"] for action in actions) == 50
    assert min(action["min.id"] for action in actions) == 0 and max(action["max.id"] for action in actions) == 49
    assert max(action["max.d"] for action in actions) == 49
    assert min(action["min.even"] for action in actions) is False
    assert min(action["min.ts"] for action in actions) == datetime(2026, 3, 1, tzinfo=UTC)
    by_delta = job.spark.read.format("delta").load(str(job.lake))
    assert by_delta.where("id = 49 AND d = 49 AND NOT even").count() == 1


def test_files_with_floats_that_nobody_looked_at_for_nan_are_read_whatever_the_filter(job: Job) -> None:
    job.query = "SELECT id, IF(id = 3, CAST('NaN' AS DOUBLE), id / 2) AS x FROM source"
    job.write()
    job.append(range(50))
    job.run()
    table = DeltaTable(job.lake)
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert sum(action["num_records"] for action in actions) == 50
    assert all(action.get("min.id") is None and action["null_count.id"] == 0 for action in actions)
    for filters in ([("x", "=", 24.5)], [("id", "=", 49)]):
        assert table.to_pyarrow_table(filters=filters)["id"].to_pylist() == [49]
    by_delta = job.spark.read.format("delta").load(str(job.lake))
    assert by_delta.where("x = double('NaN') AND id = 3").count() == 1


def test_partitions_of_the_result_are_found_by_every_reader(job: Job) -> None:
    job.query = "SELECT id, ts, CASE WHEN id % 4 = 0 THEN NULL ELSE concat(host, '/=%') END AS host FROM source"
    job.write(partition_by=["date(ts)", "hour(ts)", "host"])
    job.append(range(30))
    job.run()
    rows = {row["id"]: row for row in job.rows()}
    for number, row in rows.items():
        assert row["ts_date"] == row["ts"].date() and row["ts_hour"] == row["ts"].strftime("%Y-%m-%d-%H")
        assert row["host"] == (None if number % 4 == 0 else f"h{number % 5}/=%")
    assert len(rows) == 30
    by_delta = job.spark.read.format("delta").load(str(job.lake))
    assert by_delta.where("ts_date = '2026-03-02' AND host = 'h1/=%'").count() == sum(
        row["ts_date"].isoformat() == "2026-03-02" and row["host"] == "h1/=%" for row in rows.values()
    )
    assert job.is_settled()


@pytest.mark.parametrize("policy", ["quarantine", "to_null"])
@pytest.mark.parametrize("where", ["", " WHERE id % 7 <> 3"])
def test_partition_values_that_spark_has_no_folder_for_are_quarantined(job: Job, policy: str, where: str) -> None:
    job.query = f"SELECT id, host, id * 2 AS twice FROM source{where}"
    job.write(partition_by=["host"], on_empty_partition=policy, lineage=False)
    refused = ["__HIVE_DEFAULT_PARTITION__", "a\0b", "x" * 256, "%" * 100, "ä" * 126] + [""] * (policy == "quarantine")
    kept = [
        "a",
        None,
        " ",
        "a ",
        "%41",
        "a/b",
        "..",
        "\n",
        "\x7f",
        "null",
        "x" * 250,
        "%" * 83,
        "+",
        ":",
        "\u2028",
        "ä",
    ]
    texts = [*refused, *kept, *refused, ""]
    (job.folder / "logs").mkdir()
    lines = [json.dumps({"id": number, "host": text}) for number, text in enumerate(texts)]
    (job.folder / "logs" / "a.jsonl").write_text("\n".join([*lines, "{malformed", ""]))
    summary = job.run()
    left = {number: text for number, text in enumerate(texts) if not where or number % 7 != 3}
    bad = {number for number, text in left.items() if text in refused}
    assert {row["id"]: row["host"] for row in job.rows()} == {
        number: text or None for number, text in left.items() if number not in bad
    }
    target = summary.targets[f"delta:{job.lake}"]
    assert (target.written, target.dropped, target.rejected) == (
        len(left) - len(bad), len(texts) - len(left), len(bad),
    )  # fmt: skip
    rows = job.rows("lake_quarantine")
    (malformed,) = (row for row in rows if row["target"] is None)
    assert malformed["raw"] == b"{malformed"
    assert {json.loads(row["raw"])["twice"] // 2 for row in rows if row["target"] is not None} == bad
    assert len(rows) == len(bad) + 1
    assert all(row["reason"].startswith("host: ") for row in rows if row["target"] is not None)
    assert job.is_settled()


def test_partition_values_that_readers_do_not_take_are_quarantined(job: Job) -> None:
    job.query = (
        "SELECT id, CAST(-id / 4 AS DECIMAL(10, 2)) AS q, date_add(date'9999-12-30', CAST(id AS INT) - 8) AS day, "
        "timestampadd(DAY, id - 9, timestamp'9999-12-30T00:00:00Z') AS at, "
        "IF(id = 4, CAST('-1E-38' AS DECIMAL(38, 38)), CAST('0' AS DECIMAL(38, 38))) AS least FROM source"
    )
    job.write(partition_by=["q", "day", "date(at)", "least"], lineage=False)
    job.append(range(16))
    summary = job.run()
    kept = {0, 8}  # the others have a negative fraction, or a day beyond 9999
    rows = {row["id"]: row for row in job.rows()}
    assert set(rows) == kept
    assert (rows[8]["q"], rows[8]["day"]) == (Decimal("-2.00"), date(9999, 12, 30))
    assert summary.targets[f"delta:{job.lake}"].rejected == 14
    reasons = {json.loads(row["raw"])["id"]: row["reason"] for row in job.rows("lake_quarantine")}
    assert set(reasons) == set(range(16)) - kept
    assert reasons[3].startswith("q: -0.75 cannot be") and reasons[4].startswith("least: -0.00")
    assert reasons[12].startswith("day: 10000-01-03 cannot be a partition's value")
    assert job.is_settled()


def test_a_row_that_the_query_fails_on_stops_the_job_and_leaves_nothing(job: Job) -> None:
    job.query = "SELECT id, 10 DIV (id - 7) AS x FROM source"
    job.write()
    job.append(range(20), bad=2)
    with pytest.raises(DataError, match="DIVIDE_BY_ZERO"):
        job.run()
    assert job.folders() == [] and job.is_settled()
    assert not list((job.folder / "lake_quarantine").rglob("*.parquet"))
    job.query = "SELECT id, try_divide(10, id - 7) AS x FROM source"
    job.write()
    with pytest.raises(ConfigError, match="x: the query gives double, the timeline was created with bigint"):
        job.run()
    job.query = "SELECT id, CAST(try_divide(10, id - 7) AS BIGINT) AS x FROM source"
    job.write()
    assert job.run().rows == 20
    assert len(job.rows()) == 20


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("map(host, 1, 'h1', 2)", "DUPLICATED_MAP_KEY"),
        ("map_from_arrays(array('a'), split(host, ''))", "The key array and value array"),
        ("from_json(host, 'a int', map('mode', 'FAILFAST')).a", "MALFORMED_RECORD_IN_PARSING"),
        (r"host LIKE concat(host, '\\')", "INVALID_FORMAT.ESC_AT_THE_END"),
        ("format_string(concat(host, '%d'), host)", "java.util.IllegalFormatConversionException"),
        ("sequence(id, id + 1, id)", "Illegal sequence boundaries: <start> to <stop>"),
    ],
)
def test_whatever_spark_says_of_a_row_s_value_it_is_an_error_of_the_data(job: Job, expression: str, said: str) -> None:
    job.query = f"SELECT id, {expression} AS x FROM source"
    job.write()
    job.append(range(2))
    with pytest.raises(DataError, match=f"the query of transform fails on a row: .*{said}"):
        job.run()


@pytest.mark.parametrize("expression", ["10 DIV 0", "if(host RLIKE '(', 1, 0)", "id % 0"])
def test_a_query_that_fails_whatever_a_row_has_stops_the_job_before_its_first_instant(
    job: Job, expression: str
) -> None:
    job.query = f"SELECT id, {expression} AS x FROM source"
    job.write()
    job.append(range(20))
    with pytest.raises(ConfigError, match="fails whatever a row has"):
        job.run()
    assert not list(job.lake.glob(".hoodie/timeline/*"))


@pytest.mark.parametrize("query", ["SELECT id FROM source", "SELECT id FROM source WHERE id > 3"])
def test_rows_that_spark_loses_are_not_taken_for_rows_that_the_query_left_out(job: Job, query: str) -> None:
    job.query = query
    job.write()
    job.append(range(20))
    losing = Losing(job.spark, lake=job.lake)
    opened = open_timeline(load_config(job.folder / "job.yaml", {}))
    loop = IngestLoop(opened, lambda: losing, mode=Mode.ONCE, stop=threading.Event())
    with pytest.raises(RowCountError, match="expected 20"):
        loop.run()
    assert job.folders() == [] and job.is_settled()


def test_an_error_of_a_decoding_task_surfaces_as_what_it_is(job: Job) -> None:
    job.write(on_unknown_field="fail")
    job.append(range(20))
    with (job.folder / "logs" / "a.jsonl").open("a") as out:
        out.write('{"id": 1, "new": 2}\n')
    with pytest.raises(DataError, match="new"):
        job.run()
    assert job.folders() == [] and job.is_settled()


def test_columns_that_the_query_does_not_read_are_decoded_all_the_same(job: Job) -> None:
    job.query = "SELECT host FROM source"
    job.write()
    job.append(range(3))
    with (job.folder / "logs" / "a.jsonl").open("a") as out:
        out.write('{"id": "no number", "host": "h"}\n')
    assert (job.run().rejected, len(job.rows())) == (1, 3)
    assert "id" in job.rows("lake_quarantine")[0]["reason"]


def test_the_job_file_with_a_query_takes_the_rows_of_a_real_log(
    spark: SparkSession, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config(ROOT / "conf" / "access-log-query.yaml", {"LOGS": str(logs)})
    assert config.arrow_schema is not None
    source = open_source(config)
    reader, decoder = source.reader(), source.decoder(config.arrow_schema, lineage=True)
    wanted: dict[int, dict[str, Any]] = {}
    for offsets in source.plan({}).ranges:
        for block in reader.read(offsets):
            decoded = decoder.decode(block)
            assert decoded.offsets is not None
            wanted |= zip(decoded.offsets.to_pylist(), decoded.accepted.to_pylist(), strict=True)
    people = {at: row for at, row in wanted.items() if "bot" not in (row["agent"] or "").lower()}
    summary = run_loop(open_timeline(config), spark)
    table = DeltaTable(tmp_path / "lake" / "access_log_pages").to_pyarrow_table().to_pylist()
    assert summary.rows == len(wanted) > len(people) > 0
    assert {row["_offset"] for row in table} == people.keys() and len(table) == len(people)
    for row in table:
        record = people[row["_offset"]]
        page, mark, parameters = record["path"].partition("?")
        assert (row["page"], row["parameters"]) == (page, parameters if mark else None)
        assert (row["ts"], row["bytes"], row["is_error"]) == (
            record["ts"],
            record["bytes"] or 0,
            record["status"] >= 400,
        )
        assert row["ts_date"] == row["ts"].date()


def test_fsck_finds_and_removes_what_came_late_into_a_folder(job: Job) -> None:
    job.append(range(10))
    job.run()
    (folder,) = job.folders()
    late = folder / "_temporary" / "0" / "part-00000.parquet"
    late.parent.mkdir(parents=True)
    late.write_bytes(b"late")
    opened = open_timeline(load_config(job.folder / "job.yaml", {}))
    (finding,) = check(opened).findings
    assert (finding.problem, finding.what) == (Problem.ORPHAN, str(late.relative_to(job.lake)))
    assert fix(opened).is_clean and not late.exists()
    next(folder.glob("part-*.parquet")).unlink()
    assert [finding.problem for finding in check(opened).findings] == [Problem.MISSING]
