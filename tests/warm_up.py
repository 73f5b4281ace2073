"""Fetches and builds ahead what tests would otherwise wait for in the middle: Delta's jars, and real servers.

``python -m tests.warm_up`` does it side by side and says what it could not do; the test that needs it
then fails or is skipped by name.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

from tests.real import s3_server
from tests.spark.conftest import DELTA_PACKAGE


def fetch_jars() -> str | None:
    """Let Ivy put the jars into its cache; what went wrong, or None."""
    program = "import sys; from tests.warm_up import resolve_jars; resolve_jars()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return f"Delta's jars ({DELTA_PACKAGE}) were not fetched:\n{done.stderr[-2000:]}" if done.returncode else None


def resolve_jars() -> None:
    """Start Spark with the jars and stop it again: the resolver runs inside of spark-submit."""
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder.config("spark.jars.packages", DELTA_PACKAGE).getOrCreate().stop()


def build_servers() -> str | None:
    """Build the servers; what went wrong, or None."""
    try:
        s3_server.build()
    except (s3_server.MissingToolchainError, subprocess.CalledProcessError, OSError) as error:
        return f"the S3 server was not built: {error}"
    return None


def main() -> None:
    """Do both; a problem is a message, not a failure."""
    tasks = (fetch_jars, build_servers)
    with ThreadPoolExecutor(len(tasks)) as pool:
        for problem in pool.map(lambda task: task(), tasks):
            if problem is not None:
                print(problem, file=sys.stderr)


if __name__ == "__main__":
    main()
