"""The `files` source: append-only files on any store, as JSON lines, CSV, text by a pattern, or Parquet."""
