"""Run many epochs of the real protocol on Delta in this process, and print its memory use.

python -m tests.memory.over_epochs FOLDER EPOCHS EVERY
"""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path

import psutil

from ingest.check_store.lakes import DeltaLake
from ingest.check_store.numbers import IDENTITY, NUMBER_SCHEMA, NumberSource
from ingest.driver.epoch import NextEpoch, Pipeline, run_epoch
from ingest.execution.runner import LocalRunner
from ingest.protocol.job import JobContext
from tests.explore.protocol_world import make_lease
from timeline.chain import Chain


def main(folder: Path, epochs: int, every: int) -> None:
    """Print ``epoch MiB`` every ``every`` epochs."""
    lake = DeltaLake(str(folder))
    store = lake.timeline_store()
    job = JobContext("numbers", store, IDENTITY, lake.sinks(lambda inner: inner), "quarantine", "table", "me")
    source, lease = NumberSource({"s": epochs}, bad_every=3), make_lease(store, 1)
    pipeline, chain = Pipeline(source, NUMBER_SCHEMA, False, LocalRunner()), Chain()
    while ranges := source.plan(chain.positions).ranges:
        epoch = NextEpoch(chain, ranges, chain.next_epoch - 1)
        result = run_epoch(job, pipeline, epoch, lease, stop=threading.Event())
        chain = chain.advanced(result.decision)
        if chain.next_epoch % every == 0:
            gc.collect()
            print(chain.next_epoch, psutil.Process().memory_info().rss / (1 << 20), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
