"""Loads a job file into a valid job, or raises one error that lists every problem.

::

    text ── job_file ──▶ values ── models ──▶ blocks ── defaults ──▶ JobConfig ── checks ──▶ JobConfig

A mistake in one block does not hide mistakes in others: checks between blocks run on the valid ones. Nothing is started
and no storage is touched before the whole file is valid.

Local paths, in a job file and to it, are relative to the current directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ingest.config.checks import CHECKS
from ingest.config.job_file import JobFile, KeyPath, Value, parse_job_file, read_job_file
from ingest.config.key_hints import did_you_mean, keys_at, places, unknown_key
from ingest.config.models import JobConfig, TimelineConfig
from ingest.config.registry import SOURCES, load_sink, sink_types
from ingest.sources.decode.options import RecordFormat
from ingest.sources.files.options import FilesOptions
from sinks.base import TargetOptions
from timeline.errors import ConfigError
from timeline.formatting import count

__all__ = ["JobConfig", "config_of_text", "load_config"]

TModel = TypeVar("TModel", bound=BaseModel)

_MOST_PROBLEMS = 100
"""Number of problems that are reported, and about the number that are searched: each costs a search for a hint."""

QUARANTINE = "quarantine"
"""Name of the target that takes rejected rows."""

_STAND_INS: Mapping[str, Any] = {
    "name": "unnamed",
    "source": FilesOptions(path="none", format=RecordFormat.JSON),
    "targets": (TargetOptions(type="none"),),
    QUARANTINE: TargetOptions(type="none"),
    "timeline": TimelineConfig(path="none"),
}
"""Placeholders for invalid required blocks, so that the others can be checked; never read."""


def load_config(path: str | os.PathLike[str], environment: Mapping[str, str] | None = None) -> JobConfig:
    """Read a job file and check all of it.

    Args:
        path: the YAML file.
        environment: variables for ``${NAME}``; None: this process's environment.

    Raises:
        ConfigError: something is wrong; the message lists every problem with its key path, line and value.
    """
    file = read_job_file(Path(path), os.environ if environment is None else environment)
    return _config_of(file, os.fspath(path))


def config_of_text(text: str, name: str, environment: Mapping[str, str]) -> JobConfig:
    """Check a job file's text that nobody has written by hand; problems have no line numbers.

    Args:
        text: YAML.
        name: name of the text in messages.
        environment: variables that ``${NAME}`` refers to.

    Raises:
        ConfigError: something is wrong; the message lists every problem with its key path and value.
    """
    return _config_of(parse_job_file(text, name, environment).without_lines(), name)


def _config_of(file: JobFile, name: str) -> JobConfig:
    job = _Resolver(file).job()
    if file.problems:
        found = sorted(file.problems, key=lambda problem: problem.line or 0)
        lines = "".join(f"\n  {problem}" for problem in found[:_MOST_PROBLEMS])
        more = f"\n  … and more; these are the first {_MOST_PROBLEMS}" if len(found) > _MOST_PROBLEMS else ""
        raise ConfigError(f"{name}: {count(len(found), 'problem')}, nothing was started{lines}{more}")
    return job


class _Resolver:
    """Validates the blocks of one file; problems go to the file, and `_failed` holds the keys of invalid blocks."""

    def __init__(self, file: JobFile) -> None:
        self._file = file
        # A key without a value (all its lines commented out) counts as left out.
        self._values = {key: value for key, value in file.values.items() if value is not None}
        self._failed = {str(problem.path[0]) for problem in file.problems if problem.path}

    def job(self) -> JobConfig:
        """The job, with placeholders for invalid blocks."""
        blocks: dict[str, Any] = dict(self._values)
        blocks["source"] = self._tagged(("source",), blocks.get("source"), SOURCES)
        targets = self._targets()
        if "targets" in blocks:
            blocks["targets"] = targets if "targets" not in self._failed else None
        blocks[QUARANTINE] = self._quarantine(targets)
        blocks["timeline"] = self._timeline(targets)
        try:
            JobConfig.model_validate({key: value for key, value in blocks.items() if value is not None})
        except ValidationError as error:
            self._report(error, JobConfig, ())
        job = JobConfig.model_validate(
            {key: value for key, value in _STAND_INS.items() if key in self._failed} | self._sound(blocks)
        )
        for needs, check in CHECKS:
            if not needs & self._failed:
                for path, message in check(job):
                    self._file.add(path, message)
        return job

    def _sound(self, blocks: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in blocks.items() if key not in self._failed and value is not None}

    def _targets(self) -> tuple[TargetOptions, ...]:
        """The valid targets; problems of the others are recorded."""
        given = self._values.get("targets")
        if not isinstance(given, list):
            if given is not None:
                self._problem(("targets",), "a list is allowed, for example [{type: delta, path: lake/events}]")
            return ()
        options = [self._sink_options(("targets", number), block) for number, block in enumerate(given)]
        return tuple(option for option in options if option is not None)

    def _sink_options(self, path: KeyPath, block: Value) -> TargetOptions | None:
        """One target's options, by its type's own model."""
        known: dict[str, type[TargetOptions]] = {}
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(kind, str) and kind in sink_types():
            try:
                known[kind] = load_sink(kind).Options
            except ConfigError as error:
                self._problem((*path, "type"), str(error))
                return None
        return self._tagged(path, block, dict.fromkeys(sink_types(), TargetOptions) | known)

    def _quarantine(self, targets: tuple[TargetOptions, ...]) -> TargetOptions | None:
        """The quarantine of the file; by default beside the first lake target, of the same type."""
        given = self._values.get(QUARANTINE, {})
        if not isinstance(given, dict):
            self._problem((QUARANTINE,), "{path: …} is allowed; it cannot be turned off, rejected rows would be lost")
            return None
        kind = given.get("type")
        options = _options_of(kind)  # problems are reported where the options are read
        if options is not None and not options.takes_rejected:
            self._problem(
                (QUARANTINE, "type"),
                f"{kind} does not take rejected rows, which have no key; a type that does is allowed: delta, for one",
            )
            return None
        lake = next((target for target in targets if target.lake_path and target.takes_rejected), None)
        defaults: dict[str, Value] = {"type": lake.type if lake else "delta", "name": QUARANTINE}
        needs_path = options is None or options.lies_at_a_path
        if lake is not None and needs_path:
            defaults["path"] = f"{(lake.lake_path or '').rstrip('/')}_quarantine"
        elif needs_path and "path" not in given:
            if targets and "targets" not in self._failed:
                self._problem(
                    (QUARANTINE, "path"),
                    "needed, because no target has a path to put it beside; "
                    "for example quarantine: {path: lake/events_rejected}",
                )
            self._failed.add(QUARANTINE)
            return None
        return self._sink_options((QUARANTINE,), defaults | given)

    def _timeline(self, targets: tuple[TargetOptions, ...]) -> object:
        """The timeline of the file; by default at the first lake target's path."""
        given = self._values.get("timeline")
        if given is not None:
            return given
        place = next((place for target in targets if (place := target.lake_path)), None)
        if place is None:
            if targets and "targets" not in self._failed:
                self._problem(
                    ("timeline", "path"),
                    "needed, because no target has a path that it could lie at; "
                    "for example timeline: {path: lake/events_timeline}",
                )
            self._failed.add("timeline")
            return None
        return TimelineConfig(path=place)

    def _tagged(self, path: KeyPath, block: Value, models: Mapping[str, type[TModel]]) -> TModel | None:
        """A block, validated by the model of its ``type``; None if the block is invalid or missing."""
        allowed = ", ".join(models)
        if block is None and path == ("source",):
            return None
        if not isinstance(block, dict):
            self._problem(path, f"a mapping with type: is allowed; types are {allowed}")
            return None
        kind = block.get("type")
        if not isinstance(kind, str) or kind not in models:
            self._problem((*path, "type"), f"{did_you_mean(str(kind), models)}allowed are {allowed}")
            return None
        known: Value = block
        for _ in range(2):
            try:
                return models[kind].model_validate(known)
            except ValidationError as error:
                self._report(error, models[kind], path)
                # Contradictions in a block are checked only if all of its keys are known.
                unknown = [one["loc"] for one in error.errors() if one["type"] == "extra_forbidden"]
                if not unknown:
                    return None
                for place in unknown:
                    known = _without(known, place)
        return None

    def _places(self) -> Iterator[KeyPath]:
        """The path of every key that this job may have: of its own source type, and of the types of its targets."""
        yield from places(JobConfig)
        source = self._values.get("source")
        kind = source.get("type") if isinstance(source, dict) else None
        yield from places(SOURCES.get(str(kind), FilesOptions), ("source",))
        targets = self._values.get("targets")
        for number, target in enumerate(targets if isinstance(targets, list) else []):
            model = _options_of(target.get("type") if isinstance(target, dict) else None)
            yield from () if model is None else places(model, ("targets", number))

    def _problem(self, path: KeyPath, message: str) -> None:
        self._failed.add(str(path[0]))
        self._file.add(path, message)

    def _report(self, error: ValidationError, model: type[BaseModel], prefix: KeyPath) -> None:
        """Record pydantic's errors as problems, one for each value."""
        for detail in error.errors(include_url=False, include_input=False):
            where = detail["loc"]
            path = (*prefix, *where)
            if detail["type"] == "missing" and not prefix and path[0] in self._failed:
                continue  # the block exists, and its problem is recorded
            self._failed.add(str(path[0]))
            if len(self._file.problems) > _MOST_PROBLEMS:
                continue
            match detail["type"]:
                case "extra_forbidden":
                    message = unknown_key(str(where[-1]), keys_at(model, where[:-1]), self._places())
                case "missing":
                    message = "missing; it is required"
                case "bool_parsing" | "bool_type":
                    message = "true or false is allowed"
                case "string_type":
                    message = "text is allowed; put it between quotes"
                case "model_type" | "dict_type" | "mapping_type":
                    message = "a block of keys and values is allowed"
                case "value_error":
                    message = str(detail.get("ctx", {}).get("error", detail["msg"]))
                case _:
                    message = detail["msg"][:1].lower() + detail["msg"][1:]
            # The value of an unknown key does not help, and may be a secret under a mistyped name.
            self._file.add_once(path, message, show=detail["type"] != "extra_forbidden")


def _options_of(kind: Value) -> type[TargetOptions] | None:
    """The options class of a target type; None if the type does not exist, or cannot be loaded."""
    if not isinstance(kind, str) or kind not in sink_types():
        return None
    try:
        return load_sink(kind).Options
    except ConfigError:
        return None


def _without(block: Value, path: KeyPath) -> Value:
    """A block without the key at a path."""
    if not path or not isinstance(block, dict):
        return block
    key, *rest = path
    if not rest:
        return {name: value for name, value in block.items() if name != key}
    return {name: _without(value, tuple(rest)) if name == key else value for name, value in block.items()}
