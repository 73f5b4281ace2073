"""`stream(df, conf)`: a writer of a streaming DataFrame, made and used like Spark's own."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from ingest.config.load import JobConfig, load_config
from ingest.driver.build import TimelineHandle, build_job, create_timeline, known_schema, open_timeline, require_whole
from ingest.driver.exit_message import last_error
from ingest.driver.losses import refuse_ahead, refuse_losses
from ingest.driver.stores import probe_stores
from ingest.driver.takeover import run_recovery
from ingest.execution.spark.rows import SHARD
from ingest.protocol.recovery import recover
from ingest.sources.options import StreamOptions
from ingest.sources.quarantine import OWN_SHARDS
from ingest.stream.checkpoint import HadoopFiles
from ingest.stream.epochs import BatchIngest, committed_position
from ingest.stream.schema import check_same, row_schema
from timeline.active import ActiveTimeline
from timeline.chain import load_chain
from timeline.errors import ConfigError, StoppedError, WriterBusyError
from timeline.failpoints import reach
from timeline.lease import LeaseObserver, WriterLease
from timeline.redact import shown_error

log = logging.getLogger(__name__)

_CHECKPOINT = "checkpointLocation"
_NEW_TIMELINE = "newTimeline"


def stream(df: DataFrame, conf: str | os.PathLike[str] | JobConfig) -> StreamIngest:
    """A writer that puts a streaming DataFrame through a job's timeline into its targets.

    Args:
        df: the query's rows, with any of Spark's sources and transformations.
        conf: a job file with ``source: {type: stream}``, or a loaded one.

    Raises:
        ConfigError: the job is not for a stream, or the DataFrame is not a streaming one.
    """
    config = _stream_config(conf)
    if not df.isStreaming:
        raise ConfigError("the DataFrame is not a streaming one; make it with spark.readStream")
    if not hasattr(df, "_jdf"):
        raise ConfigError("Spark Connect has no driver to ingest from; use a session of a classic Spark driver")
    if importlib.util.find_spec("pandas") is None:
        raise ConfigError("Spark needs pandas to hand rows to Python: pip install 'tideline[stream]'")
    return StreamIngest(df, config)


def starting_offsets(conf: str | os.PathLike[str] | JobConfig, *, default: str = "earliest", source: int = 0) -> str:
    """Offsets at which a query continues the timeline, as text for Kafka's option ``startingOffsets``.

    Spark reads that option only when a query has no checkpoint, so it can stay in the query's code.
    Pending epochs of an ended writer are recovered first.

    Args:
        conf: the job file, or a loaded one.
        default: the value while no epoch is committed.
        source: index of the query's source, in Spark's order.

    Raises:
        ConfigError: only the query's own checkpoint can continue the committed offsets.
        WriterBusyError: a writer that may be alive has an open epoch.
    """
    opened = open_timeline(_stream_config(conf))
    if run_recovery(opened).is_waiting:
        raise WriterBusyError(
            f"{opened.store.url} has an open epoch of a writer that may be alive: stop that query, or wait for it"
        )
    place = committed_position(
        load_chain(opened.store, ActiveTimeline.recent(opened.store, opened.retry), opened.retry)
    )
    if place is None:
        return default
    if place.logs is None:
        kept = "the query keeps state" if place.is_stateful else "its offsets are not those of a log such as Kafka"
        raise ConfigError(
            f"{opened.store.url} can be continued with the checkpoint of query {place.query} only, because {kept}; "
            "without it, start another timeline and table"
        )
    if not 0 <= source < len(place.logs):
        raise ConfigError(f"source {source}: the query has {len(place.logs)}, counted from 0")
    return json.dumps(place.logs[source], separators=(",", ":"))


class StreamIngest:
    """Returned by `stream`. Takes the options of Spark's ``df.writeStream``; targets and format come from the job."""

    def __init__(self, df: DataFrame, config: JobConfig) -> None:
        """Create the writer; starts no query."""
        self._df = df
        self._config = config
        self._writer = df.writeStream
        self._checkpoint: str | None = None
        self._is_anew = False

    def option(self, key: str, value: str | int | float | bool | None) -> StreamIngest:
        """Set one of Spark's options, of which ``checkpointLocation`` is required, or ``newTimeline``.

        ``newTimeline: true`` creates a timeline though the targets have rows of a deleted one of this job.
        """
        if key.lower() == _CHECKPOINT.lower():
            self._checkpoint = None if value is None else str(value)
        if key.lower() == _NEW_TIMELINE.lower():
            self._is_anew = str(value).lower() == "true"
            return self
        self._writer = self._writer.option(key, value)
        return self

    def options(self, **options: str | int | float | bool | None) -> StreamIngest:
        """Set several options; see `option`."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def trigger(self, **trigger: Any) -> StreamIngest:
        """Set Spark's ``trigger`` of micro-batches; each micro-batch is an epoch."""
        self._writer = self._writer.trigger(**trigger)
        return self

    def queryName(self, name: str) -> StreamIngest:
        """Set the query's name in Spark."""
        self._writer = self._writer.queryName(name)
        return self

    def start(self) -> IngestQuery:
        """Take the timeline's lease, recover pending epochs, and start the query.

        Raises:
            ConfigError: the query's columns do not fit the job, or ``checkpointLocation`` is missing.
            WriterBusyError: another process writes this timeline.
            TidelineError: a store or a target refuses the job; the message says what to do.
        """
        if self._checkpoint is None:
            raise ConfigError(f'.option("{_CHECKPOINT}", …) is missing: the offsets of each batch are read from there')
        opened = open_timeline(self._config, allows_new_timeline=self._is_anew)
        require_whole(opened)
        found = row_schema(self._df.schema)
        wanted = known_schema(opened)
        if wanted is not None:
            check_same(found, wanted, "the job file" if self._config.columns else "this timeline")
        probe_stores(opened)
        lease = opened.take_lease(LeaseObserver(opened.store, opened.retry))
        lease.start_heartbeats()
        try:
            reach("lease-taken")
            batches = self._batches(opened, found if wanted is None else wanted, lease, self._checkpoint)
            query = self._writer.foreachBatch(batches).start()
        except BaseException:
            lease.release()
            raise
        return IngestQuery(query, batches, lease)

    def _batches(self, opened: TimelineHandle, schema: pa.Schema, lease: WriterLease, checkpoint: str) -> BatchIngest:
        created = opened if opened.identity is not None else create_timeline(opened, schema)
        job = build_job(created)
        refuse_ahead(job)
        recover(job, lease)
        chain = load_chain(opened.store, ActiveTimeline.recent(opened.store, opened.retry), opened.retry, repair=True)
        refuse_losses(job, chain)
        for sink in job.sinks:
            sink.ensure()
        others = sorted(set(chain.positions) - {SHARD, *OWN_SHARDS})
        if others:
            raise ConfigError(
                f"{opened.store.url} was written from another source ({', '.join(others[:3])}); "
                "give the stream another timeline.path"
            )
        return BatchIngest(job, lease, chain, HadoopFiles(self._df.sparkSession, checkpoint), schema)


class IngestQuery(StreamingQuery):
    """Spark's handle of a running query, which raises the TidelineError that ended the query.

    The lease is released whenever the query ends, so that the next start need not wait.
    """

    def __init__(self, query: StreamingQuery, batches: BatchIngest, lease: WriterLease) -> None:
        """Watch a query that was just started."""
        super().__init__(query._jsq)
        self._batches = batches
        self._lease = lease
        # Spark's thread class, which closes its connection to the JVM when it ends.
        self._watcher = InheritableThread(self._watch, name="tideline-stream", daemon=True)
        self._watcher.start()

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """Wait for the query's end, at most `timeout` seconds; see Spark's.

        Raises:
            TidelineError: an error of Tideline ended the query.
            StreamingQueryException: another error ended it, for example one of the source.
        """
        try:
            ended = super().awaitTermination(timeout)
        except StreamingQueryException as error:
            self._watcher.join()
            failure = self._batches.failure or error
            if not isinstance(failure, StoppedError):
                raise failure from error
            return True
        if ended is not False:
            self._watcher.join()
        return ended

    def processAllAvailable(self) -> None:
        """Wait until all records that the sources have now are committed; see Spark's.

        Raises:
            TidelineError: an error of Tideline ended the query before.
        """
        try:
            super().processAllAvailable()
        except StreamingQueryException as error:
            if self._batches.failure is None:
                raise
            raise self._batches.failure from error

    def stop(self) -> None:
        """End the query. An epoch that is not prepared is rolled back; a prepared one is completed."""
        self._batches.stop.set()
        super().stop()
        self._watcher.join()

    def _watch(self) -> None:
        ended_by = ""
        try:
            self._jsq.awaitTermination()
        except (PySparkException, Py4JError, OSError) as error:
            log.debug("query ended: %s", shown_error(error))
            failure = self._batches.failure or error
            if not (isinstance(failure, StoppedError) or self._batches.stop.is_set()):
                ended_by = last_error(failure)
        finally:
            self._lease.release(ended_by)


def _stream_config(conf: str | os.PathLike[str] | JobConfig) -> JobConfig:
    config = conf if isinstance(conf, JobConfig) else load_config(conf)
    if not isinstance(config.source, StreamOptions):
        raise ConfigError(
            f"job {config.name!r} has source.type {config.source.type}, which tideline run ingests; "
            "a query needs a job with source: {type: stream}"
        )
    return config
