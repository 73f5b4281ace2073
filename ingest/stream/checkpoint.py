"""Reads a micro-batch's positions from a query's checkpoint, on any file system that Spark can use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ingest.execution.spark.failure import cause_of
from ingest.stream.offsets import (
    Batch,
    OffsetLogEntry,
    StreamPosition,
    log_offsets,
    parse_beginning,
    parse_entry,
    parse_query_id,
)
from timeline.epoch import Json
from timeline.errors import SourceError


class CheckpointFiles(Protocol):
    """The files of one checkpoint."""

    @property
    def root(self) -> str:
        """The checkpoint's location, for messages."""

    def read(self, path: str) -> str | None:
        """A file's text; None where there is no such file.

        Args:
            path: below the checkpoint's root.
        """

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""


class HadoopFiles:
    """A checkpoint's files on any file system that Spark is configured for. See CheckpointFiles."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """Read nothing yet.

        Args:
            spark: the query's session.
            root: the query's ``checkpointLocation``.

        Raises:
            SourceError: Spark has no such file system.
        """
        self._path = getattr(spark._jvm, "org.apache.hadoop.fs.Path")
        self._root = root
        with self._foreign_errors(root):
            self._system = self._path(root).getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    @property
    def root(self) -> str:
        """See CheckpointFiles."""
        return self._root

    def read(self, path: str) -> str | None:
        """See CheckpointFiles.

        Raises:
            SourceError: the file exists and cannot be read.
        """
        if not self.exists(path):
            return None
        with self._foreign_errors(f"{self._root}/{path}"):
            file = self._system.open(self._path(self._root, path))
            try:
                return bytes(file.readAllBytes()).decode()
            finally:
                file.close()

    def exists(self, path: str) -> bool:
        """See CheckpointFiles.

        Raises:
            SourceError: the file system does not answer.
        """
        with self._foreign_errors(f"{self._root}/{path}"):
            return bool(self._system.exists(self._path(self._root, path)))

    @contextlib.contextmanager
    def _foreign_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except (Py4JJavaError, UnicodeDecodeError) as error:
            raise SourceError(
                f"{path} cannot be read: {cause_of(str(error))}. Can Spark reach the checkpoint?"
            ) from error


def read_batch(files: CheckpointFiles, number: int) -> Batch:
    """A batch that Spark has planned, with its start and end position.

    Spark logs a batch's offsets before it runs the batch, and writes a query's state before it runs the first one:
    the files read here do not change while the batch runs.

    Raises:
        FormatError: the checkpoint is not of Spark 4.1.
        SourceError: the checkpoint cannot be read, or lacks a file that a running query has.
    """
    query = parse_query_id(f"{files.root}/metadata", _must_read(files, "metadata"))
    is_stateful = files.exists("state")
    end = _entry(files, number)
    before = _entry(files, number - 1) if number else None
    known = before.sources if before else (None,) * len(end.sources)
    start = tuple(
        _beginning(files, source) if at is None and log_offsets(end.sources[source]) is not None else at
        for source, at in enumerate(known)
    )
    return Batch(
        number,
        StreamPosition(query, before.planned_ms if before else None, start, is_stateful),
        StreamPosition(query, end.planned_ms, end.sources, is_stateful),
    )


def _beginning(files: CheckpointFiles, source: int) -> Json:
    text = files.read(f"sources/{source}/0")
    return None if text is None else parse_beginning(text)


def _entry(files: CheckpointFiles, number: int) -> OffsetLogEntry:
    path = f"offsets/{number}"
    return parse_entry(f"{files.root}/{path}", _must_read(files, path))


def _must_read(files: CheckpointFiles, path: str) -> str:
    text = files.read(path)
    if text is None:
        raise SourceError(
            f"{files.root}/{path} is not there, though the query runs: was something of its checkpoint deleted, or is "
            "asynchronous progress tracking on? Epochs are keyed by what it says; turn that off, or put the file back"
        )
    return text
