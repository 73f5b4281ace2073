"""Timelines as tables in Spark: ``spark.dataSource.register(TidelineSource)``, then the format ``tideline``."""

from ingest.execution.spark.data_source import TidelineSource

__all__ = ["TidelineSource"]
