"""Versions of the peers, in one place; peers are fetched once into the user's cache and never into this environment.

``python -m bench.pins`` fetches all peers ahead of the measurements.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.real.spark_jars import spark_kafka_jars
from tests.real.toolchain import Artifact, MissingToolchainError, fetch_jars, find_tool, kept

SPARK = "4.1.3"
DELTA = "4.4.0"
ICEBERG = "1.12.0"
HUDI = "1.2.0"
HUDI_SPARK = "3.5.8"
"""The newest Spark with a bundle of Hudi in the Maven repository; in an environment of its own."""

HADOOP = "3.4.2"
AWS_SDK = "2.29.52"
HUDI_HADOOP = "3.3.4"
"""Hadoop of Hudi's Spark; its S3A calls version 1 of the AWS SDK."""

HUDI_AWS_SDK = "1.12.262"

_DELTA = (
    Artifact("io.delta", "delta-spark_4.1_2.13", DELTA),
    Artifact("io.delta", "delta-storage", DELTA),
    Artifact("io.delta", "delta-kernel-api", DELTA),
    Artifact("io.delta", "delta-kernel-defaults", DELTA),
    Artifact("io.delta", "delta-kernel-unitycatalog", DELTA),
    Artifact("io.unitycatalog", "unitycatalog-client", "0.6.0"),
    Artifact("io.unitycatalog", "unitycatalog-hadoop", "0.6.0"),
)
_ICEBERG = (Artifact("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", ICEBERG),)
_HUDI = (Artifact("org.apache.hudi", "hudi-spark3.5-bundle_2.12", HUDI),)
# hadoop-aws depends on a bundle of the whole SDK, 600 MB; it calls these modules only.
_S3A = (
    Artifact("org.apache.hadoop", "hadoop-aws", HADOOP),
    # Puts Spark's checkpoint files; not published for 4.1.3.
    Artifact("org.apache.spark", "spark-hadoop-cloud_2.13", "4.1.2"),
)
_AWS_SDK = tuple(
    Artifact("software.amazon.awssdk", name, AWS_SDK)
    for name in ("s3", "s3-transfer-manager", "sts", "kms", "apache-client", "netty-nio-client")
)

_HUDI_S3A = (
    Artifact("org.apache.hadoop", "hadoop-aws", HUDI_HADOOP),
    Artifact("org.apache.spark", "spark-hadoop-cloud_2.12", HUDI_SPARK),
)
# Spark's Kafka source is not published for 3.5.8.
_HUDI_KAFKA = (
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.12", "3.5.7"),
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.12", "3.5.7"),
    Artifact("org.apache.kafka", "kafka-clients", "3.4.1"),
    Artifact("org.apache.commons", "commons-pool2", "2.11.1"),
)
_HUDI_AWS_SDK = tuple(
    Artifact("com.amazonaws", f"aws-java-sdk-{name}", HUDI_AWS_SDK) for name in ("s3", "sts", "dynamodb")
)


def delta_jars() -> list[Path]:
    """Delta for Spark 4.1; its other dependencies are among Spark's own jars."""
    return _jars(f"delta-{DELTA}", _DELTA)


def iceberg_jars() -> list[Path]:
    """Iceberg for Spark 4.1: one jar."""
    return _jars(f"iceberg-{ICEBERG}", _ICEBERG)


def hudi_jars() -> list[Path]:
    """Hudi for Spark 3.5: one jar."""
    return _jars(f"hudi-{HUDI}", _HUDI)


def s3_jars() -> list[Path]:
    """S3A for Spark 4.1, by which peers reach S3."""
    sdk = fetch_jars(f"aws-sdk-{AWS_SDK}", _AWS_SDK, with_dependencies=True)
    return [*_jars(f"hadoop-aws-{HADOOP}", _S3A), *sorted(sdk.glob("*.jar"))]


def hudi_s3_jars() -> list[Path]:
    """S3A for Spark 3.5, by which Hudi reaches S3."""
    sdk = fetch_jars(f"aws-sdk-{HUDI_AWS_SDK}", _HUDI_AWS_SDK, with_dependencies=True)
    return [*_jars(f"hadoop-aws-{HUDI_HADOOP}", _HUDI_S3A), *sorted(sdk.glob("*.jar"))]


def kafka_jars() -> list[Path]:
    """Spark's own Kafka source."""
    return spark_kafka_jars()


def hudi_kafka_jars() -> list[Path]:
    """Spark's own Kafka source for Spark 3.5."""
    return _jars(f"spark-kafka-{HUDI_SPARK}", _HUDI_KAFKA)


def hudi_python() -> Path:
    """The interpreter of an environment with Hudi's Spark and nothing else.

    Raises:
        MissingToolchainError: there is no uv.
        CalledProcessError: the packages were not found.
    """
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    uv = uv or find_tool("uv", "Hudi's environment", "pip install uv")

    def make(folder: Path) -> None:
        for command in (
            ["venv", "--quiet", "--relocatable", "--python", "3.11", str(folder / "venv")],
            ["pip", "install", "--quiet", "--python", str(folder / "venv/bin/python"), f"pyspark=={HUDI_SPARK}"],
        ):
            subprocess.run([uv, *command], check=True, stdin=subprocess.DEVNULL)

    return kept(f"pyspark-{HUDI_SPARK}", f"pyspark=={HUDI_SPARK} python 3.11", make) / "venv/bin/python"


def _jars(name: str, artifacts: tuple[Artifact, ...]) -> list[Path]:
    return sorted(fetch_jars(name, artifacts, with_dependencies=False).glob("*.jar"))


def main() -> None:
    """Fetch all peers, and print which ones are missing."""
    for fetch in (delta_jars, iceberg_jars, kafka_jars, s3_jars, hudi_jars, hudi_kafka_jars, hudi_s3_jars, hudi_python):
        try:
            fetch()
            print(f"{fetch.__name__}: there", file=sys.stderr)
        except (MissingToolchainError, subprocess.CalledProcessError, OSError) as error:
            print(f"{fetch.__name__}: not there: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
