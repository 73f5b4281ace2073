"""Writes an epoch as a query's result: tasks decode, Spark runs the query and writes its files.

A target that takes no files (`sinks.options.QueryRows`) gets rows instead, see `ingest.transform.to_writer`.

::

    task numbers ── mapInArrow ──▶ read, decode ──▶ view source ──▶ query ──▶ <t>-<owner>/part-….parquet
                                       │  └ rejected rows ──▶ quarantine             │
                                       └ counts ──▶ accumulator ──▶ task reports     └ footers ──▶ write report

Rows that the query leaves out are checked by two counts: Spark's count of the result must equal the rows in the
footers, and together with the rows left out it must equal the rows that the tasks accepted.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

from ingest.config.models import JobConfig
from ingest.execution.isolated import IsolatedDecoder
from ingest.execution.runner import Runner
from ingest.execution.task import Outputs, TaskReport, TaskSpec, assign, merge_counts
from ingest.sources.base import Source
from ingest.transform.analysis import analyze, spark_schema
from ingest.transform.aside import FolderRules, SetAside
from ingest.transform.failed_rows import failed_row
from ingest.transform.layout import added_columns
from ingest.transform.query import SparkQuery, observed, reports_of, result_of
from ingest.transform.session import SessionRunner, open_session, prepare_s3a
from ingest.transform.tasks import Collected, DecodeTask, Numbered
from ingest.transform.to_writer import WriterWrite, write_rows
from sinks.delta.footers import footer_reader
from sinks.delta.spark_files import CLOSED_DETAIL, FOLDER_DETAIL, SparkFolder
from sinks.options import QueryRows
from sinks.parquet.partition_writer import ParquetPartitionWriter, parquet_writer
from timeline.epoch import Json, OffsetRange, Plan
from timeline.errors import ConfigError, SparkJobError

__all__ = ["QueryPipeline", "SparkQuery", "open_query"]

TResult = TypeVar("TResult")

_KEPT = "kept"
_REFUSED = "refused"
_LOCAL_OPTIONS = {
    # Otherwise each file gets a checksum file beside it, which no reader of Delta tables reads.
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
_COMMITTER_OPTIONS = {
    # A task's files appear at its commit, not one by one before: a lost attempt leaves none.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


def open_query(runner: Runner, config: JobConfig, decoded: pa.Schema, stop: threading.Event) -> SparkQuery:
    """Analyze a job's query, and create the objects that its epochs share.

    Args:
        runner: a runner that has started Spark.
        config: the job file, with a query.
        decoded: columns that are decoded.
        stop: set by a signal.

    Raises:
        ConfigError: the query is not allowed for this job, or cannot be run here.
    """
    text, target = config.transform, config.targets[0]
    assert text is not None
    folder = target.lake_path if target.query_rows is QueryRows.FILES else None
    if not isinstance(runner, SessionRunner):
        raise ConfigError("transform: the query needs Spark, which this command does not start; use tideline run")
    try:
        import pandas  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"transform: PySpark needs a package that is not installed ({error.name}) to take rows in: "
            "pip install 'tideline[transform]'"
        ) from error
    source = config.row_schema(decoded)

    def look(started: SparkSession) -> list[SparkQuery]:
        session = open_session(started)
        analysis = analyze(session, text, source)
        if folder is not None and folder.startswith(("s3://", "s3a://")):
            prepare_s3a(session, config.storage)
        reports = session.sparkContext.accumulator([], Collected())
        read_footer = None if folder is None else footer_reader(folder, config.storage)
        return [SparkQuery(text, source, analysis, session, reports, read_footer)]

    return runner.with_session(look, 0, stop)[0]


@dataclass(frozen=True)
class _Result:
    """Result of one write.

    Attributes:
        reports: reports of decode tasks, and of `SetAside`.
        kept: rows of the query's result, as counted by Spark; None where the query leaves no row out.
        refused: rows of the result that no folder of the table can hold, and that are not in the files.
        is_closed: whether every attempt of every task has certainly ended.
    """

    reports: Sequence[Numbered]
    kept: int | None
    refused: int
    is_closed: bool


@dataclass(frozen=True)
class QueryPipeline:
    """See EpochWriter, and `ingest.driver.epoch.Pipeline` for a job without a query.

    Attributes:
        source: where records come from.
        schema: the columns to decode.
        lineage: whether rows carry shard, offset and epoch.
        runner: runs Spark jobs.
        query: the job's query.
        is_isolated: whether records are decoded in child processes; see `ingest.execution.isolated`.
    """

    source: Source
    schema: pa.Schema
    lineage: bool
    runner: Runner
    query: SparkQuery
    is_isolated: bool = False

    def write(self, plan: Plan, outputs: Outputs, stop: threading.Event) -> Sequence[TaskReport]:
        """See EpochWriter.

        Raises:
            DataError: the query failed on a row's value.
            SparkJobError: a task failed more often than Spark retries it.
        """
        ranges = assign(plan.ranges, self.source.split, self.runner.slots, self.source.split_size)
        decoder = self.source.decoder(self.schema, lineage=self.lineage)
        template = TaskSpec(
            ranges=(),
            reader=self.source.reader(self.schema),
            decoder=IsolatedDecoder(decoder) if self.is_isolated else decoder,
            outputs=Outputs((), outputs.quarantine),
            epoch=plan.ref.epoch,
            lineage=self.lineage,
        )
        read_footer = self.query.read_footer
        if read_footer is None:
            write = WriterWrite(self.query, template, ranges, outputs)
            given = self._on_spark(plan, partial(write_rows, write), len(ranges), stop)
            return write.task_reports(plan, given)
        ((target, writer),) = outputs.accepting
        files = parquet_writer(target, writer)
        return self._write_files(plan, _Write(self.query, template, ranges, files, target), read_footer, stop)

    def _write_files(
        self, plan: Plan, write: _Write, read_footer: Callable[[str], pq.FileMetaData], stop: threading.Event
    ) -> Sequence[TaskReport]:
        folder = write.folder
        folder.announce()
        result, reports = self._written(plan, write, stop)
        if result.refused and not any(report.failure is not None for report in reports):
            # Quarantined rows of the first tasks have no report: they are deleted like those of any lost attempt.
            folder.remove()
            again, reports = self._written(plan, replace(write, sets_aside=True, name=uuid.uuid4().hex), stop)
            result = replace(again, is_closed=again.is_closed and result.is_closed)
        if any(report.failure is not None for report in reports):
            return reports
        written = folder.report(self.query.analysis.schema, write.writer.partition_by, read_footer)
        accepted = sum(count.accepted for count in merge_counts(reports))
        dropped = 0 if result.kept is None else accepted - result.kept
        detail: dict[str, Json] = {FOLDER_DETAIL: folder.path, CLOSED_DETAIL: result.is_closed}
        return [*reports, TaskReport(reports={write.target: replace(written, dropped=dropped, detail=detail)})]

    def _written(self, plan: Plan, write: _Write, stop: threading.Event) -> tuple[_Result, list[TaskReport]]:
        tasks = len(write.ranges)
        result = self._on_spark(plan, partial(_run, write), tasks, stop)
        reports = reports_of(plan, result.reports, write.name, tasks)
        if write.sets_aside and not any(report.failure is not None for report in reports):
            reports += reports_of(plan, result.reports, write.aside, tasks)
        return result, reports

    def _on_spark(self, plan: Plan, run: Callable[[], TResult], tasks: int, stop: threading.Event) -> TResult:
        assert isinstance(self.runner, SessionRunner)
        try:
            (result,) = self.runner.with_session(lambda _: [run()], tasks, stop)
        except SparkJobError as error:
            wrong_value = failed_row(plan, error)
            if wrong_value is None:
                raise
            raise wrong_value from error
        return result


@dataclass(frozen=True)
class _Write:
    """One write of an epoch.

    Attributes:
        query: the job's query.
        template: a decode task without its ranges.
        ranges: the ranges of each task.
        writer: writer of the table's files.
        target: name of the table.
        sets_aside: whether rows that no folder of the table can hold are quarantined; otherwise they are counted.
        name: identifies the write's reports.
    """

    query: SparkQuery
    template: TaskSpec
    ranges: Sequence[tuple[OffsetRange, ...]]
    writer: ParquetPartitionWriter
    target: str
    sets_aside: bool = False
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def folder(self) -> SparkFolder:
        """The folder that Spark writes into."""
        return SparkFolder(self.writer.markers, self.writer.instant)

    @property
    def aside(self) -> str:
        """Name of the reports of `SetAside`."""
        return f"{self.name}-aside"


def _run(write: _Write) -> _Result:
    """Run the query over the decoded rows, and have Spark write its files; on the thread that speaks to Spark."""
    query, writer, url = write.query, write.writer, write.folder.url
    query.reports.value = []
    decode = DecodeTask(write.template, write.ranges, query.analysis.columns, write.name, query.reports)
    frame = result_of(query, decode)
    rules = FolderRules.of(query.analysis.schema, writer)
    refuses = None if write.sets_aside else rules.refuses()
    counted = {}
    if query.analysis.leaves_out:
        counted[_KEPT] = F.count(F.lit(1))
    if refuses is not None:
        counted[_REFUSED] = F.count_if(refuses)
    observation = Observation() if counted else None
    if observation is not None:
        frame = frame.observe(observation, *(column.alias(name) for name, column in counted.items()))
    if refuses is not None:
        frame = frame.where(~refuses)
    if write.sets_aside:
        outputs, epoch = write.template.outputs, write.template.epoch
        aside = SetAside(rules, query.analysis.schema, outputs, write.target, epoch, write.aside, query.reports)
        frame = frame.mapInArrow(aside, spark_schema(query.analysis.schema))
    frame = frame.select("*", *added_columns(query.analysis.schema, writer.partition_by))
    options = _COMMITTER_OPTIONS | (_LOCAL_OPTIONS if url.startswith("file:") else {})
    (
        frame.write.mode("append")
        .format("parquet")
        .options(compression=writer.settings.compression, **options)
        .partitionBy(*(by.column for by in writer.partition_by))
        .save(url)
    )
    counts = {} if observation is None else observed(observation)
    return _Result(query.reports.value, counts.get(_KEPT), counts.get(_REFUSED, 0), _is_closed(query.session))


def _is_closed(session: SparkSession) -> bool:
    """Whether each task of the job that has just ended had one attempt, and it ended: otherwise one may still run."""
    context = session.sparkContext
    tracker = context.statusTracker()
    stages = [
        tracker.getStageInfo(stage)
        for job in tracker.getJobIdsForGroup(context.getLocalProperty("spark.jobGroup.id"))
        if (info := tracker.getJobInfo(job)) is not None
        for stage in info.stageIds
    ]
    return bool(stages) and all(
        stage is not None
        and stage.numCompletedTasks == stage.numTasks
        and stage.numActiveTasks == stage.numFailedTasks == stage.currentAttemptId == 0
        for stage in stages
    )
