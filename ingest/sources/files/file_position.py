"""What a shard's position keeps of its file, besides the offset: where it was, and by what it is recognised again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from timeline.epoch import Json, Position
from timeline.stores.opening import absolute

HEAD_BYTES = 4096
"""How many of a file's first bytes tell it from other files: as many of them as were read."""

Copy: TypeAlias = tuple[str, int, float]
"""`FileInfo.state` of a file that holds nothing but what its shard holds too."""


@dataclass(frozen=True)
class FilePosition:
    """How far a file was read, and what tells that it is still the same file.

    Attributes:
        path: where the file was.
        identity: see `FileInfo`.
        mtime_s: its last change when the position was planned.
        tail: hash of the bytes before the offset.
        fresh_line: the bytes at the offset begin a line even though no line end stands before them, because
            an unterminated last line was closed there.
        head: hash of the file's first bytes; "" in positions of older versions, and of files that count whole.
        head_bytes: how many bytes that are.
        archive: compression of the file where a rotation compressed what was read before: the offset counts
            decompressed bytes; None where the file's own bytes count.
        archive_size: size of that file, compressed, of which everything was read.
        copies: listed files that are copies of this one.
        is_ended: the file was truncated or replaced, and the job went on without the rest.
        has_more: the file was longer than what was taken of it when the position was planned.
        born_s: when the file was made; None where the system does not tell, and in positions of older versions.
    """

    path: str
    identity: str | None
    mtime_s: float
    tail: str
    fresh_line: bool = False
    head: str = ""
    head_bytes: int = 0
    archive: str | None = None
    archive_size: int = 0
    copies: tuple[Copy, ...] = ()
    is_ended: bool = False
    has_more: bool = False
    born_s: float | None = None

    def to_json(self) -> dict[str, Json]:
        """As it stands in `Position.detail`; what says nothing is left out."""
        detail: dict[str, Json] = {
            "path": self.path,
            "id": self.identity,
            "mtime": self.mtime_s,
            "tail": self.tail,
            "fresh_line": self.fresh_line,
        }
        if self.head:
            detail |= {"head": self.head, "head_bytes": self.head_bytes}
        if self.archive is not None:
            detail |= {"archive": self.archive, "archive_size": self.archive_size}
        if self.copies:
            detail["copies"] = [list(copy) for copy in self.copies]
        if self.is_ended:
            detail["ended"] = True
        if self.has_more:
            detail["more"] = True
        if self.born_s is not None:
            detail["born"] = self.born_s
        return detail

    @staticmethod
    def of(position: Position) -> FilePosition:
        """Read back from a position."""
        detail = position.detail
        identity, archive, copies = detail.get("id"), detail.get("archive"), detail.get("copies")
        return FilePosition(
            path=_one_spelling(str(detail.get("path")), identity),
            identity=str(identity) if identity is not None else None,
            mtime_s=_number(detail, "mtime"),
            tail=str(detail.get("tail")),
            fresh_line=detail.get("fresh_line") is True,
            head=str(detail.get("head", "")),
            head_bytes=int(_number(detail, "head_bytes")),
            archive=str(archive) if archive is not None else None,
            archive_size=int(_number(detail, "archive_size")),
            copies=tuple(_copy(each) for each in copies if isinstance(each, list)) if isinstance(copies, list) else (),
            is_ended=detail.get("ended") is True,
            has_more=detail.get("more") is True,
            born_s=_number(detail, "born") if "born" in detail else None,
        )


def _one_spelling(path: str, identity: Json) -> str:
    """A local path as listings have it; older versions kept ``logs/../logs/app.log`` where a job file says so."""
    is_odd = isinstance(identity, str) and identity.startswith("ino:") and ("//" in path or "/." in path)
    return absolute(path) if is_odd else path


def _number(detail: Mapping[str, Json], key: str) -> float:
    value = detail.get(key)
    return value if isinstance(value, int | float) else 0


def _copy(value: list[Json]) -> Copy:
    state, size, mtime_s = value
    assert isinstance(size, int)
    assert isinstance(mtime_s, int | float)
    return str(state), size, float(mtime_s)
