"""Commands that check and mend: ``fsck | replay-quarantine``."""

from __future__ import annotations
