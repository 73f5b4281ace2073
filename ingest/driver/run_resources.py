"""Source, engine, query and pipeline of a run, each opened when it is first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ingest.driver.build import TimelineHandle, check_result, known_schema, open_source
from ingest.driver.epoch import Pipeline
from ingest.execution.runner import Runner
from sinks.base import sequential

if TYPE_CHECKING:
    from ingest.sources.quarantine import WithQuarantine
    from ingest.transform.pipeline import QueryPipeline, SparkQuery


class RunResources:
    """Opens source, engine and query once each; every call takes the timeline, since it is created during the run."""

    def __init__(self, open_runner: Callable[[], Runner], stop: threading.Event, *, accept_loss: bool) -> None:
        """Nothing is opened yet.

        Args:
            open_runner: starts the engine.
            stop: set from outside to end waits for the engine.
            accept_loss: go on behind records that the source no longer has.
        """
        self._open_runner = open_runner
        self._stop = stop
        self._accept_loss = accept_loss
        self._runner: Runner | None = None
        self._query: SparkQuery | None = None
        self._source: WithQuarantine | None = None

    def source(self, opened: TimelineHandle) -> WithQuarantine:
        """The job's source."""
        if self._source is None:
            self._source = open_source(opened.config, accept_loss=self._accept_loss, identity=opened.identity)
        return self._source

    def pipeline(self, opened: TimelineHandle, *, is_isolated: bool) -> Pipeline | QueryPipeline:
        """The pipeline from offset ranges to rows, with the schema that the timeline was created with.

        Args:
            opened: the job's timeline.
            is_isolated: decode in child processes; see `ingest.execution.isolated`.
        """
        schema = known_schema(opened)
        assert schema is not None
        source, config = self.source(opened), opened.config
        if config.transform is None:
            return Pipeline(source, schema, config.lineage, self._started(), is_isolated)
        from ingest.transform.pipeline import QueryPipeline

        query = self.query(opened, schema)
        check_result(opened, schema, query.analysis.schema)
        return QueryPipeline(source, schema, config.lineage, self._started(), query, is_isolated)

    def query(self, opened: TimelineHandle, decoded: pa.Schema) -> SparkQuery:
        """The job's query; Spark analyzes it once.

        Args:
            opened: the job's timeline.
            decoded: the columns of decoded rows.
        """
        if self._query is None:
            from ingest.transform.pipeline import open_query

            self._query = open_query(self._started(), opened.config, decoded, self._stop)
        return self._query

    def parallel(self, calls: Sequence[Callable[[], None]]) -> None:
        """See `sinks.base.ParallelRunner`: runs on the engine where it was started, else in this thread."""
        (sequential if self._runner is None else self._runner.parallel)(calls)

    def close(self) -> None:
        """Stop the engine, where it was started."""
        if self._runner is not None:
            self._runner.close()

    def _started(self) -> Runner:
        if self._runner is None:
            self._runner = self._open_runner()
        return self._runner
