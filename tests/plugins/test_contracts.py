"""The sink and the store of the how-tos keep the contracts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ingest.config.checks import check_cluster_places
from ingest.config.models import JobConfig
from ingest.sources.files.options import FilesOptions
from sinks.base import Sink, SinkContext
from sinks.delta.sink import DeltaOptions
from sinks.reading import readable, snapshots_of
from tests.contract.sink_contract import SCHEMA, SinkContract, SinkRig, prepared, ref
from tests.contract.store_contract import SharedStoreContract
from tests.plugins.distribution import install
from tests.plugins.tideline_sqlite.sink import SqliteOptions, SqliteSink, transaction
from timeline.epoch import Part
from timeline.errors import ConfigError, StoreUnavailableError, TargetRefusedError
from timeline.stores import opening
from timeline.stores.base import ObjectStore
from timeline.stores.opening import open_store, store_package


@dataclass(frozen=True)
class LosingSink(SqliteSink):
    """Answers the first commit that lands with an error."""

    def _commit(self, part: Part) -> None:
        super()._commit(part)
        raise StoreUnavailableError("the reply is lost")


@dataclass
class SqliteRig:
    """A target in a file."""

    file: str

    def sink(self, app_id: str = "job-a") -> SqliteSink:
        options = SqliteOptions(type="sqlite", name="sqlite", file=self.file)
        return SqliteSink.open(options, SinkContext(app_id, SCHEMA))

    def losing_replies(self) -> Sink:
        return LosingSink("sqlite", self.file, "job-a", SCHEMA)

    def unreachable(self) -> Sink:
        return SqliteSink("sqlite", "/dev/null/rows.db", "job-a", SCHEMA)

    def visible(self) -> list[int]:
        return sorted(number for batch in self.sink().read_rows() for number in batch.column("id").to_pylist())

    def traces(self) -> list[str]:
        with transaction(self.file) as db:
            tables = [db.execute(f"SELECT * FROM {table}").fetchall() for table in ("attempts", "chunks", "epochs")]
        return [str(row) for table in tables for row in table]


class TestSqliteSink(SinkContract):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> SinkRig:
        return SqliteRig(str(tmp_path / "rows.db"))

    def test_rows_are_read_up_to_a_limit(self, rig: SinkRig) -> None:
        sink = rig.sink()
        for epoch in range(3):
            sink.commit(prepared(sink, ref(epoch), range(epoch * 4, epoch * 4 + 4)))
        reading = readable(sink)
        assert reading is not None
        for limit, rows in ((None, 12), (6, 6), (12, 12), (100, 12)):
            assert sum(batch.num_rows for batch in reading.read_rows(limit)) == rows

    def test_one_version_has_the_same_rows_however_many_come_behind_it(self, rig: SinkRig) -> None:
        sink = rig.sink()
        rows = snapshots_of(sink)
        assert rows is not None and rows.newest() is None
        for epoch in range(3):
            sink.commit(prepared(sink, ref(epoch), [epoch, epoch + 10]))
        assert rows.newest() == 2
        found = rows.read(1, ["id"], pc.field("id") < 10)
        assert pa.Table.from_batches(found).to_pydict() == {"id": [0, 1]}

    def test_rows_of_other_columns_are_refused(self, rig: SinkRig, tmp_path: Path) -> None:
        sink = rig.sink()
        sink.commit(prepared(sink, ref(0), [1]))
        other = SqliteSink("sqlite", str(tmp_path / "rows.db"), "job-b", pa.schema([("name", pa.string())]))
        with pytest.raises(TargetRefusedError, match="choose a new file"):
            other.ensure()


class TestSqliteStore(SharedStoreContract):
    keys_raced = 20
    process_keys_raced = 20
    many = 200

    @pytest.fixture
    def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
        path = install(tmp_path / "packages")
        monkeypatch.syspath_prepend(tmp_path / "packages")
        monkeypatch.setenv("PYTHONPATH", path)
        opening.installed_stores.cache_clear()
        yield open_store(f"sqlite://{tmp_path}/objects.db/lake")
        opening.installed_stores.cache_clear()

    def test_a_job_on_a_cluster_is_told_that_other_machines_do_not_reach_it(self, store: ObjectStore) -> None:
        job = JobConfig.model_validate(
            {
                "name": "far",
                "source": FilesOptions.model_validate({"path": "s3://logs/a", "format": "json"}),
                "targets": (DeltaOptions(type="delta", path="s3://lake/a"),),
                "quarantine": DeltaOptions(type="delta", path="s3://lake/bad"),
                "timeline": {"path": store.url},
                "spark": {"master": "spark://far:7077"},
            }
        )
        ((path, message),) = check_cluster_places(job)
        assert path == ("timeline", "path") and "is on this machine" in message

    def test_its_package_is_asked_for_where_tasks_open_it(self, store: ObjectStore) -> None:
        assert store_package(store.url) == "tideline_sqlite"
        assert store_package("s3://lake") is None and store_package("lake") is None

    @pytest.mark.parametrize(
        ("url", "why"),
        [
            ("sqlite://u:secret@host/a.db", "credentials in a URL end up in logs"),
            ("sqlite:///a", "allowed is sqlite://"),
        ],
    )
    def test_a_url_that_it_cannot_open_is_refused(self, store: ObjectStore, url: str, why: str) -> None:
        with pytest.raises(ConfigError, match=why) as caught:
            open_store(url)
        assert "secret" not in str(caught.value)
