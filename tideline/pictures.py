"""Pictures of a timeline's history as matplotlib figures; needs the extra ``look``.

``gantt(tideline.Timeline.load(path).history())`` as the last line of a notebook's cell is displayed.
"""

from ingest.reports.pictures import gantt, lag, recovery, rendered, sizes, throughput

__all__ = ["gantt", "lag", "recovery", "rendered", "sizes", "throughput"]
