"""The shipped memory sink keeps the sink contract."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from sinks.base import Sink
from sinks.memory import MemorySink
from tests.contract.broken_stores import LosingReplies, Unreachable
from tests.contract.sink_contract import HoldingContract, LakeSinkContract
from timeline.stores.base import ObjectStore, Retry
from timeline.stores.opening import open_store


def no_pause(_: float) -> None:
    """Retry without a pause."""


AT_ONCE = Retry(attempts=3, sleep=no_pause)


@dataclass
class MemoryRig:
    """A table on any store; the tests use a local one, whose writers can be pickled."""

    store: ObjectStore

    def sink(self, app_id: str = "job-a") -> MemorySink:
        return MemorySink("memory", app_id, self.store, AT_ONCE)

    def losing_replies(self) -> Sink:
        return MemorySink("memory", "job-a", LosingReplies(self.store), AT_ONCE)

    def unreachable(self) -> Sink:
        return MemorySink("memory", "job-a", Unreachable(), AT_ONCE)

    def traces(self) -> list[str]:
        return [info.path for info in self.store.list("", recursive=True)]

    def visible(self) -> list[int]:
        table: pa.Table = self.sink().read()
        return sorted(table["id"].to_pylist()) if table.num_columns else []


class TestMemorySink(LakeSinkContract, HoldingContract):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> MemoryRig:
        return MemoryRig(open_store(str(tmp_path)))
