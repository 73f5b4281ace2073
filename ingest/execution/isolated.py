"""Decoding in a child process: a record that crashes the decoder ends the child, not the job.

::

    block ── child ──► decoded
               │ ends: by a signal, for memory or time, by an error that nobody foresaw
               ▼
             halves ── in further children ── … ── one record: once more with all the time ──► refused, with the reason

For epochs whose predecessors were ended by a crash (`timeline.chain.Chain.crashes`): the faulty record is only
known to be in the epoch. Rows are the same as without a child; each block takes longer by the round trip.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import subprocess
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import IO, assert_never

import pyarrow as pa

from ingest.execution.task import error_of
from ingest.sources.base import Block, Decoded, Decoder
from timeline.errors import SparkJobError, TidelineError
from timeline.redact import shown_error

CRASHES = 2
"""Epochs in a row that end by a crash before records are decoded in a child."""

_LIMITS = struct.Struct("!dQ")
"""Header of each block: its limits of time in seconds and of memory in bytes."""

_SIZE = struct.Struct("!Q")
"""Header of each body: its size."""

_MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Limits of a child for one block. The part that grows with the block ends halves that hang sooner.

    Attributes:
        seconds: time for a block of any size.
        seconds_per_mib: additional time for each MiB of the block.
        alone_seconds: time for a single record, before it is refused.
        memory_bytes: limit of data (RLIMIT_DATA), modules and buffers included.
        memory_factor: additional bytes of data for each byte of the block.
    """

    seconds: float = 5.0
    seconds_per_mib: float = 10.0
    alone_seconds: float = 60.0
    memory_bytes: int = 2 << 30
    memory_factor: int = 64


LIMITS = Limits()


@dataclass(frozen=True)
class Crash:
    """A crash of the decoder.

    Attributes:
        how: a text for the rejection reason.
        is_dead: whether the child process has ended too.
    """

    how: str
    is_dead: bool


class IsolatedDecoder:
    """A decoder in a child process, which is started for the first block and ends with this object. See `Decoder`.

    Picklable; not thread-safe.
    """

    def __init__(self, decoder: Decoder, limits: Limits = LIMITS) -> None:
        """Start nothing yet.

        Args:
            decoder: picklable by name, because the child imports its class.
            limits: limits of the child.
        """
        self._decoder = decoder
        self._limits = limits
        self._child: _Child | None = None

    def __reduce__(self) -> tuple[type[IsolatedDecoder], tuple[Decoder, Limits]]:
        return IsolatedDecoder, (self._decoder, self._limits)

    def decode(self, block: Block) -> Decoded:
        """See Decoder; a single record that crashes the decoder twice is rejected.

        Raises:
            SparkJobError: no child can be started, or it cannot load the decoder.
        """
        found = self._ask(block, alone=False)
        if isinstance(found, Decoded):
            return found
        if block.rows > 1:
            return _joined([self.decode(half) for half in self._decoder.halves(block)])
        # Retried once: the machine may have stalled, or run out of memory because of other processes.
        found = self._ask(block, alone=True)
        return (
            found if isinstance(found, Decoded) else self._decoder.refuse(block, f"crashed the decoder ({found.how})")
        )

    def halves(self, block: Block) -> Sequence[Block]:
        """See Decoder."""
        return self._decoder.halves(block)

    def refuse(self, block: Block, reason: str) -> Decoded:
        """See Decoder."""
        return self._decoder.refuse(block, reason)

    def _ask(self, block: Block, *, alone: bool) -> Decoded | Crash:
        body = pickle.dumps(block, pickle.HIGHEST_PROTOCOL)
        limits = self._limits
        seconds = limits.alone_seconds if alone else limits.seconds + limits.seconds_per_mib * len(body) / _MIB
        if self._child is None:
            self._child = _Child(self._decoder)
        found = self._child.ask(body, seconds, limits.memory_bytes + limits.memory_factor * len(body))
        if isinstance(found, Crash) and found.is_dead:
            self._child = None
        return found


class _Child:
    """One child process; it ends when this object is collected, when its pipe closes, or by its own alarm."""

    def __init__(self, decoder: Decoder) -> None:
        process = start_child()
        self.end = weakref.finalize(self, _end, process)
        assert process.stdin is not None and process.stdout is not None
        self._process, self._requests, self._answers = process, process.stdin, process.stdout
        try:
            _put(self._requests, pickle.dumps(decoder, pickle.HIGHEST_PROTOCOL))
            problem = pickle.loads(_take(self._answers))
        except (EOFError, BrokenPipeError):
            problem = _how(process.wait(), 0)
        if problem is not None:
            # Not a crash of a record: on a machine that cannot start a child, all records would be refused.
            self.end()
            raise SparkJobError(
                f"a process to decode records in cannot be started with {sys.executable}: {problem}; "
                "start again once it can"
            )

    def ask(self, body: bytes, seconds: float, memory_bytes: int) -> Decoded | Crash:
        """Decode a block in the child; return its rows, or the crash.

        Args:
            body: the block, pickled.
            seconds: time limit.
            memory_bytes: limit of data.

        Raises:
            TidelineError: the decoder's own, see `Decoder`.
        """
        try:
            self._requests.write(_LIMITS.pack(seconds, memory_bytes))
            _put(self._requests, body)
            kind, content = pickle.loads(_take(self._answers))
        except (EOFError, BrokenPipeError):
            return Crash(_how(self._process.wait(), seconds), is_dead=True)
        match kind:
            case _Answer.DECODED:
                assert isinstance(content, Decoded)
                return content
            case _Answer.REFUSED:
                raise error_of(content)
            case _Answer.CRASHED:
                return Crash(str(content), is_dead=False)
            case _:
                assert_never(kind)


def start_child() -> subprocess.Popen[bytes]:
    """A new process that runs `serve` on its standard input and output."""
    # The system's allocator: Arrow's own reserves a gigabyte of addresses at once, which would count as data.
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = os.environ | {"PYTHONPATH": paths, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", "from ingest.execution.isolated import serve; serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,  # Ctrl-C is for the job, which ends its child itself
    )


class _Answer(Enum):
    """Kind of a child's answer to a block."""

    DECODED = auto()
    REFUSED = auto()
    """The decoder raised an error that stops the job: its class and message."""
    CRASHED = auto()
    """The decoder raised any other error."""


def is_crash(error: BaseException) -> bool:
    """Whether an error that ended an epoch may be a decoder crash caused by a record.

    Tideline's own errors name their cause; a Spark error may stand for a worker that died.
    """
    return isinstance(error, Exception) and (isinstance(error, SparkJobError) or not isinstance(error, TidelineError))


def serve() -> None:
    """Run the child: decode block after block until the pipe closes."""
    requests, answers = os.fdopen(0, "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of a decoder must not mix with answers
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # out of memory, the kernel kills this process first, not the job
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        decoder: Decoder = pickle.loads(_take(requests))
    except Exception as error:
        _put(answers, pickle.dumps(shown_error(error)))
        return
    _put(answers, pickle.dumps(None))
    while limits := requests.read(_LIMITS.size):
        seconds, memory_bytes = _LIMITS.unpack(limits)
        body = _take(requests)
        _limit_data(memory_bytes)
        # The kernel's alarm ends a decoder that holds the interpreter, and a child whose parent is dead.
        signal.setitimer(signal.ITIMER_REAL, seconds)
        answer = _answer(decoder, body)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _put(answers, answer)


def _answer(decoder: Decoder, body: bytes) -> bytes:
    answer: tuple[_Answer, object]
    try:
        answer = _Answer.DECODED, decoder.decode(pickle.loads(body))
        return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
    except TidelineError as error:
        answer = _Answer.REFUSED, (type(error).__name__, str(error))
    except MemoryError:
        answer = _Answer.CRASHED, "out of memory"
    except Exception as error:
        # The error's text may quote the record, and reasons are stored on the timeline.
        answer = _Answer.CRASHED, type(error).__name__
    return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)


def _limit_data(memory_bytes: int) -> None:
    import resource  # missing on some systems that can read timelines

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = memory_bytes if most == resource.RLIM_INFINITY else min(memory_bytes, most)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))


def _put(stream: IO[bytes], body: bytes) -> None:
    stream.write(_SIZE.pack(len(body)))
    stream.write(body)
    stream.flush()


def _take(stream: IO[bytes]) -> bytes:
    """The next body of a stream.

    Raises:
        EOFError: the stream has ended.
    """
    head = stream.read(_SIZE.size)
    size = _SIZE.unpack(head)[0] if len(head) == _SIZE.size else 0
    body = stream.read(size)
    if not head or len(body) < size:
        raise EOFError
    return body


def _how(code: int, seconds: float) -> str:
    """How a child ended, by its return code."""
    if code == -signal.SIGALRM:
        return f"no answer in {seconds:g} s"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with contextlib.suppress(BrokenPipeError):  # of a block that was half written
        process.communicate()


def _joined(parts: Sequence[Decoded]) -> Decoded:
    """Results of consecutive blocks, joined as one."""
    offsets = [part.offsets for part in parts if part.offsets is not None]
    return Decoded(
        pa.concat_batches([part.accepted for part in parts]),
        pa.concat_arrays(offsets) if offsets else None,
        pa.concat_batches([part.rejected for part in parts]),
    )
