"""A decoder that some records make fail: by a signal, a timeout, memory, or an unforeseen error."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ingest.execution.isolated import Limits
from ingest.sources.base import Block, Decoded, Decoder

CRASH, HANG, MEMORY, ERROR = "poison-crash", "poison-hang", "poison-memory", "poison-error"
"""Texts in a record that select its fault."""

SHORT = Limits(seconds=1.0, seconds_per_mib=1.0, alone_seconds=3.0, memory_bytes=1 << 30)


@dataclass(frozen=True)
class PoisonedDecoder:
    """See `Decoder`; `decoder` decodes blocks without a fault text."""

    decoder: Decoder

    def decode(self, block: Block) -> Decoded:
        body = pickle.dumps(block)
        if CRASH.encode() in body:
            os.kill(os.getpid(), signal.SIGSEGV)
        if HANG.encode() in body:
            time.sleep(3600)
        if MEMORY.encode() in body:
            eat_memory()
        if ERROR.encode() in body:
            raise LookupError("nobody foresaw this")
        return self.decoder.decode(block)

    def halves(self, block: Block) -> Sequence[Block]:
        return self.decoder.halves(block)

    def refuse(self, block: Block, reason: str) -> Decoded:
        return self.decoder.refuse(block, reason)


def eat_memory() -> None:
    """Allocate more than any memory limit of these tests; no page is touched, so the machine is not affected."""
    held = [np.empty(64 << 20, np.uint8) for _ in range(1024)]
    raise AssertionError(f"{len(held)} pieces of memory were to be had")
