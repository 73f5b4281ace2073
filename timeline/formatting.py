"""Human-readable counts, durations and sizes, and texts shortened to a length."""

from __future__ import annotations

from itertools import pairwise

from timeline.units import count

__all__ = ["amount", "count", "duration", "number", "shard_name", "shortened", "size"]

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def duration(seconds: float) -> str:
    """A duration in its one or two largest units: ``160 ms``, ``4.2 s``, ``3 min 20 s``, ``2 d 4 h``."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for (size, unit), (next_size, next_unit) in pairwise(_UNITS):
        if whole >= size:
            rest = int(whole % size // next_size)
            return f"{int(whole // size)} {unit}" + (f" {rest} {next_unit}" if rest else "")
    return f"{seconds:.1f} s"


def size(size_bytes: float) -> str:
    """Bytes in powers of ten: ``754.0 kB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size_bytes) < 1000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"


def number(value: int | None) -> str:
    """A number with thousands separators; "" for None."""
    return "" if value is None else f"{value:,}"


def amount(units: int, unit: str) -> str:
    """An amount of a source's units: ``11.4 MB`` if the source counts bytes, else ``1,200 records``."""
    return size(units) if unit == "bytes" else count(units, unit.removesuffix("s"))


def shortened(text: str, most: int) -> str:
    """A text on one line; a too long text is cut between words, or within a very long word."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    cut = line[:most]
    whole = cut.rpartition(" ")[0].rstrip(" ,;:(")
    return (whole if len(whole) * 3 >= most * 2 else cut[: most - 1].rstrip()) + "…"


def shard_name(shard: str, most: int = 28) -> str:
    """A shard's name; of a long name only the end, which distinguishes shards."""
    return shard if len(shard) <= most else "…" + shard[1 - most :]
