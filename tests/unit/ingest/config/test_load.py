from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from ingest.config.load import JobConfig, load_config
from ingest.config.models import resolved_place
from ingest.sources.decode.options import UnknownField
from ingest.sources.files.options import FilesOptions
from sinks.delta.location import delta_location
from sinks.delta.sink import DeltaOptions
from sinks.partition import PartitionField, Transform
from timeline.errors import ConfigError
from timeline.stores.opening import open_store

WHOLE = r"""
name: web-access
source:
  type: files
  path: logs/*.jsonl            # directory, glob or any fsspec URL
  format: json                  # json | csv | text | parquet
  max_bytes_per_epoch: 256MB
  close_after: 10s
schema: {ts: timestamp, host: string, status: int, message: string}
on_unknown_field: drop
partition_by: [date(ts)]
targets:
  - {type: delta, path: lake/web_access}
quarantine: {path: lake/web_access_bad}
timeline: {path: lake/web_access}
epoch: {interval: 10s}
writer: {lease_ttl: 60s}
storage: {}
spark: {master: "local[*]", conf: {}}
"""

SMALL = """\
name: small
source: {type: files, path: logs, format: json}
targets: [{type: delta, path: lake/small}]
"""


class Folder:
    """Job files in a temporary folder."""

    def __init__(self, path: Path) -> None:
        self.file = path / "job.yaml"

    def load(self, text: str, environment: Mapping[str, str] | None = None) -> JobConfig:
        self.file.write_text(text)
        return load_config(self.file, environment or {})

    def problems(self, text: str, environment: Mapping[str, str] | None = None) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            self.load(text, environment)
        head, *lines = str(caught.value).splitlines()
        assert str(self.file) in head
        assert "nothing was started" in head
        # A cause would print the values that the message leaves out.
        assert caught.value.__cause__ is None
        return [line.strip() for line in lines]


@pytest.fixture
def job(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_every_key_of_the_documented_file_is_read(job: Folder) -> None:
    config = job.load(WHOLE)
    assert config.name == "web-access"
    assert isinstance(config.source, FilesOptions)
    assert config.source.max_bytes_per_epoch == 256_000_000
    assert config.source.close_after == 10.0
    assert config.arrow_schema == pa.schema(
        [("ts", pa.timestamp("us", "UTC")), ("host", pa.string()), ("status", pa.int32()), ("message", pa.string())]
    )
    assert config.on_unknown_field is UnknownField.DROP
    assert config.partition_by == (PartitionField("ts", Transform.DATE),)
    assert [type(target) for target in config.targets] == [DeltaOptions]
    assert config.quarantine == DeltaOptions(type="delta", name="quarantine", path="lake/web_access_bad")
    assert config.timeline.path == "lake/web_access"
    assert (config.epoch.interval, config.writer.lease_ttl) == (10.0, 60.0)
    assert (config.storage, config.spark.master, config.spark.conf) == ({}, "local[*]", {})
    assert config.lineage is False


def test_what_is_left_out_follows_from_the_first_lake_target(job: Folder) -> None:
    config = job.load(SMALL)
    assert config.quarantine == DeltaOptions(type="delta", name="quarantine", path="lake/small_quarantine")
    assert config.timeline.path == "lake/small"
    assert config.arrow_schema is None
    assert (config.epoch.interval, config.writer.lease_ttl, config.spark.master) == (10.0, 60.0, "local[*]")


def test_trailing_slash_of_a_target_does_not_put_the_quarantine_inside_it(job: Folder) -> None:
    config = job.load(SMALL.replace("lake/small", "lake/small/"))
    assert config.quarantine == DeltaOptions(type="delta", name="quarantine", path="lake/small_quarantine")


def test_key_with_nothing_behind_it_is_a_key_left_out(job: Folder) -> None:
    assert job.load(f"{SMALL}spark:\nschema:\nstorage:\n#  key: x\n") == job.load(SMALL)


def test_memory_target_has_its_quarantine_in_memory(job: Folder) -> None:
    config = job.load(SMALL.replace("{type: delta, path: lake/small}", "{type: memory, path: 'memory://t'}"))
    assert (config.quarantine.type, config.timeline.path) == ("memory", "memory://t")


def test_lineage_columns_come_behind_the_jobs_own(job: Folder) -> None:
    config = job.load(f"{SMALL}lineage: true\n")
    assert config.row_schema(pa.schema([("a", pa.int32())])).names == ["a", "_shard", "_offset", "_epoch"]


def test_every_problem_is_listed_with_its_line(job: Folder) -> None:
    problems = job.problems(
        """\
name: web access
source:
  type: files
  path: logs
  format: jsonn
  max_bytes_per_epoch: 12 parsecs
  close_afer: 10s
schema: {ts: timestmp, host: string}
partition_by: [foo(x)]
targets:
  - {type: delta, path: lake/a, pth: 1}
  - {type: deltaa, path: lake/b}
epoch: {interval: -3}
writer: {lease_ttl: 100ms}
lineage: perhaps
tragets: []
"""
    )
    expected = [
        ("line 1: name", "letters, digits"),
        ("line 5: source.format", "allowed are json, csv, text, parquet (found 'jsonn')"),
        ("line 6: source.max_bytes_per_epoch", "unknown unit 'parsecs'; allowed are B, kB, MB"),
        ("line 7: source.close_afer", "unknown key; did you mean 'close_after'?"),
        ("line 8: schema.ts", "unknown type 'timestmp'"),
        ("line 9: partition_by[0]", "a column, date(column), hour(column)"),
        ("line 11: targets[0].pth", "unknown key; did you mean 'path'?"),
        ("line 12: targets[1].type", "did you mean 'delta'?"),
        ("line 13: epoch.interval", "a duration of 0 or more"),
        ("line 14: writer.lease_ttl", "1s to 1d is allowed"),
        ("line 15: lineage", "true or false"),
        ("line 16: tragets", "did you mean 'targets'?"),
    ]
    assert len(problems) == len(expected)
    for problem, (place, words) in zip(problems, expected, strict=True):
        assert problem.startswith(f"{place}: ")
        assert words in problem


def test_mistake_in_one_block_does_not_hide_a_contradiction_between_others(job: Folder) -> None:
    problems = job.problems(f"{SMALL}epoch: {{intervall: 1s}}\nschema: {{a: int}}\npartition_by: [b]\n")
    assert [problem.split(": ")[1] for problem in problems] == ["epoch.intervall", "partition_by[0]"]


def test_missing_blocks_are_named(job: Folder) -> None:
    assert [problem.split(": ")[0] for problem in job.problems("lineage: true\n")] == ["name", "source", "targets"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a mapping of keys to values"),
        ("- a\n", "a mapping of keys to values"),
        ("name: x\n\tsource: y\n", r"line 2: not valid YAML"),
        ("name: [x\n", r"line 2: not valid YAML"),
        ("name: x\n---\nname: y\n", r"line 2: not valid YAML"),
        ("name: 'x\n", "not valid YAML"),
        ("name: \x00\n", "not valid YAML"),
        ("name: *nobody\n", "undefined alias"),
    ],
)
def test_file_that_is_no_job_is_refused_in_words(job: Folder, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        job.load(text)


def test_unreadable_file_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    for path, message in (
        (tmp_path / "absent.yaml", "No such file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "latin.yaml", "not UTF-8 text at byte 9"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_config(path)


def test_byte_order_mark_and_crlf_are_no_problem(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(b"\xef\xbb\xbf" + SMALL.replace("\n", "\r\n").encode())
    assert load_config(tmp_path / "job.yaml").name == "small"


def test_key_given_twice_is_refused_wherever_it_is(job: Folder) -> None:
    problems = job.problems(f"{SMALL}name: other\nepoch: {{interval: 1s, interval: 2s}}\n")
    assert problems[0].startswith("line 4: name: given twice, first in line 1")
    assert problems[1].startswith("line 5: epoch.interval: given twice")


def test_yaml_does_not_reinterpret_words(job: Folder) -> None:
    config = job.load(
        f"{SMALL}schema: {{on: string, no: string, 2024-01-01: date, 012: int, null: int}}\n"
        "spark: {conf: {a: on, b: 012, c: 2024-01-01, d: true, e: 1.50, f: 12:30:00, g: 1_000}}\n"
    )
    assert list(config.columns or {}) == ["on", "no", "2024-01-01", "012", "null"]
    assert list(config.spark.conf.values()) == ["on", "012", "2024-01-01", "true", "1.5", "12:30:00", "1_000"]


def test_tag_that_would_build_an_object_is_refused(job: Folder) -> None:
    assert "tag" in job.problems(SMALL.replace("path: logs", "path: !!python/object:os.system logs"))[0]


def test_alias_that_contains_itself_is_refused(job: Folder) -> None:
    (problem,) = job.problems(f"{SMALL}storage: &a {{b: *a}}\n")
    assert problem.startswith("line 4: storage.b: an alias stands for what contains it")


class TestReferences:
    def test_reference_is_the_variables_text(self, job: Folder) -> None:
        text = SMALL.replace("path: logs", "path: '${LOGS}/${DAY:-today}/*.jsonl'")
        assert job.load(text, {"LOGS": "/data"}).source.place == "/data/today/*.jsonl"
        assert job.load(text, {"LOGS": "/data", "DAY": "monday"}).source.place == "/data/monday/*.jsonl"

    def test_number_from_a_variable_is_a_number_where_one_is_needed(self, job: Folder) -> None:
        text = SMALL.replace("format: json", "format: json, max_files_per_epoch: '${N}', close_after: '${S}'")
        assert job.load(text, {"N": "7", "S": "2m"}).source.model_dump()["max_files_per_epoch"] == 7

    def test_missing_variable_is_named_with_its_key(self, job: Folder) -> None:
        problems = job.problems(f"{SMALL}storage: {{key: '${{NOPE}}', secret: '${{NEITHER}}'}}\n")
        assert problems == [
            "line 4: storage.key: environment variable NOPE is not set; set it, or write ${NOPE:-default}",
            "line 4: storage.secret: environment variable NEITHER is not set; set it, or write ${NEITHER:-default}",
        ]

    def test_variable_that_is_empty_is_set(self, job: Folder) -> None:
        assert job.load(f"{SMALL}storage: {{token: '${{T}}'}}\n", {"T": ""}).storage == {"token": ""}

    def test_doubled_dollar_stands_for_itself(self, job: Folder) -> None:
        assert job.load(f"{SMALL}spark: {{conf: {{a: '$${{x}} $5 $'}}}}\n").spark.conf == {"a": "${x} $5 $"}

    @pytest.mark.parametrize("written", ["${}", "${1X}", "${A-b}", "${A", "${a b}"])
    def test_what_only_looks_like_a_reference_is_refused(self, job: Folder, written: str) -> None:
        problem, *_ = job.problems(f"{SMALL}storage: {{endpoint: '{written}'}}\n")
        assert "is no reference; write ${NAME}, ${NAME:-default}, or $${" in problem

    def test_variables_text_is_not_looked_through_again(self, job: Folder) -> None:
        assert job.load(f"{SMALL}storage: {{a: '${{A}}'}}\n", {"A": "${B}"}).storage == {"a": "${B}"}

    def test_secret_is_in_no_message_and_no_repr(self, job: Folder) -> None:
        secret = "hunter2hunter2"
        environment = {"S": secret}
        text = (
            f"{SMALL}storage: {{secret: '${{S}}', nested: {{a: '${{S}}'}}}}\n"
            "spark: {conf: {spark.my.password: '${S}'}}\n"
        )
        config = job.load(text, environment)
        assert config.storage["secret"] == secret
        assert secret not in repr(config) + str(config)
        for wrong in (
            f"{text}epoch: {{interval: '${{S}}'}}\n",
            f"{text}name2: '${{S}}'\n",
            f"{text}writer: {{token: '${{S}}'}}\n",
            text.replace("format: json", "format: '${S}'"),
            text.replace("{spark.my.password: '${S}'}", "{spark.my.password: ['${S}']}"),
            text.replace("path: lake/small", "path: 's3://key:${S}@bucket/x'"),
        ):
            assert secret not in "\n".join(job.problems(wrong, environment))
        assert "hunter2" not in "\n".join(job.problems(f"{SMALL}writer: {{secret: {secret}}}\n"))


class TestImpossibleCombinations:
    def one(self, job: Folder, text: str) -> str:
        problem, *others = job.problems(text)
        assert others == []
        return problem

    def test_text_without_pattern(self, job: Folder) -> None:
        assert "source: format text needs pattern" in self.one(job, SMALL.replace("json", "text"))

    def test_pattern_without_text(self, job: Folder) -> None:
        problem = self.one(job, SMALL.replace("format: json", "format: json, pattern: '(?P<a>.)'"))
        assert "pattern is for format text only, not for json" in problem

    def test_schema_column_without_a_group_in_the_pattern(self, job: Folder) -> None:
        text = SMALL.replace("format: json", "format: text, pattern: '(?P<a>.)'") + "schema: {a: string, b: int}\n"
        assert "schema.b: no group (?P<b>…) in source.pattern; its groups are a" in self.one(job, text)

    def test_csv_without_header_and_without_schema(self, job: Folder) -> None:
        text = SMALL.replace("format: json", "format: csv, csv: {header: false}")
        assert "schema: needed, because csv without a header" in self.one(job, text)

    @pytest.mark.parametrize(
        ("field", "words"),
        [
            ("nope", "no column 'nope'; columns are"),
            ("date(host)", "allowed are timestamp, date"),
            ("hour(day)", "is a date; use date(day)"),
            ("ts", "would make a folder for each microsecond"),
            ("tags", "allowed are string"),
        ],
    )
    def test_partition_of_a_column_that_cannot_be_one(self, job: Folder, field: str, words: str) -> None:
        schema = "schema: {ts: timestamp, host: string, day: date, tags: array<string>}\n"
        problem = self.one(job, f"{SMALL}{schema}partition_by: ['{field}']\n")
        assert problem.startswith("line 5: partition_by[0]: ")
        assert words in problem

    def test_partition_column_that_is_there_already(self, job: Folder) -> None:
        text = f"{SMALL}schema: {{ts: timestamp, ts_date: date}}\npartition_by: [date(ts)]\n"
        assert "adds a column 'ts_date', which is there already" in self.one(job, text)

    def test_partition_named_twice(self, job: Folder) -> None:
        text = f"{SMALL}schema: {{a: string, b: int}}\npartition_by: [a, a]\n"
        assert "a column is named twice" in self.one(job, text)

    def test_columns_that_differ_only_in_case(self, job: Folder) -> None:
        assert "schema.Host: differs from 'host' only in case" in self.one(
            job, f"{SMALL}schema: {{host: string, Host: string}}\n"
        )

    def test_column_named_like_the_lineage(self, job: Folder) -> None:
        assert "schema._Epoch" in self.one(job, f"{SMALL}schema: {{a: int, _Epoch: int}}\nlineage: true\n")
        assert job.load(f"{SMALL}schema: {{a: int, _Epoch: int}}\n").columns is not None

    def test_schema_without_columns(self, job: Folder) -> None:
        assert "schema: " in self.one(job, f"{SMALL}schema: {{}}\n")

    @pytest.mark.parametrize(
        "path", ["lake/small", "./lake/../lake/small/", "lake/small/sub", "lake", "file://lake/small"]
    )
    def test_two_tables_in_one_place(self, job: Folder, path: str) -> None:
        text = SMALL.replace("}]", f"}}, {{type: delta, path: '{path}', name: other}}]").replace(
            "logs,", "'data/*.jsonl',"
        )
        problem, *_ = job.problems(f"{text}quarantine: {{path: bad}}\n")
        assert "targets[1].path: the same place as targets[0].path" in problem

    def test_quarantine_in_a_target(self, job: Folder) -> None:
        problem = self.one(job, f"{SMALL}quarantine: {{path: lake/small}}\n")
        assert "quarantine.path: the same place as targets[0].path" in problem

    def test_quarantine_turned_off(self, job: Folder) -> None:
        assert "rejected rows would be lost" in self.one(job, f"{SMALL}quarantine: false\n")

    def test_two_targets_of_one_name(self, job: Folder) -> None:
        text = SMALL.replace(
            "[{type: delta, path: lake/small}]",
            "[{type: delta, path: lake/a, name: x}, {type: delta, path: lake/b, name: x}]",
        )
        assert all("'x' is the name of 2 targets" in problem for problem in job.problems(text))

    def test_target_named_like_the_quarantine(self, job: Folder) -> None:
        text = SMALL.replace("path: lake/small", "path: lake/small, name: quarantine")
        assert any("'quarantine' is the name of 2 targets" in problem for problem in job.problems(text))

    def test_timeline_inside_a_table(self, job: Folder) -> None:
        problem = self.one(job, f"{SMALL}timeline: {{path: lake/small/timeline}}\n")
        assert "timeline.path: inside or around targets[0].path" in problem

    @pytest.mark.parametrize("path", ["lake", "lake/small", "lake/**/*.json", "lake/small/*.json"])
    def test_source_that_reads_what_the_job_writes(self, job: Folder, path: str) -> None:
        problem = self.one(job, SMALL.replace("path: logs", f"path: '{path}'"))
        assert "source.path: would read what the job writes to targets[0].path" in problem

    @pytest.mark.parametrize("path", ["s3://lake/x//logs", "s3://lake//x/*.log", "s3a://lake/./x", "s3://lake/x/../**"])
    def test_a_source_on_s3_with_more_than_one_spelling(self, job: Folder, path: str) -> None:
        problem = self.one(job, SMALL.replace("path: logs", f"path: '{path}'"))
        assert "source.path: s3://lake/" in problem and "a folder is named '" in problem

    @pytest.mark.parametrize(
        ("path", "words"),
        [
            ("logs/*/../*.log", "'..' behind a wildcard"),
            ("logs/**/..", "'..' behind a wildcard"),
            ("link/../logs", "'..' behind a link"),
            ("file://link/../logs/*.log", "'..' behind a link"),
            ("file:lake/small", "two slashes"),
            ("local:/var/log", "two slashes"),
        ],
    )
    def test_a_local_source_whose_path_is_another_place_than_it_seems(
        self, job: Folder, monkeypatch: pytest.MonkeyPatch, path: str, words: str
    ) -> None:
        folder = job.file.parent
        monkeypatch.chdir(folder)
        (folder / "else" / "where").mkdir(parents=True)
        (folder / "link").symlink_to(folder / "else" / "where")
        problem = self.one(job, SMALL.replace("path: logs", f"path: '{path}'"))
        assert f"source.path: {path}: {words}" in problem

    def test_source_beside_the_tables_is_allowed(self, job: Folder) -> None:
        for path in (
            "lake/*.jsonl",
            "lake/small_input",
            "lak",
            "s3://lake/x/**/*.log",
            "s3://lake/x/",
            "logs//x",
            "../logs",
            "~/../*",
        ):
            job.load(SMALL.replace("path: logs", f"path: '{path}'"))

    @pytest.mark.parametrize("key", ["max_bytes_per_epoch", "max_files_per_epoch"])
    def test_limits_of_nothing(self, job: Folder, key: str) -> None:
        assert f"source.{key}: " in self.one(job, SMALL.replace("format: json", f"format: json, {key}: 0"))

    def test_timestamp_format_of_no_timestamp(self, job: Folder) -> None:
        text = SMALL.replace("format: json", "format: json, timestamp_format: {a: '%Y', z: '%Y'}")
        problems = job.problems(f"{text}schema: {{a: int, t: timestamp}}\n")
        assert "source.timestamp_format.a: 'a' is int; allowed are timestamps and dates" in problems[0]
        assert "source.timestamp_format.z: no such column; columns are a, t" in problems[1]

    def test_timestamp_format_without_a_year(self, job: Folder) -> None:
        text = SMALL.replace("format: json", "format: json, timestamp_format: '%b %d %H:%M:%S'")
        problem = self.one(job, text)
        assert "source: timestamp_format '%b %d %H:%M:%S' does not say the year; add %Y or %y" in problem
        assert "year: <n> (for all records), or year: file (the time of the file tells it)" in problem
        job.load(text.replace("format: json", "format: json, year: file"))

    def test_format_that_no_date_can_have(self, job: Folder) -> None:
        text = SMALL.replace("format: json", "format: json, timestamp_format: {a: '%Y-%m-%d %H:%M', b: '%d/%m/%Y'}")
        problem = self.one(job, f"{text}schema: {{a: date, b: date}}\n")
        assert "source.timestamp_format.a: '%Y-%m-%d %H:%M' has a time of day or a zone, but a is a date" in problem

    def test_zone_that_there_is_not(self, job: Folder) -> None:
        problem = self.one(job, SMALL.replace("format: json", "format: json, timezone: Mars/Phobos"))
        assert "source.timezone: 'Mars/Phobos' is no name of the IANA time zone database" in problem

    def test_store_that_cannot_create_exclusively(self, job: Folder) -> None:
        problem = self.one(job, f"{SMALL}timeline: {{path: 'ftp://host/x'}}\n")
        assert "timeline.path: ftp://: no store that creates objects exclusively" in problem

    def test_no_targets(self, job: Folder) -> None:
        assert "targets: " in self.one(job, re.sub("targets: .*", "targets: []", SMALL))


def test_job_travels_to_another_process(job: Folder) -> None:
    config = job.load(WHOLE)
    assert pickle.loads(pickle.dumps(config)) == config


def test_job_does_not_change(job: Folder) -> None:
    with pytest.raises(ValueError, match="frozen"):
        job.load(SMALL).name = "other"


def test_one_place_has_one_spelling(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolved_place("lake/a/") == resolved_place(f"file://{tmp_path}/lake/./a") == f"file://{tmp_path}/lake/a"
    assert resolved_place(f"/{tmp_path}//lake/a") == f"file://{tmp_path}/lake/a"
    assert resolved_place("s3a://b/x/") == resolved_place("s3://b/x") == "s3://b/x"
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    assert resolved_place("link/a") == resolved_place("lake/a")


@pytest.mark.parametrize("path", ["s3://lake/x//t", "s3://lake//t", "s3://lake/x/../t", "s3a://lake/./t"])
def test_a_path_on_s3_with_more_than_one_spelling_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match=r"a folder is named '\.?\.?', .* names other than"):
        open_store(path)
    with pytest.raises(ConfigError, match="a folder is named"):
        delta_location(path)
