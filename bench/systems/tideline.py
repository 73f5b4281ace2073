"""Ours: the loop of ``tideline run --once``, repeated on one session.

For the price of the guarantee, also the same tasks without the protocol: no timeline, no decision, no commit to a
target.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from deltalake import DeltaTable
from pyarrow.dataset import dataset

from bench.serve import Work, serve
from bench.tuning import EVERYONE, settings
from ingest.config.load import load_config
from ingest.config.models import JobConfig, SparkConfig
from ingest.driver.build import build_job, create_timeline, open_source, open_timeline
from ingest.driver.epoch import Pipeline, raise_failure
from ingest.driver.loop import IngestLoop
from ingest.driver.summary import Mode
from ingest.execution.runner import Runner, open_runner
from ingest.execution.spark.runner import SparkRunner
from ingest.execution.task import Outputs, TaskReport, TaskSpec
from sinks.delta.location import delta_storage_options
from sinks.delta.table import table_files
from timeline.epoch import EpochRef, Plan, Position
from timeline.stores.opening import open_store

_SPARK = settings(EVERYONE)

_PUT_BYTES = 400
"""Approximate size of the small objects of an epoch: plan, empty inflight, manifest, decision, completed body."""


class KeptRunner(SparkRunner):
    """A runner whose session outlives the loop that uses it.

    Attributes:
        ran_s: seconds in which tasks have run.
    """

    ran_s = 0.0

    def run(self, specs: Sequence[TaskSpec], stop: threading.Event) -> Sequence[TaskReport]:
        """See Runner."""
        began = time.perf_counter()
        try:
            return super().run(specs, stop)
        finally:
            self.ran_s += time.perf_counter() - began

    def close(self) -> None:
        """Keep the session; `end` stops it."""

    def end(self) -> None:
        """Stop the session."""
        super().close()


class Tideline:
    """See `bench.serve.Served`. Rounds use the protocol unless ``is_bare`` is set."""

    def __init__(self, work: Work) -> None:
        """Start nothing yet: the first round that needs a session starts it. A job without a query has another JVM."""
        conf = {"spark.driver.memory": _SPARK["spark.driver.memory"]}
        self._spark = SparkConfig(master=work.get("master", _SPARK["spark.master"]), conf=conf)
        self._runner: KeptRunner | None = None
        self._runs_queries = False
        self._storage: dict[str, Any] = dict(work.get("storage") or {})
        self._scratch = Path(work["scratch"])

    def round(self, work: Work) -> Mapping[str, float]:
        """See Served."""
        config = self._config(work)
        ran_s, cpu_s = self._ran_s, time.process_time()
        epochs = self._bare(config, work) if work.get("is_bare") else self._guarded(config)
        driver_cpu_s = time.process_time() - cpu_s
        return {"epochs": epochs, "tasks_s": self._ran_s - ran_s, "driver_cpu_s": driver_cpu_s}

    @property
    def _ran_s(self) -> float:
        return self._runner.ran_s if self._runner is not None else 0.0

    def count(self, work: Work) -> int:
        """See Served. Reads the footers of the files that the table names; of all files where there is no table."""
        target = f"{work['target']}/table"
        options = delta_storage_options(target, self._storage)
        if work.get("is_bare"):
            return int(dataset("", filesystem=table_files(target, options, None), format="parquet").count_rows())
        return int(DeltaTable(target, storage_options=options).to_pyarrow_dataset().count_rows())

    def close(self) -> None:
        """See Served."""
        if self._runner is not None:
            self._runner.end()

    def _guarded(self, config: JobConfig) -> int:
        loop = IngestLoop(
            open_timeline(config),
            lambda: self._open_runner(config),
            mode=Mode.ONCE,
            stop=threading.Event(),
        )
        return loop.run().epochs

    def _bare(self, config: JobConfig, work: Work) -> int:
        """Run the same tasks, with the small puts an epoch that the work asks for; returns the number of epochs."""
        opened = open_timeline(config)
        source = open_source(config)
        positions: dict[str, Position] = {}
        job, pipeline, epoch = None, None, 0
        scratch = open_store(f"{work['target']}/puts", self._storage)
        while (planned := source.plan(positions)).ranges:
            if job is None or pipeline is None:
                assert config.arrow_schema is not None
                job = build_job(create_timeline(opened, config.arrow_schema))
                pipeline = Pipeline(source, config.arrow_schema, config.lineage, self._open_runner(config))
            ref = EpochRef(epoch, job.clock.next(), 0)
            targets = tuple(sink.target for sink in job.sinks)
            plan = Plan(ref, job.name, job.by, planned.ranges, targets, job.identity.schema, job.token())
            begun = {sink.target: sink.begin(plan) for sink in job.sinks}
            reports = pipeline.write(plan, Outputs.of(begun, job.quarantine), threading.Event())
            raise_failure(reports)
            for _ in range(int(work.get("puts", 0))):
                scratch.put_if_absent(uuid.uuid4().hex, b" " * _PUT_BYTES)
            positions |= plan.positions
            source.completed(positions)
            epoch += 1
        return epoch

    def _open_runner(self, config: JobConfig) -> Runner:
        return open_runner(config, lambda: self._started(runs_queries=config.transform is not None))

    def _started(self, *, runs_queries: bool) -> Runner:
        """The runner, whose session starts as `tideline run` starts it for a job with or without a query."""
        if self._runner is None:
            self._runner = KeptRunner("bench", self._spark, runs_queries=runs_queries)
            self._runs_queries = runs_queries
        if self._runs_queries != runs_queries:
            raise SystemExit("jobs with and without a query need processes of their own: a process has one JVM")
        return self._runner

    def _config(self, work: Work) -> JobConfig:
        """The job file of a round, read as ``tideline run`` reads it."""
        target = str(work["target"])
        settings: dict[str, Any] = {
            "name": "bench",
            "source": {**work["tideline_source"]},
            "schema": work["columns"],
            "targets": [{"type": "delta", "path": f"{target}/table"}],
            "quarantine": {"path": f"{target}/quarantine"},
            "spark": {"master": self._spark.master, "conf": dict(self._spark.conf)},
        }
        if work.get("small_epochs"):
            settings["spark"]["small_epochs"] = work["small_epochs"]
        if self._storage:
            settings["storage"] = self._storage
        if work.get("partition_by"):
            settings["partition_by"] = work["partition_by"]
        if work.get("transform"):
            settings["transform"] = work["transform"]
        path = self._scratch / f"job-{uuid.uuid4().hex}.yaml"
        path.write_text(yaml.safe_dump(settings))
        try:
            return load_config(path)
        finally:
            path.unlink()


if __name__ == "__main__":
    serve(Tideline)
