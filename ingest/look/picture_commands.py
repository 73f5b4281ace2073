"""Commands that draw: ``plot | report``."""

from __future__ import annotations
