"""Tideline as one file, for machines without it: a zip that Python imports from.

::

    tideline.zip
    ├── timeline/ sinks/ ingest/ tideline/  as this process runs them, with their resources
    └── tideline-<version>.dist-info/      version and entry points, by which sinks are found

The same code gives the same bytes. Third-party packages are not included: they hold native libraries,
which Python cannot import from a zip.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from timeline.errors import ConfigError

PACKAGES = ("timeline", "sinks", "ingest", "tideline")
"""Packages in the zip."""

_NAME = "tideline"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_READABLE = 0o644 << 16


def write_package(path: Path) -> None:
    """Write the zip; a process that runs from such a zip writes the same bytes.

    Raises:
        ConfigError: Tideline runs from a folder without being installed, so that its entry points are unknown.
    """
    # Stored, not deflated: compressed bytes depend on the version of zlib.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as package:
        for name, body in _contents():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system, entry.external_attr = 3, _READABLE
            package.writestr(entry, body)


def main_script() -> bytes:
    """The command line as a script, for launchers that can only start a file."""
    return files("ingest").joinpath("__main__.py").read_bytes()


def _contents() -> Iterator[tuple[str, bytes]]:
    yield from _metadata()
    for package in PACKAGES:
        yield from _files(files(package), package)


def _metadata() -> Iterator[tuple[str, bytes]]:
    try:
        installed = distribution(_NAME)
    except PackageNotFoundError as error:
        raise ConfigError(f"{_NAME} is not installed here, so its entry points are unknown: pip install it") from error
    folder = f"{_NAME}-{installed.version}.dist-info"
    yield f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {installed.version}\n".encode()
    yield f"{folder}/entry_points.txt", (installed.read_text("entry_points.txt") or "").encode()


def _files(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = f"{name}/{entry.name}"
        if entry.is_file():
            yield path, entry.read_bytes()
        elif entry.name != "__pycache__":
            yield from _files(entry, path)
