"""Later tasks of a Spark worker read only replaced zip archives again, and reuse the memory of earlier blocks."""

from __future__ import annotations

import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROGRAM = """
import gc, importlib, os, sys, zipfile, zipimport
from ingest.execution.spark.worker import reduce_task_overhead

folder = sys.argv[1]
sys.path.insert(0, f"{folder}/a.zip")
import one

reads = []
read = zipimport._read_directory
zipimport._read_directory = lambda archive: (reads.append(archive), read(archive))[1]
for _ in range(3):
    reduce_task_overhead()
    importlib.invalidate_caches()
print("reads", len([path for path in reads if path.endswith("a.zip")]), "frozen", gc.get_freeze_count() > 1000)
os.replace(f"{folder}/b.zip", f"{folder}/a.zip")
importlib.invalidate_caches()
import two
print("found", two.NAME)
"""


def make_zip(path: Path, **modules: str) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, text in modules.items():
            file.writestr(f"{name}.py", text)


def test_a_zip_is_read_once_and_again_where_it_was_replaced(tmp_path: Path) -> None:
    make_zip(tmp_path / "a.zip", one="NAME = 'one'")
    make_zip(tmp_path / "b.zip", one="NAME = 'one'", two="NAME = 'two'")
    ended = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == ["reads 1 frozen True", "found two"]


MEMORY = """
import resource, sys
import pyarrow as pa
from ingest.execution.spark.worker import reduce_task_overhead

if sys.argv[1] == "kept":
    reduce_task_overhead()
block = b'x' * (24 << 20)
del block
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
block = b'x' * (24 << 20)
print(pa.default_memory_pool().backend_name, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 4)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="what is asked for is glibc's")
@pytest.mark.parametrize(("how", "is_kept"), [("kept", True), ("as ever", False)])
def test_memory_of_a_block_is_used_again_for_the_next_one(how: str, is_kept: bool) -> None:
    ended = subprocess.run([sys.executable, "-c", MEMORY, how], capture_output=True, text=True, check=True)
    pool, few_faults = ended.stdout.split()
    assert ((pool == "system"), few_faults) == (is_kept, str(is_kept))
