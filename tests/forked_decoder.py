"""Decoder children (`ingest.execution.isolated`) as forks, which skip the imports, for tests of anything else.

``python -m tests.forked_decoder`` is such a child. Tests of the children themselves start them as the job does.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ingest.execution.isolated import serve
from tests import forked
from tests.forked import ForkedProcess, Streams


@dataclass(frozen=True)
class ForkedDecoder:
    """A child with the calls of `subprocess.Popen` that its parent uses."""

    process: ForkedProcess
    stdin: IO[bytes]
    stdout: IO[bytes]

    def kill(self) -> None:
        """Send the child SIGKILL."""
        self.process.kill()

    def wait(self) -> int:
        """Wait for the child; its exit code, negative for a signal."""
        return self.process.wait()

    def communicate(self) -> None:
        """Close the pipes and wait for the child."""
        with contextlib.suppress(BrokenPipeError):  # of a half-written request
            self.stdin.close()
        self.stdout.close()
        self.wait()


def start_child() -> ForkedDecoder:
    """See `ingest.execution.isolated.start_child`."""
    requests, answers, nowhere = os.pipe(), os.pipe(), os.open(os.devnull, os.O_WRONLY)
    try:
        streams = Streams(requests[0], answers[1], nowhere)
        process = forked.start("tests.forked_decoder", [], cwd=Path("/"), env=os.environ, streams=streams)
    finally:
        for descriptor in (requests[0], answers[1], nowhere):
            os.close(descriptor)
    return ForkedDecoder(process, os.fdopen(requests[1], "wb"), os.fdopen(answers[0], "rb"))


if __name__ == "__main__":
    os.setsid()
    serve()
