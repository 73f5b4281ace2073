"""Sources and sinks that a job file can name by ``type``.

A sink is an entry point in the group ``tideline.sinks``, so another package can provide one; it is imported when a job
names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import cast

from ingest.sources.files.options import FilesOptions
from ingest.sources.kafka.options import KafkaOptions
from ingest.sources.options import SourceBlock, StreamOptions
from sinks.base import Sink
from timeline.errors import ConfigError

SINK_GROUP = "tideline.sinks"

SOURCES: Mapping[str, type[SourceBlock]] = {"files": FilesOptions, "kafka": KafkaOptions, "stream": StreamOptions}
"""The options of each source type."""

SINK_METHODS = (
    "Options",
    "open",
    "ensure",
    "begin",
    "prepare",
    "verify",
    "commit",
    "lookup",
    "abort",
    "release",
    "unreleased",
)
"""Members of `sinks.base.Sink` that a class has; `target` may be a field of its objects."""

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
    """The sink class of an installed type. Types of Tideline's own cannot be replaced.

    Raises:
        ConfigError: the type is not installed, two packages have it, it cannot be imported, or a method is missing.
    """
    entry = _entry_point(name)
    try:
        found = entry.load()
    except ModuleNotFoundError as error:
        if name in _EXTRAS and error.name is not None and not error.name.startswith("sinks"):
            raise ConfigError(
                f"target type {name} needs a package that is not installed ({error.name}): "
                f"pip install 'tideline[{name}]'"
            ) from error
        raise ConfigError(f"sink {name!r} cannot be imported: {error}; install what it needs") from error
    except Exception as error:  # code of another package
        raise ConfigError(
            f"sink {name!r} cannot be imported: {type(error).__name__}: {error}; install what it needs, or mend "
            f"{entry.value}"
        ) from error
    missing = [] if _is_own(entry) else [each for each in SINK_METHODS if not hasattr(found, each)]
    if missing:
        raise ConfigError(
            f"sink {name!r} ({entry.value}) has no {', '.join(missing)}; a sink has all of {', '.join(SINK_METHODS)}"
        )
    return cast(type[Sink], found)


def _is_own(entry: EntryPoint) -> bool:
    return entry.value.startswith("sinks.")


def _entry_point(name: str) -> EntryPoint:
    found = list(installed_sinks().select(name=name))
    own = [each for each in found if _is_own(each)]
    if own:
        return own[0]
    if not found:
        raise ConfigError(f"there is no sink {name!r}; allowed are {', '.join(sink_types())}")
    if len({each.value for each in found}) > 1:
        homes = ", ".join(sorted({each.value for each in found}))
        raise ConfigError(f"several packages have a sink {name!r}: {homes}; uninstall all but one")
    return found[0]
