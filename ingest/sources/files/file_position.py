"""The file part of a shard's position, beside the offset: path, and evidence to recognise the file again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from timeline.epoch import Json, Position
from timeline.stores.opening import absolute

HEAD_BYTES = 4096
"""Number of a file's first bytes that tell it from other files; fewer where fewer were read."""

Copy: TypeAlias = tuple[str, int, float]
"""`FileInfo.state` of a file whose whole content its shard holds too."""


@dataclass(frozen=True)
class FilePosition:
    """The file that a shard was read from, and evidence that it is still the same file.

    Attributes:
        path: the file's path when the position was planned.
        identity: see `FileInfo`.
        mtime_s: the file's modification time when the position was planned.
        tail: hash of the bytes before the offset.
        fresh_line: the bytes at the offset begin a line even though no line end stands before them, because
            an unterminated last line was closed there.
        head: hash of the file's first bytes; "" in positions of older versions, and of files that count whole.
        head_bytes: number of bytes that `head` covers.
        archive: compression of the file where a rotation compressed it after it was read plain: the offset counts
            decompressed bytes; None where the offset counts the file's own bytes.
        archive_size: compressed size of that file, which was read to its end.
        copies: listed files that are copies of this one.
        is_ended: the file was truncated or replaced, and the job continued without the rest.
        has_more: the file had bytes after the offset when the position was planned.
        created_s: creation time of the file; None where the system or an older version did not record it.
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
    created_s: float | None = None

    def to_json(self) -> dict[str, Json]:
        """JSON for `Position.detail`; optional fields without a value are left out."""
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
        if self.created_s is not None:
            detail["born"] = self.created_s
        return detail

    @staticmethod
    def of(position: Position) -> FilePosition:
        """Parse the detail of a position."""
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
            created_s=_number(detail, "born") if "born" in detail else None,
        )


def _one_spelling(path: str, identity: Json) -> str:
    """A local path, normalised as in listings; older versions kept a job file's ``logs/../logs/app.log``."""
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
