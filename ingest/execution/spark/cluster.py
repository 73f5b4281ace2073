"""A job whose tasks run on other machines: its effective master, and the modules that executors need."""

from __future__ import annotations

import pyarrow as pa

from ingest.config.checks import check_cluster_places
from ingest.config.job_file import dotted
from ingest.config.load import JobConfig
from ingest.config.models import resolved_place
from ingest.config.registry import load_sink
from ingest.execution.spark.package import PACKAGES
from timeline.errors import ConfigError
from timeline.stores.opening import store_package

_SUBMIT_DEFAULT = "local[*]"
"""The master that spark-submit reports where none was given."""

_SOURCE_MODULES = {"kafka": "confluent_kafka"}
_SINK_MODULES = {"tikv": ("grpc", "google.protobuf")}


def with_submitted_master(config: JobConfig, submitted: str | None) -> JobConfig:
    """The job with the master of spark-submit; the job file's master stays where spark-submit has none.

    Args:
        config: the job file.
        submitted: ``spark.master`` as set by spark-submit, if set.

    Raises:
        ConfigError: both name a master, and they differ; or executors would not see the job's files.
    """
    given = config.spark.master if "master" in config.spark.model_fields_set else None
    if submitted in (None, _SUBMIT_DEFAULT, given):
        return config
    if given is not None:
        raise ConfigError(
            f"spark.master is {given!r} in the job file and spark-submit was given {submitted!r}: "
            "leave it out of the job file, or start without spark-submit"
        )
    moved = config.model_copy(update={"spark": config.spark.model_copy(update={"master": submitted})})
    problems = "".join(f"\n  {dotted(path)}: {message}" for path, message in check_cluster_places(moved))
    if problems:
        raise ConfigError(f"the job cannot run on {submitted}, nothing was started{problems}")
    return moved


def needed_modules(config: JobConfig) -> dict[str, str]:
    """Modules that a job's tasks import: module → the required version, "" for any."""
    # Schemas are sent pickled: both ends need the same Arrow.
    needed = {"pyarrow": pa.__version__, "numpy": "", "msgspec": "", "pydantic": "", "fsspec": ""}
    if config.transform is not None:
        needed["pandas"] = ""  # PySpark needs it for rows that are sent as Arrow
    if config.source.type in _SOURCE_MODULES:
        needed[_SOURCE_MODULES[config.source.type]] = ""
    tables = (*config.targets, config.quarantine)
    places = [getattr(config.source, "path", ""), *(options.lake_path or "" for options in tables)]
    if any(resolved_place(place).startswith("s3://") for place in places):
        needed["s3fs"] = ""
    needed |= {package: "" for place in places if (package := store_package(place)) is not None}
    for options in tables:
        needed |= dict.fromkeys(_SINK_MODULES.get(options.type, ()), "")
    sinks = (load_sink(options.type).__module__ for options in tables)
    ours = tuple(f"{package}." for package in PACKAGES)
    return needed | {module.partition(".")[0]: "" for module in sinks if not module.startswith(ours)}
