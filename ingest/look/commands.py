"""Commands that look at a timeline: ``show | inspect | offsets | watch``."""

from __future__ import annotations
