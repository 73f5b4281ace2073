"""The package of these tests, installed outside of the tree as `pip install` would leave it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.job import ROOT

PACKAGE = Path(__file__).with_name("tideline_sqlite")

ENTRY_POINTS = """\
[tideline.sinks]
sqlite = tideline_sqlite.sink:SqliteSink

[tideline.stores]
sqlite = tideline_sqlite.store:SqliteStore.open
"""
"""What a package of its own says to be found."""


def install(folder: Path) -> str:
    """Install the package into a folder.

    Returns:
        the ``PYTHONPATH`` by which processes find it, and the project.
    """
    folder.mkdir(exist_ok=True)
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    metadata = folder / f"{PACKAGE.name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE.name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return os.pathsep.join([str(folder), str(ROOT)])
