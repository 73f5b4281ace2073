from __future__ import annotations

import subprocess
import sys

import tideline


def test_public_names_are_these() -> None:
    assert tideline.__all__ == [
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
    assert all(hasattr(tideline, name) for name in tideline.__all__)


def test_importing_it_loads_no_engine_and_no_plots() -> None:
    program = "import sys, tideline; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyspark", "pandas", "matplotlib", "grpc", "s3fs", "confluent_kafka"} & set(loaded)
