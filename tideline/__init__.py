"""Tideline from Python: run and recover jobs, build them in code, read timelines.

::

    import tideline

    job = tideline.Job(
        name="web",
        source=tideline.files("logs/*.jsonl", format="json"),
        targets=[tideline.delta("lake/web")],
    )
    tideline.run(job)                                  # or tideline.run("job.yaml")
    tideline.Timeline.load("lake/web").to_pandas("epochs")

All other packages are internal. Importing this one starts nothing and loads no Spark.
"""

from ingest.config.load import JobConfig
from tideline.blocks import JobSource, JobTarget, delta, files, kafka, target, tikv
from tideline.job import Job
from tideline.notebook import load_ipython_extension
from tideline.runs import RecoveryResult, RunResult, recover, run
from tideline.streams import starting_offsets, stream
from timeline import errors
from timeline.errors import TidelineError
from timeline.history.timeline import Timeline
from timeline.instant import Action

__all__ = [
    "Action",
    "Job",
    "JobConfig",
    "JobSource",
    "JobTarget",
    "RecoveryResult",
    "RunResult",
    "TidelineError",
    "Timeline",
    "delta",
    "errors",
    "files",
    "kafka",
    "load_ipython_extension",
    "recover",
    "run",
    "starting_offsets",
    "stream",
    "target",
    "tikv",
]
