"""Pictures of a timeline, for print and for notebooks.

``gantt(Timeline.load(path).history())`` is a matplotlib Figure; as the last line of a notebook's cell it shows itself.
"""

from __future__ import annotations

from ingest.reports.pictures.canvas import FORMATS, description, format_of, rendered
from ingest.reports.pictures.gantt import gantt
from ingest.reports.pictures.lag import lag
from ingest.reports.pictures.recovery import recovery
from ingest.reports.pictures.sizes import sizes
from ingest.reports.pictures.throughput import throughput

__all__ = ["FORMATS", "description", "format_of", "gantt", "lag", "recovery", "rendered", "sizes", "throughput"]
