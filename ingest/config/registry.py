"""Sources and sinks that a job file can name by ``type``.

A sink is an entry point in the group ``tideline.sinks``, so another package can provide one; it is imported when a job
names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from typing import cast

from ingest.sources.files.options import FilesOptions
from ingest.sources.kafka.options import KafkaOptions
from ingest.sources.options import SourceBlock, StreamOptions
from sinks.base import Sink
from timeline.errors import ConfigError

SINK_GROUP = "tideline.sinks"

SOURCES: Mapping[str, type[SourceBlock]] = {"files": FilesOptions, "kafka": KafkaOptions, "stream": StreamOptions}
"""The options of each source type."""

_EXTRAS = ("tikv",)
"""Tideline's own sinks that need an extra, of the same name."""


@cache
def installed_sinks() -> EntryPoints:
    """Entry points of the installed sinks, cached: the lookup reads a file of every installed package."""
    return entry_points(group=SINK_GROUP)


def sink_types() -> list[str]:
    """Names of the installed sinks, sorted."""
    return sorted(installed_sinks().names)


def load_sink(name: str) -> type[Sink]:
    """The sink class of an installed type.

    Raises:
        ConfigError: the type is not installed, or a package that it needs is not.
    """
    found = installed_sinks().select(name=name)
    if not found:
        raise ConfigError(f"there is no sink {name!r}; allowed are {', '.join(sink_types())}")
    try:
        return cast(type[Sink], next(iter(found)).load())
    except ModuleNotFoundError as error:
        if name in _EXTRAS and error.name is not None and not error.name.startswith("sinks"):
            raise ConfigError(
                f"target type {name} needs a package that is not installed ({error.name}): "
                f"pip install 'tideline[{name}]'"
            ) from error
        raise ConfigError(f"sink {name!r} cannot be imported: {error}; install what it needs") from error
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"sink {name!r} cannot be imported: {error}; install what it needs") from error
