"""A resource that test workers share is started by one of them, and ends after the last use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.once import once_a_run


@pytest.mark.parametrize("last", ["owner", "other"])
def test_one_worker_starts_it_and_it_ends_behind_the_last_use(tmp_path: Path, last: str) -> None:
    events: list[str] = []
    has_it = {name: threading.Event() for name in ("owner", "other")}
    may_go = {name: threading.Event() for name in has_it}

    @contextmanager
    def running() -> Iterator[str]:
        events.append("started")
        yield "address"
        events.append("ended")

    def worker(name: str) -> None:
        with once_a_run("it", tmp_path, running) as address:
            assert address == "address"
            has_it[name].set()
            assert may_go[name].wait(10)
            events.append(f"{name} has used it")

    with ThreadPoolExecutor(2) as pool:
        workers = {}
        for name in has_it:
            workers[name] = pool.submit(worker, name)
            assert has_it[name].wait(10)
        first = "other" if last == "owner" else "owner"
        may_go[first].set()
        if first == "other":
            workers[first].result(10)
        may_go[last].set()
    for each in workers.values():
        each.result()
    assert events[0] == "started" and events[-1] == "ended" and len(events) == 4
    with once_a_run("it", tmp_path, running):
        assert events[-1] == "started", "anew, where all had ended"
