"""Spark session of every peer: the same cores, memory and codec as ours."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyspark.sql import SparkSession

from bench.serve import Work
from bench.tuning import EVERYONE, S3A, settings


def start_spark(work: Work, own: Mapping[str, str]) -> SparkSession:
    """Start a session.

    Args:
        work: ``jars``: paths; ``s3``: endpoint, key and secret, where targets lie on S3; ``scratch``: a folder.
        own: settings of the system itself.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("bench")
    everyone = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{work['scratch']}/warehouse",
        # Progress of a streaming query is kept for 100 batches by default; a round has 200.
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    if work.get("jars"):
        everyone["spark.jars"] = ",".join(work["jars"])
    if work.get("s3"):
        everyone |= s3a(work["s3"])
    for key, value in (everyone | settings(EVERYONE) | dict(own)).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def s3a(server: Mapping[str, str]) -> dict[str, str]:
    """S3A's settings for a server on loopback."""
    return {
        "spark.hadoop.fs.s3a.endpoint": server["endpoint"],
        "spark.hadoop.fs.s3a.endpoint.region": server["region"],
        "spark.hadoop.fs.s3a.access.key": server["key"],
        "spark.hadoop.fs.s3a.secret.key": server["secret"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    } | settings(S3A)


def target_folder(work: Work) -> str:
    """Target of a round, as a path or URL for Hadoop."""
    return str(work["target"]).replace("s3://", "s3a://", 1)
