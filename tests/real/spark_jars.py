"""Jars that a Spark session of the tests needs beside PySpark's own, fetched by Maven into the user's cache.

``python -m tests.real.spark_jars`` fetches them ahead of the tests.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.real.toolchain import Artifact, MissingToolchainError, fetch_jars

VERSION = "4.1.3"
# Spark's own jars have all other dependencies of the source; the token provider is not published for 4.1.
_KAFKA_SOURCE = (
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.1"),
    Artifact("org.apache.commons", "commons-pool2", "2.12.1"),
)


def spark_kafka_jars() -> list[Path]:
    """The jars of Spark's own Kafka source, for ``spark.jars``.

    Raises:
        MissingToolchainError: there is no Maven.
    """
    folder = fetch_jars(f"spark-kafka-{VERSION}", _KAFKA_SOURCE, with_dependencies=False)
    return sorted(folder.glob("*.jar"))


if __name__ == "__main__":
    try:
        print(*spark_kafka_jars(), sep="\n")
    except MissingToolchainError as missing:
        sys.exit(str(missing))
