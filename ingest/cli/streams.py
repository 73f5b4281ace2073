"""stdout and stderr whose reader may close them at any time, as `head` does: no error output, and a job goes on."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from ingest.cli.exit_codes import BROKEN_PIPE


class _Stream:
    """A text stream that handles a closed reader; everything else is the wrapped stream's."""

    def __init__(self, stream: TextIO, *, ends: bool) -> None:
        """Wrap a stream.

        Args:
            stream: the stream.
            ends: whether the command ends once the reader has closed the stream; else it goes on without output.
        """
        self._stream = stream
        self._ends = ends

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """See io.TextIOBase."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._unheard()
            return len(text)

    def flush(self) -> None:
        """See io.TextIOBase."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._unheard()

    def _unheard(self) -> None:
        # At exit the interpreter flushes buffers: to the null device, or it would print an error.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        if self._ends:
            raise SystemExit(BROKEN_PIPE) from None


@contextlib.contextmanager
def unheard_ends() -> Iterator[None]:
    """End the command with `BROKEN_PIPE` once the reader of stdout has closed it; a closed stderr is ignored."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast(TextIO, _Stream(out, ends=True)), cast(TextIO, _Stream(err, ends=False))
    try:
        yield
    except SystemExit as ended:
        if not ended.code:
            sys.stdout.flush()
        raise
    finally:
        sys.stdout, sys.stderr = out, err
