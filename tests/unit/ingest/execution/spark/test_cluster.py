"""Problems of a job on a cluster are reported before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from ingest.config.load import JobConfig, load_config
from ingest.execution.spark.cluster import needed_modules, with_submitted_master
from ingest.execution.spark.executors import Python, check_environment, complaint
from timeline.errors import ConfigError

CLUSTER = "spark://host:7077"
ON_S3: dict[str, Any] = {"source": "s3://bucket/logs", "target": "s3://bucket/table"}


def load(
    folder: Path, source: str = "logs", target: str = "lake", spark: dict[str, Any] | None = None, **more: Any
) -> JobConfig:
    job = {
        "name": "job",
        "source": {"type": "files", "path": source, "format": "json"},
        "schema": {"id": "bigint"},
        "targets": [{"type": "delta", "path": target}],
        "spark": spark or {},
    }
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(job | more))
    return load_config(file, {})


def test_local_places_are_refused_on_a_cluster_each_by_its_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, spark={"master": CLUSTER})
    for key in ("source.path", "targets[0].path", "quarantine.path", "timeline.path"):
        assert key in str(refused.value)
    assert CLUSTER in str(refused.value) and "spark.shared_folders" in str(refused.value)


@pytest.mark.parametrize("master", ["local[2]", "local[2,4]", "local[*]"])
def test_local_places_are_right_where_tasks_are_local(tmp_path: Path, master: str) -> None:
    assert not load(tmp_path, spark={"master": master}).spark.is_cluster


@pytest.mark.parametrize("master", [CLUSTER, "yarn", "k8s://https://host:6443"])
def test_object_stores_and_shared_folders_are_right_on_a_cluster(tmp_path: Path, master: str) -> None:
    assert load(tmp_path, **ON_S3, spark={"master": master}).spark.is_cluster
    shared = {"master": master, "shared_folders": ["/mnt/lake"]}
    load(tmp_path, "/mnt/lake/logs/*.jsonl", "/mnt/lake/table", spark=shared)
    with pytest.raises(ConfigError, match=r"targets\[0\]\.path"):
        load(tmp_path, "/mnt/lake/logs", "/mnt/lakes/table", spark=shared)


def test_one_local_place_is_enough_to_be_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"1 problem.*\n.*timeline\.path"):
        load(tmp_path, **ON_S3, spark={"master": CLUSTER}, timeline={"path": "timeline"})


def test_spark_submit_says_the_master_where_the_job_file_does_not(tmp_path: Path) -> None:
    config = with_submitted_master(load(tmp_path, **ON_S3), CLUSTER)
    assert config.spark.master == CLUSTER and config.spark.is_cluster


@pytest.mark.parametrize("submitted", ["local[*]", CLUSTER, None])
def test_master_of_the_job_file_counts_where_spark_submit_was_given_none_or_the_same(
    tmp_path: Path, submitted: str | None
) -> None:
    config = load(tmp_path, **ON_S3, spark={"master": CLUSTER})
    assert with_submitted_master(config, submitted) == config


def test_two_masters_that_differ_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'local\[4\]' in the job file and spark-submit was given 'yarn'"):
        with_submitted_master(load(tmp_path, **ON_S3, spark={"master": "local[4]"}), "yarn")


def test_local_places_are_refused_on_a_submitted_cluster(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"(?s)cannot run on yarn, nothing was started.*source\.path.*timeline\.path"):
        with_submitted_master(load(tmp_path), "yarn")


def test_executors_need_s3fs_only_where_something_is_on_s3(tmp_path: Path) -> None:
    assert "s3fs" not in needed_modules(load(tmp_path))
    needed = needed_modules(load(tmp_path, target="s3://bucket/table"))
    assert "s3fs" in needed and needed["pyarrow"] == pa.__version__


def test_complaint_names_machine_program_package_and_both_versions() -> None:
    needed = {"pyarrow": "0.1", "no_such_package": "", "json": ""}
    python = check_environment(needed)
    assert len(python.problems) == 2
    found = complaint([python, python, Python("other", "/bin/python", ())], needed)
    assert found is not None
    assert found.count(python.host) == 1 and python.executable in found and "other" not in found
    assert f"pyarrow is {pa.__version__}, the driver has 0.1" in found
    assert "no_such_package cannot be imported (No module named 'no_such_package')" in found


def test_executors_with_everything_are_not_complained_about() -> None:
    needed = {"pyarrow": pa.__version__, "json": ""}
    assert complaint([check_environment(needed)], needed) is None
