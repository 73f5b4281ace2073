"""A folder in which files are renamed is listed again, a bounded number of times."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from ingest.sources.files import plan
from ingest.sources.files.lookup_retry import MOST_LOOKUPS
from tests.unit.ingest.sources.files.test_rotation import source_now
from timeline.errors import SourceError


@pytest.mark.parametrize("misses", [0, 1, MOST_LOOKUPS - 1, MOST_LOOKUPS])
def test_a_plan_looks_again_while_a_rotation_hides_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, misses: int
) -> None:
    (tmp_path / "app.log").write_text('{"id": 1}\n')
    real, looks = plan._plan_once, itertools.count(1)

    def hidden(*look: Any, **how: Any) -> Any:
        if next(looks) <= misses:
            raise FileNotFoundError("app.log.tmp")
        return real(*look, **how)

    monkeypatch.setattr(plan, "_plan_once", hidden)
    if misses == MOST_LOOKUPS:
        with pytest.raises(SourceError, match="vanished while it was planned"):
            source_now(tmp_path).plan({})
    else:
        assert len(source_now(tmp_path).plan({}).ranges) == 1
