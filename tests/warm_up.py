"""Fetches and builds the resources of tests ahead of the run: Delta's jars, a browser, real servers.

``python -m tests.warm_up`` works in parallel and reports failures; a test that needs a missing resource then fails or
is skipped by name.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

from tests import class_archive
from tests.real import browser, kafka_server, s3_server, tikv_cluster
from tests.real.spark_jars import spark_kafka_jars
from tests.real.toolchain import MissingToolchainError
from tests.spark.conftest import DELTA_PACKAGE


def fetch_jars() -> str | None:
    """Let Ivy put the jars into its cache; returns the error, or None."""
    program = "import sys; from tests.warm_up import resolve_jars; resolve_jars()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return f"Delta's jars ({DELTA_PACKAGE}) were not fetched:\n{done.stderr[-2000:]}" if done.returncode else None


def resolve_jars() -> None:
    """Start Spark with the jars and stop it again: the resolver runs inside of spark-submit."""
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder.config("spark.jars.packages", DELTA_PACKAGE).getOrCreate().stop()


def make(what: str, how: Callable[[], object]) -> str | None:
    """Fetch or build one resource; returns the error, or None."""
    try:
        how()
    except (MissingToolchainError, subprocess.CalledProcessError, OSError) as error:
        return f"{what} not there yet: {error}"
    return None


def main() -> None:
    """Fetch and build all resources; an error is a message, not a failure."""
    tasks: list[Callable[[], str | None]] = [
        fetch_jars,
        lambda: make("the S3 server is", s3_server.build),
        lambda: make("Kafka's jars are", kafka_server.jars),
        lambda: make("the archive of Spark's classes is", class_archive.make),
        lambda: make("the browser is", browser.ensure),
        lambda: make("the TiKV cluster is", tikv_cluster.build),
        lambda: make("the jars of Spark's Kafka source are", spark_kafka_jars),
    ]
    with ThreadPoolExecutor(len(tasks)) as pool:
        for problem in pool.map(lambda task: task(), tasks):
            if problem is not None:
                print(problem, file=sys.stderr)


if __name__ == "__main__":
    main()
