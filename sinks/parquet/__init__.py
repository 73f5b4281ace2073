"""Parquet files of a table: writers, statistics, partitions and markers."""
