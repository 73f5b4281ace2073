"""Class data sharing for the JVMs of the tests: Spark's start takes half the time with its classes in an archive.

The archive lies in the virtual environment and is good for its jars and this Java only; without it tests are slow,
not wrong. ``python -m tests.warm_up`` makes it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pyspark

from tests.real.toolchain import MissingToolchainError, find_java

# Tests start many JVMs that live for seconds: a quick start counts, the second compiler never pays.
_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"


def make() -> None:
    """Run a small job whose JVM writes its loaded classes to the archive.

    Raises:
        MissingToolchainError: there is no Java.
        subprocess.CalledProcessError: Java or Spark does not start.
    """
    archive = _path()
    if archive.is_file():
        return
    making = archive.with_suffix(f".{os.getpid()}")
    program = "from tests.class_archive import load_classes; load_classes()"
    environment = os.environ | {
        "SPARK_SUBMIT_OPTS": f"{_OPTIONS} -XX:ArchiveClassesAtExit={making}",
        "PYSPARK_PYTHON": sys.executable,
    }
    # The JVM holds the pipes too: once they end, it has ended.
    subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    making.replace(archive)


def load_classes() -> None:
    """Run a job of the parts that tests use: the session, tasks in Python, Arrow, a shuffle."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    rows = spark.range(100).mapInArrow(lambda batches: batches, "id long").repartition(2, "id")
    rows.mapInArrow(lambda batches: batches, "id long").collect()
    spark.createDataFrame(rows.toPandas()).count()
    spark.sparkContext.parallelize(range(4), 2).mapPartitions(list).collect()
    spark.stop()


def use() -> None:
    """Let every JVM that Spark's scripts start from this process, or from one below it, map the archive."""
    os.environ["SPARK_LAUNCHER_OPTS"] = _OPTIONS
    os.environ["SPARK_SUBMIT_OPTS"] = java_options()


@cache
def java_options() -> str:
    """Options for a JVM with only PySpark's jars on its class path."""
    try:
        archive = _path()
    except (MissingToolchainError, OSError, subprocess.CalledProcessError):
        return _OPTIONS
    return f"{_OPTIONS} -XX:SharedArchiveFile={archive}" if archive.is_file() else _OPTIONS


def _path() -> Path:
    """Path of the archive for these jars and this Java, which need not exist."""
    java = subprocess.run([find_java("Spark"), "-version"], capture_output=True, check=True).stderr
    jars = sorted((Path(pyspark.__path__[0]) / "jars").glob("*.jar"))
    facts = [f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars]
    digest = hashlib.sha256(java + "\n".join(facts).encode()).hexdigest()
    return Path(sys.prefix) / f"spark-{digest[:16]}.jsa"
