"""Job files whose targets have no path, and their refused combinations."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from ingest.config.checks import check_keyspaces, check_stream_targets
from ingest.config.load import JobConfig, load_config
from ingest.config.registry import SINK_GROUP, load_sink
from ingest.execution.spark.cluster import needed_modules
from ingest.sources.files.options import FilesOptions
from ingest.sources.options import StreamOptions
from sinks.delta.sink import DeltaOptions
from sinks.tikv.options import TikvOptions, TransactionLevel
from tests.transaction_sink import installed
from timeline.errors import ConfigError

JOB = """\
name: keyed
source: {type: files, path: logs, format: json}
schema: {number: bigint}
targets: [{type: transactions, place: 'memory://keyed'}]
quarantine: {path: lake/bad}
timeline: {path: lake/timeline}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("ingest.config.registry.installed_sinks", installed)
    return tmp_path / "job.yaml"


def load(file: Path, text: str) -> JobConfig:
    file.write_text(text)
    return load_config(file, {})


def problems(file: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(file, text)
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


def tikv(prefix: str, *pd: str, **options: object) -> TikvOptions:
    block: Mapping[str, object] = {"type": "tikv", "pd": pd or ("pd:2379",), "prefix": prefix, "key": ("number",)}
    return TikvOptions.model_validate({**block, **options})


def job(*targets: TikvOptions | DeltaOptions, stream: bool = False) -> JobConfig:
    source = StreamOptions() if stream else FilesOptions.model_validate({"path": "logs", "format": "json"})
    return JobConfig.model_validate(
        {
            "name": "keyed",
            "source": source,
            "targets": targets,
            "quarantine": DeltaOptions(type="delta", path="lake/bad"),
            "timeline": {"path": "lake/timeline"},
        }
    )


class TestTargetsWithoutAPath:
    def test_timeline_and_quarantine_say_where_they_lie(self, file: Path) -> None:
        config = load(file, JOB)
        assert config.quarantine == DeltaOptions(type="delta", name="quarantine", path="lake/bad")
        assert config.timeline.path == "lake/timeline"

    def test_a_missing_one_is_named_with_an_example(self, file: Path) -> None:
        text = JOB.partition("quarantine")[0]
        quarantine, timeline = sorted(problems(file, text))
        assert "quarantine.path: needed" in quarantine
        assert "for example quarantine: {path: lake/events_rejected}" in quarantine
        assert "timeline.path: needed" in timeline
        assert "for example timeline: {path: lake/events_timeline}" in timeline

    def test_a_table_beside_it_gives_both_their_place(self, file: Path) -> None:
        targets = "targets: [{type: transactions, place: 'memory://keyed'}, {type: delta, path: lake/table}]\n"
        config = load(file, JOB.partition("targets")[0] + targets)
        assert config.quarantine == DeltaOptions(type="delta", name="quarantine", path="lake/table_quarantine")
        assert config.timeline.path == "lake/table"

    @pytest.mark.parametrize("path", ["", ", path: lake/bad"])
    def test_a_quarantine_needs_a_type_with_a_path(self, file: Path, path: str) -> None:
        text = JOB.replace("{path: lake/bad}", f"{{type: transactions, place: 'memory://bad'{path}}}")
        (problem,) = problems(file, text)
        assert "quarantine.type: transactions does not take rejected rows" in problem

    def test_what_a_target_refuses_is_said_of_the_target(self, file: Path) -> None:
        text = JOB.replace("memory://keyed", "ftp://host/keyed")
        (problem,) = problems(file, text)
        assert problem.startswith("line 4: targets[0]: ")


class TestKeyspaces:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("events_", "events_"),
            ("events_", "events_old_"),
            ("events_old_", "events_"),
            ("0x6576", "events_"),
            ("0X6576", "events_"),
        ],
    )
    def test_prefixes_that_overlap_are_refused(self, one: str, other: str) -> None:
        ((path, message),) = check_keyspaces(job(tikv(one), tikv(other)))
        assert path == ("targets", 1, "prefix")
        assert f"overlaps with {one!r} of targets[0].prefix on pd:2379" in message

    def test_one_pd_in_common_is_one_cluster(self) -> None:
        found = list(check_keyspaces(job(tikv("a", "x:1", "y:1"), tikv("a", "z:1"), tikv("a", "z:1", "y:1"))))
        assert [path for path, _ in found] == [("targets", 2, "prefix")] * 2

    @pytest.mark.parametrize(
        "targets",
        [
            (tikv("events_"), tikv("users_")),
            (tikv("events_", "x:1"), tikv("events_", "y:1")),
            (tikv("events_"), DeltaOptions(type="delta", path="events_")),
            (tikv("0xff"), tikv("0xfe")),
        ],
    )
    def test_prefixes_apart_are_allowed(self, targets: tuple[TikvOptions | DeltaOptions, ...]) -> None:
        assert list(check_keyspaces(job(*targets))) == []


def test_a_stream_is_not_written_to_a_target_that_may_need_its_rows_again() -> None:
    ((path, message),) = check_stream_targets(job(DeltaOptions(type="delta", path="a"), tikv("b"), stream=True))
    assert path == ("targets", 1, "type")
    assert "tikv takes no stream" in message and "source.type kafka or files" in message
    assert list(check_stream_targets(job(tikv("b")))) == []
    assert list(check_stream_targets(job(DeltaOptions(type="delta", path="a"), stream=True))) == []


def test_a_global_transaction_takes_the_whole_source() -> None:
    assert not job(tikv("a")).takes_whole_source
    assert not job(tikv("a", transaction="minibatch")).takes_whole_source
    assert job(DeltaOptions(type="delta", path="a"), tikv("a", transaction=TransactionLevel.GLOBAL)).takes_whole_source


def test_executors_need_what_the_target_imports() -> None:
    needed = needed_modules(job(DeltaOptions(type="delta", path="a")))
    assert not {"grpc", "google.protobuf"} & needed.keys()
    # Only the type counts: whether its class can be imported here is checked when the job file is read.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ingest.execution.spark.cluster.load_sink", lambda name: DeltaOptions)
        assert {"grpc", "google.protobuf"} <= needed_modules(job(tikv("a"))).keys()


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sink_over_grpc.py").write_text("import grpc\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "grpc", None)

    only_this = EntryPoints([EntryPoint("tikv", "sink_over_grpc:Sink", SINK_GROUP)])
    monkeypatch.setattr("ingest.config.registry.installed_sinks", lambda: only_this)
    with pytest.raises(ConfigError, match=r"target type tikv needs .* \(grpc\): pip install 'tideline\[tikv\]'"):
        load_sink("tikv")


WITH_PATHS = """\
name: paths
source: {type: files, path: LOGS, format: json}
schema: {number: bigint}
targets: [{type: delta, path: LAKE}]
quarantine: {path: BAD}
timeline: {path: TIMELINE}
"""
PLACES = {"LOGS": "source.path", "LAKE": "targets[0].path", "BAD": "quarantine.path", "TIMELINE": "timeline.path"}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("added", ["\\n", "\\t", "\\x00", " ", "\\u2028", "\\x85"])
def test_a_path_with_control_characters_or_blanks_around_it_is_refused(tmp_path: Path, place: str, added: str) -> None:
    """Delta's own client takes the path for another one, or for none: the epoch would stay pending for ever."""
    text = WITH_PATHS
    for name in PLACES:
        text = text.replace(name, f'"{tmp_path}/{name.lower()}{added if name == place else ""}"')
    (problem,) = problems(tmp_path / "job.yaml", text)
    assert PLACES[place] in problem and "allowed is a path without" in problem


def test_a_path_that_others_are_made_of_is_told_once_and_blanks_inside_are_allowed(tmp_path: Path) -> None:
    text = "name: paths\nsource: {type: files, path: logs, format: json}\nschema: {number: bigint}\n"
    (problem,) = problems(tmp_path / "job.yaml", f'{text}targets: [{{type: delta, path: " lake"}}]\n')
    assert "targets[0].path" in problem
    (tmp_path / "job.yaml").write_text(f'{text}targets: [{{type: delta, path: "my lake/of logs"}}]\n')
    load_config(tmp_path / "job.yaml")


class TestSinksOfOtherPackages:
    def load(self, monkeypatch: pytest.MonkeyPatch, *entries: tuple[str, str], name: str = "mine") -> type[Any]:
        found = EntryPoints(EntryPoint(each, value, SINK_GROUP) for each, value in entries)
        monkeypatch.setattr("ingest.config.registry.installed_sinks", lambda: found)
        return load_sink(name)

    def test_a_sink_without_a_required_method_is_refused_by_its_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(
            ConfigError, match=r"'mine' \(fractions:Fraction\) has no Options, open, ensure, .*unreleased"
        ):
            self.load(monkeypatch, ("mine", "fractions:Fraction"))

    def test_two_packages_with_one_name_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(ConfigError, match=r"several packages have a sink 'mine': fractions:Fraction, io:StringIO"):
            self.load(monkeypatch, ("mine", "io:StringIO"), ("mine", "fractions:Fraction"))

    def test_a_package_cannot_replace_a_sink_of_tidelines_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        entries = (("delta", "fractions:Fraction"), ("delta", "sinks.delta.sink:DeltaSink"))
        assert self.load(monkeypatch, *entries, name="delta").__name__ == "DeltaSink"

    def test_a_package_that_raises_when_it_is_imported_is_named(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "broken_sink_package.py").write_text("raise ValueError('no licence')")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(ConfigError, match=r"cannot be imported: ValueError: no licence; .*broken_sink"):
            self.load(monkeypatch, ("mine", "broken_sink_package:Sink"))
