"""Pictures of a timeline, for print and for notebooks.

``gantt(Timeline.load(path).history())`` is a matplotlib Figure; as the last line of a notebook's cell it shows itself.
"""

from __future__ import annotations

from ingest.look.pictures.canvas import FORMATS, description, format_of, rendered
from ingest.look.pictures.gantt import gantt
from ingest.look.pictures.lag import lag
from ingest.look.pictures.recovery import recovery
from ingest.look.pictures.sizes import sizes
from ingest.look.pictures.throughput import throughput

__all__ = ["FORMATS", "description", "format_of", "gantt", "lag", "recovery", "rendered", "sizes", "throughput"]
