"""A log that is rotated as logrotate does it: the same operations on files in the same order, each a step."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
}


@dataclass(frozen=True)
class Mode:
    """How a log is rotated; see logrotate(8).

    Attributes:
        how: create, nocreate, copy, copytruncate or renamecopy.
        ending: file ending of compressed files; "" without compression.
        delays: the youngest rotated file is not compressed yet (delaycompress).
        dated: names have a date in place of a number (dateext).
        extension: names keep this ending (extension), such as app.1.log.
        olddir: rotated files go into this folder.
        keep: number of rotated files that are kept.
    """

    how: str = "create"
    ending: str = ""
    delays: bool = False
    dated: bool = False
    extension: str = ""
    olddir: str = ""
    keep: int = 5


@dataclass
class Log:
    """One log and its rotated files; `written` are its lines."""

    folder: Path
    mode: Mode
    name: str = "app.log"
    written: list[bytes] = field(default_factory=list)
    rotations: int = 0

    @property
    def path(self) -> Path:
        return self.folder / self.name

    def append(self, lines: int, text: str = "line") -> None:
        """Append unique lines."""
        new = [f'{{"n": {len(self.written) + at}, "s": "{text}"}}'.encode() for at in range(lines)]
        self.written += new
        with self.path.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in new))

    def rotate(self) -> Iterator[str]:
        """One rotation, step by step; between two steps a test may list or read the files."""
        if not self.path.exists():
            return
        self.rotations += 1
        if not self.mode.dated:
            yield from self._make_room()
        first = self._rotated(1)
        first.parent.mkdir(exist_ok=True)
        yield from self._set_aside(first)
        target = self._rotated(2) if self.mode.delays and not self.mode.dated else first
        if self.mode.delays and self.mode.dated:
            target = self._rotated(2)
        if self.mode.ending and target.exists():
            yield from self._compress(target)

    def _make_room(self) -> Iterator[str]:
        for ending in dict.fromkeys(("", self.mode.ending)):
            for number in range(self.mode.keep, 0, -1):
                old = Path(f"{self._rotated(number)}{ending}")
                if old.exists():
                    old.rename(f"{self._rotated(number + 1)}{ending}")
            last = Path(f"{self._rotated(self.mode.keep + 1)}{ending}")
            last.unlink(missing_ok=True)
        yield "renamed the older ones"

    def _set_aside(self, first: Path) -> Iterator[str]:
        match self.mode.how:
            case "create" | "nocreate":
                self.path.rename(first)
                yield "renamed"
                if self.mode.how == "create":
                    self.path.touch()
                    yield "created"
            case "renamecopy":
                aside = self.path.with_name(f"{self.name}.tmp")
                self.path.rename(aside)
                yield "renamed"
                shutil.copyfile(aside, first)
                yield "copied"
                aside.unlink()
                yield "removed"
            case _:
                shutil.copyfile(self.path, first)
                yield "copied"
                if self.mode.how == "copytruncate":
                    os.truncate(self.path, 0)
                    yield "truncated"

    def _compress(self, path: Path) -> Iterator[str]:
        data = COMPRESS[self.mode.ending](path.read_bytes())
        compressed = Path(f"{path}{self.mode.ending}")
        compressed.write_bytes(data[: len(data) // 2])
        yield "half compressed"
        compressed.write_bytes(data)
        yield "compressed"
        times = path.stat()
        os.utime(compressed, ns=(times.st_atime_ns, times.st_mtime_ns))
        path.unlink()
        yield "removed what was compressed"

    def _rotated(self, number: int) -> Path:
        mark = f"-{20261000 + self.rotations + 1 - number}" if self.mode.dated else f".{number}"
        stem = self.name.removesuffix(self.mode.extension) if self.mode.extension else self.name
        return self.folder / self.mode.olddir / f"{stem}{mark}{self.mode.extension}"
