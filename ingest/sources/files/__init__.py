"""The `files` source: append-only files on any fsspec store, as JSON lines, CSV, text by a pattern, or Parquet."""

from ingest.sources.files.options import CsvOptions, FileFormat, FilesOptions, UnknownField
from ingest.sources.files.source import FilesSource

__all__ = ["CsvOptions", "FileFormat", "FilesOptions", "FilesSource", "UnknownField"]
