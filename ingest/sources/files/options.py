"""Job file options of a `files` source: its path, the limits of an epoch, when a file has settled."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ingest.sources.decode.options import RecordFormat, SourceOptions, YearOf
from ingest.sources.files.names import COMPRESSIONS
from ingest.sources.options import UNLIMITED
from timeline.units import ByteSize, Duration, VisiblePath


class FilesOptions(SourceOptions):
    r"""The ``source`` block of a job file for ``type: files``; json is one object a line.

    Attributes:
        path: a folder (walked), a glob or one file, local or on S3; names with ``.`` or ``_`` first are skipped.
        max_bytes_per_epoch: most bytes of files that one epoch takes.
        max_files_per_epoch: most files that one epoch takes from.
        close_after: seconds a file must be unchanged before its unterminated last line, or a compressed or
            Parquet file as a whole, counts. 0: at once.
        compression: ``auto`` goes by the name's ending (.gz, .zst).
        on_truncate: action when a file was truncated or replaced, and its former content is in no other file of
            `path`, or when it is missing with unread bytes: ``stop`` the job, or ``restart`` with the present content
            and record the hole.
    """

    formats: ClassVar[tuple[RecordFormat, ...]] = (
        RecordFormat.JSON,
        RecordFormat.CSV,
        RecordFormat.TEXT,
        RecordFormat.PARQUET,
    )

    year_words: ClassVar[tuple[YearOf, ...]] = (YearOf.FILE,)

    type: Literal["files"] = "files"
    path: VisiblePath = Field(min_length=1)
    max_bytes_per_epoch: ByteSize = Field(default=256_000_000, gt=0)
    max_files_per_epoch: int = Field(default=10_000, gt=0)
    close_after: Duration = Field(default=10.0, ge=0)
    compression: Literal["auto", "none", "gzip", "zstd"] = "auto"
    on_truncate: Literal["stop", "restart"] = "stop"

    @model_validator(mode="after")
    def _compresses_once(self) -> Self:
        if self.format is RecordFormat.PARQUET and self.compression not in ("auto", "none"):
            raise ValueError("Parquet files compress inside; leave compression out")
        return self

    @property
    def place(self) -> str:
        """See SourceBlock."""
        return self.path

    def unlimited(self) -> Self:
        """See SourceBlock."""
        return self.model_copy(update={"max_bytes_per_epoch": UNLIMITED, "max_files_per_epoch": UNLIMITED})

    def compression_of(self, path: str) -> str | None:
        """The compression of one file: gzip, zstd or None."""
        if self.format is RecordFormat.PARQUET or self.compression == "none":
            return None
        if self.compression != "auto":
            return self.compression
        return next((kind for ending, kind in COMPRESSIONS.items() if path.endswith(ending)), None)
