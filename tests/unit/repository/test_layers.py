from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = ("timeline", "sinks", "ingest", "tideline")
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
)

# Runs in a fresh interpreter: imports the modules named on the command line, asserts that the imports have no side
# effects, and prints the loaded packages. Threads and sockets of libraries count: a command that only prints a timeline
# pays for them too.
_WATCH = """
import importlib, os, sys, threading
opened = []
def watch(event, arguments):
    if event in ("socket.connect", "subprocess.Popen", "os.mkdir", "os.remove", "os.rename"):
        opened.append((event, str(arguments)[:200]))
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        opened.append((event, str(arguments)[:200]))
sys.dont_write_bytecode = True
environment = dict(os.environ)
sys.addaudithook(watch)
for name in sys.argv[1:]:
    importlib.import_module(name)
assert not opened, opened
assert dict(os.environ) == environment
assert threading.active_count() == 1, threading.enumerate()
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


ON_DEMAND = ("timeline.stores.s3", "timeline.history.arrow", "timeline.hudi.lsm")
"""Modules of the timeline that are imported only when they are used."""


def loaded_by(*modules: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", _WATCH, *modules], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_imports_point_down_and_engines_stay_where_they_belong() -> None:
    # In a process of its own, because the linter disables all loggers.
    program = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    done = subprocess.run(program, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_importing_every_module_does_nothing_else() -> None:
    loaded_by(*MODULES)


def test_command_line_starts_without_what_only_some_commands_need() -> None:
    heavy = {"pandas", "matplotlib", "pyspark", "grpc", "s3fs", "confluent_kafka", "prometheus_client"}
    assert not heavy & {name.partition(".")[0] for name in loaded_by("ingest.cli.main")}


def test_timeline_loads_no_engine() -> None:
    modules = [module for module in MODULES if module.startswith("timeline") and module not in ON_DEMAND]
    assert not loaded_by(*modules) & {"pyspark", "deltalake", "pyarrow", "s3fs", "boto3", "botocore"}


def test_sinks_and_recovery_load_no_spark() -> None:
    modules = [module for module in MODULES if module.startswith(("timeline", "sinks"))]
    assert "pyspark" not in loaded_by(*modules, "ingest.config.load", "ingest.protocol.recovery")
