"""Ingestion of each micro-batch of a running query."""

from __future__ import annotations

import logging
import threading

import pyarrow as pa
from pyspark.sql import DataFrame

from ingest.driver.epoch import NextEpoch, run_epoch
from ingest.execution.spark.rows import SHARD, BatchRows, make_rows
from ingest.protocol.job import JobContext
from ingest.stream.checkpoint import CheckpointFiles, read_batch
from ingest.stream.judge import BatchVerdict, judge
from ingest.stream.offsets import Batch, StreamPosition
from timeline.chain import Chain, write_snapshot
from timeline.epoch import Json, OffsetRange
from timeline.errors import SourceChangedError, TidelineError
from timeline.lease import WriterLease
from timeline.units import count

log = logging.getLogger(__name__)


class BatchIngest:
    """Puts each micro-batch on the timeline as one epoch; given to Spark's ``foreachBatch``."""

    def __init__(
        self, job: JobContext, lease: WriterLease, chain: Chain, files: CheckpointFiles, schema: pa.Schema
    ) -> None:
        """Continue a timeline as its writer.

        Args:
            job: timeline and targets, recovered.
            lease: this process's lease.
            chain: the timeline's committed state.
            files: the query's checkpoint.
            schema: the job's columns.
        """
        self._job = job
        self._lease = lease
        self._chain = chain
        self._files = files
        self._schema = schema
        self._applied_through = -1
        self.stop = threading.Event()
        self.failure: TidelineError | None = None

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Ingest a micro-batch unless it is committed already; on return the batch is committed.

        Args:
            batch: its rows.
            number: Spark's batch id, under which the checkpoint has the batch's offsets.

        Raises:
            SourceChangedError: the batch does not continue the committed position; nothing was written.
            TidelineError: see `run_epoch`. It is kept as `failure`: Spark passes on only its text.
        """
        try:
            self._ingest(batch, read_batch(self._files, number))
        except TidelineError as error:
            self.failure = error
            raise

    def _ingest(self, rows: DataFrame, batch: Batch) -> None:
        self._lease.check()
        committed = committed_position(self._chain)
        judgement = judge(committed, batch)
        log.info("batch %d: %s: %s", batch.number, judgement.verdict.value, judgement.reason)
        match judgement.verdict:
            case BatchVerdict.INGEST:
                self._run_epoch(rows, batch, committed)
            case BatchVerdict.SKIP:
                if batch.end.is_stateful:
                    make_rows(rows, self.stop)
            case BatchVerdict.REFUSE:
                raise SourceChangedError(self._refusal(batch, committed, judgement.reason))

    def _run_epoch(self, rows: DataFrame, batch: Batch, committed: StreamPosition | None) -> None:
        done = self._chain.positions[SHARD].offset if SHARD in self._chain.positions else 0
        after = batch.end.after(committed).detail()
        offsets = OffsetRange(SHARD, done, done + 1, _from_until(batch), after)
        result = run_epoch(
            self._job,
            BatchRows(rows, self._schema),
            NextEpoch(self._chain, (offsets,), self._applied_through),
            self._lease,
            stop=self.stop,
        )
        self._applied_through = self._chain.next_epoch
        self._chain = self._chain.advanced(result.decision)
        write_snapshot(self._job.store, self._chain, self._job.retry)
        log.info("epoch %d: batch %d, %s", result.decision.epoch, batch.number, count(result.decision.rows, "row"))

    def _refusal(self, batch: Batch, committed: StreamPosition | None, reason: str) -> str:
        begin = (
            'with .option("startingOffsets", starting_offsets(conf)) on its readStream'
            if committed is not None and committed.logs is not None and batch.end.logs is not None
            else "with the checkpoint that belongs to this timeline, or into another timeline and table"
        )
        return (
            f"batch {batch.number} of checkpoint {self._files.root} does not continue timeline {self._job.store.url}: "
            f"{reason}. Nothing of it was written. Delete that checkpoint and start the query again {begin}"
        )


def committed_position(chain: Chain) -> StreamPosition | None:
    """Committed position of a stream's timeline; None before its first epoch."""
    position = chain.positions.get(SHARD)
    return None if position is None else StreamPosition.of(position.detail)


def _from_until(batch: Batch) -> dict[str, Json]:
    sources: list[Json] = [
        {"from": start, "until": until} for start, until in zip(batch.start.sources, batch.end.sources, strict=True)
    ]
    return {"query": batch.end.query, "batch": batch.number, "sources": sources}
