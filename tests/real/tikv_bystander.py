"""Other clients of a cluster while a job writes to it: each a process of its own, which ends with its stdin.

::

    watch     reads snapshot after snapshot, and checks that each holds one whole epoch
    rewrite   reads a few rows and writes them back unchanged, over and over

The job's epochs have generations: each epoch writes the rows ``[0, ROWS)`` with its number, so rows of two
generations in one snapshot, or missing rows, are part of an epoch. Both clients use tikv-client's transactions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from sinks.tikv.dedup import KeptRow, Rule
from sinks.tikv.key_codec import row_range
from sinks.tikv.staged import Stager
from tests.job import ROOT, environment
from tests.real.tikv_clients import connected

ROWS = 4_500
SCHEMA = {"copy": "bigint", "generation": "bigint", "id": "bigint"}
"""Columns of the job, in the order of their names, as a dumped job file has them."""

_COLUMNS = pa.schema([pa.field(name, pa.int64()) for name in SCHEMA])
_REWRITTEN = 3
_BETWEEN_LOOKS_S = 0.05
_READY = "ready\n"


class Onlooker:
    """A tikv-client on a job's rows."""

    def __init__(self, pd: str, prefix: str) -> None:
        """Connect."""
        self._client = connected([pd])
        self._stager = Stager.of(_COLUMNS, prefix=prefix.encode(), key=["id"], rule=Rule(KeptRow.LAST))
        self._range = row_range(prefix.encode())

    def key(self, number: int) -> bytes:
        """The key of a row."""
        row = pa.record_batch([pa.array([number], pa.int64())] * 3, schema=_COLUMNS)
        return bytes(self._stager.keys.encode(row)[0].as_py())

    def now(self) -> Any:
        """The version of a snapshot taken now."""
        return self._client.current_timestamp()

    def look(self, *versions: Any) -> pa.Table:
        """All rows, in one equal key range per version, each read at its version; one version gives a snapshot."""
        start, end = self._range
        cuts = [start, *(self.key(ROWS * part // len(versions)) for part in range(1, len(versions))), end]
        pairs: list[tuple[bytes, bytes]] = []
        for version, first, until in zip(versions, cuts, cuts[1:], strict=False):
            snapshot = self._client.snapshot(version, pessimistic=False)
            pairs += snapshot.scan(first, end=until, limit=2 * ROWS)
        keys, values = ([pair[side] for pair in pairs] for side in (0, 1))
        table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
        return pa.Table.from_batches([self._stager.restore(table)])

    def write_back(self) -> None:
        """Rewrite some rows unchanged, in one transaction."""
        transaction = self._client.begin(pessimistic=False)
        for number in range(_REWRITTEN):
            key = self.key(number)
            value = transaction.get(key)
            if value is not None:
                transaction.put(key, value)
        transaction.commit()


def generation_of(rows: pa.Table) -> int | None:
    """The generation of a snapshot's rows; None without rows.

    Raises:
        ValueError: the rows are not exactly those of one epoch.
    """
    if rows.num_rows == 0:
        return None
    generations = Counter(rows["generation"].to_pylist())
    ids, copies = rows["id"].to_pylist(), Counter(rows["copy"].to_pylist())
    if len(generations) > 1 or ids != list(range(ROWS)) or copies != {2: ROWS}:
        raise ValueError(f"part of an epoch: {len(ids)} rows of generations {dict(generations)}, copies {dict(copies)}")
    return int(next(iter(generations)))


class Bystander:
    """A watch or rewrite process, controlled by a test."""

    def __init__(self, role: str, pd: str, prefix: str) -> None:
        """Start the process; returns when it is connected.

        Args:
            role: ``watch`` or ``rewrite``.
            pd: a PD endpoint.
            prefix: of the target.
        """
        command = [sys.executable, "-m", "tests.real.tikv_bystander", role, pd, prefix]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != _READY:
            raise RuntimeError(f"{role} ended with code {self._process.wait()}")

    def end(self) -> dict[str, Any]:
        """End the process and return its observations."""
        said, _ = self._process.communicate(timeout=60)
        assert self._process.returncode == 0
        found: dict[str, Any] = json.loads(said)
        return found

    def kill(self) -> None:
        """Kill the process if it runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@contextmanager
def bystander(role: str, pd: Sequence[str], prefix: str) -> Iterator[Bystander]:
    """A bystander process that ends with the block at the latest."""
    running = Bystander(role, pd[0], prefix)
    try:
        yield running
    finally:
        running.kill()


def _watch(onlooker: Onlooker, ended: threading.Event) -> dict[str, Any]:
    errors: Counter[str] = Counter()
    faults: list[str] = []
    generations: list[int] = []
    looks = 0
    while not ended.wait(_BETWEEN_LOOKS_S):
        try:
            rows = onlooker.look(onlooker.now())
        except Exception as error:  # any error of tikv-client: a lock of an open epoch, or no answer
            errors["locked" if "lock" in str(error) else "unreachable"] += 1
            continue
        looks += 1
        try:
            generation = generation_of(rows)
        except ValueError as fault:
            faults.append(str(fault))
            continue
        if generation is not None and generation not in generations[-1:]:
            faults += [f"generation {generation} behind {generations[-1]}"] if generations[-1:] > [generation] else []
            generations.append(generation)
    return {"looks": looks, "errors": errors, "faults": faults, "generations": generations}


def _rewrite(onlooker: Onlooker, ended: threading.Event) -> dict[str, Any]:
    outcomes: Counter[str] = Counter()
    while not ended.is_set():
        try:
            onlooker.write_back()
            outcomes["written"] += 1
        except Exception:  # any error of tikv-client: the job was faster, or has locked the rows
            outcomes["refused"] += 1
    return outcomes


def main() -> None:
    """Entry point."""
    role, pd, prefix = sys.argv[1:]
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    act = {"watch": _watch, "rewrite": _rewrite}[role]
    onlooker = Onlooker(pd, prefix)
    print(_READY, end="", flush=True)
    print(json.dumps(act(onlooker, ended)), flush=True)
    # Without this, tikv-client's threads sometimes crash the interpreter at its end (SIGSEGV).
    os._exit(0)


if __name__ == "__main__":
    main()
