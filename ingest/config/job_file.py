"""A job file's text, parsed into plain values with line numbers.

The schema is YAML's core schema: ``yes``, ``on``, ``012`` and dates stay text, keys are text, a key given twice is an
error. ``${NAME}`` in a value is the environment variable's text, ``${NAME:-default}`` has a default, ``$${`` stands for
a literal ``${``.

Parsing does not stop at the first problem: the caller gets all problems at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import yaml

from timeline.errors import ConfigError
from timeline.redact import is_secret_name, without_credentials
from timeline.stores.opening import absolute

Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"
KeyPath: TypeAlias = tuple[str | int, ...]

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-[^}]*)?\}|\$\{[^}]*\}?")
_TRUTHS = {"true": True, "false": False}
_SECRET_BLOCKS = (("source", "options"), ("spark", "conf"))
_LONGEST_SHOWN = 100
_DEEPEST = 50
_LARGEST_BYTES = 512 << 10
"""Largest job file; a file with thousands of columns has a third of it."""
_MOST_CHARACTERS = 4 << 20
"""Limit for all values, aliases expanded, with `_VALUE_CHARACTERS` added for each value: bounds time and memory."""
_VALUE_CHARACTERS = 40
_TOO_LARGE = f"{_LARGEST_BYTES >> 10} KiB are allowed, and {_MOST_CHARACTERS >> 20} MiB with what aliases stand for"
_NULL = "tag:yaml.org,2002:null"
_QUOTED_NAME = re.compile(r"(alias|anchor|tag handle) ['\"].*")


@dataclass(frozen=True)
class ConfigProblem:
    """One problem in a job file.

    Attributes:
        path: the key path, for example ``("targets", 0, "path")``.
        message: what is allowed, or what to do.
        line: line number, from 1; None if nothing is written there.
        found: the value as it is written; None if it does not help.
    """

    path: KeyPath
    message: str
    line: int | None = None
    found: str | None = None

    def __str__(self) -> str:
        """One human-readable line."""
        place = f"line {self.line}: " if self.line is not None else ""
        found = f" (found {self.found})" if self.found is not None else ""
        return f"{place}{dotted(self.path) or 'the file'}: {self.message}{found}"


@dataclass
class JobFile:
    """A parsed job file.

    Attributes:
        values: the values, references resolved.
        problems: problems found so far.
    """

    values: dict[str, Value] = field(default_factory=dict, repr=False)
    problems: list[ConfigProblem] = field(default_factory=list)
    _has_lines: bool = True
    _lines: dict[KeyPath, int] = field(default_factory=dict, repr=False)
    _written: dict[KeyPath, str] = field(default_factory=dict, repr=False)

    def add(self, path: KeyPath, message: str, *, show: bool = True) -> None:
        """Record a problem; if nothing is written at `path`, with the line of the enclosing block.

        Args:
            path: key path of the value.
            message: what is allowed, or what to do.
            show: whether to show the value.
        """
        near = path
        while near and near not in self._lines:
            near = near[:-1]
        line = self._lines.get(near) if self._has_lines else None
        self.problems.append(ConfigProblem(path, message, line, self._shown(path) if show else None))

    def add_once(self, path: KeyPath, message: str, *, show: bool = True) -> None:
        """Record a problem unless this value has one already; a validator's inner path is cut to the written one.

        Args:
            path: key path of the value.
            message: what is allowed, or what to do.
            show: whether to show the value.
        """
        if path[:-1] not in self._lines and len(path) > 1:
            while path[:-1] and path not in self._lines:
                path = path[:-1]
        if not any(problem.path == path for problem in self.problems):
            # A message on a whole block is Tideline's own; a validator's message on a value in it may quote the value.
            may_quote = len(path) > 1 and is_secret(path) and path in self._written
            self.add(path, "not a valid value" if may_quote else message, show=show)

    def without_lines(self) -> JobFile:
        """Drop line numbers from all problems, for a text that nobody has written by hand; returns the file itself."""
        self.problems = [replace(problem, line=None) for problem in self.problems]
        self._has_lines = False
        return self

    def _shown(self, path: KeyPath) -> str | None:
        """The value as written: a reference unresolved, a secret not at all."""
        written = self._written.get(path)
        if written is None:
            return None
        if is_secret(path):
            return "a value that is not shown"
        written = without_credentials(written)
        return repr(written if len(written) <= _LONGEST_SHOWN else f"{written[:_LONGEST_SHOWN]}…")


def read_job_file(path: Path, environment: Mapping[str, str]) -> JobFile:
    """Read and parse a job file.

    Args:
        path: the file.
        environment: variables for ``${NAME}``.

    Raises:
        ConfigError: the file cannot be read, or is no YAML mapping; the message names file and line.
    """
    try:
        with path.open("rb") as opened:
            body = opened.read(_LARGEST_BYTES + 1)
        text = body.decode("utf-8-sig")
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            absolute(str(path))  # raises if the current directory was deleted
        raise ConfigError(f"{path}: {error.strerror}; give the path of a job file") from error
    except UnicodeDecodeError as error:
        if len(body) > _LARGEST_BYTES:
            raise ConfigError(f"{path}: too large for a job file: {_TOO_LARGE}") from error
        raise ConfigError(f"{path}: not UTF-8 text at byte {error.start}") from error
    if len(body) > _LARGEST_BYTES:
        raise ConfigError(f"{path}: too large for a job file: {_TOO_LARGE}")
    return parse_job_file(text, str(path), environment)


def parse_job_file(text: str, path: str, environment: Mapping[str, str]) -> JobFile:
    """Parse a job file's text.

    Args:
        text: YAML.
        path: path of the file, for messages.
        environment: variables for ``${NAME}``.

    Raises:
        ConfigError: the text is no YAML mapping; the message names file and line.
    """
    try:
        node = yaml.compose(text, Loader=_CoreLoader)
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}:" if error.problem_mark else ""
        # YAML reads a value that begins with * or & as a name; it may be a secret.
        reason = ", ".join(_QUOTED_NAME.sub(r"\1", part) for part in (error.context, error.problem) if part)
        # {key: ${NAME}} is the likeliest mistake: inside of braces YAML parses the reference's own braces.
        hint = '; inside of { } a reference needs quotes: "${NAME}"' if "flow" in reason and "${" in text else ""
        raise ConfigError(f"{path}:{line} not valid YAML: {reason}{hint}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{path}: a job file is a mapping of keys to values, beginning with name: …")
    file = JobFile()
    try:
        file.values = _Builder(file, environment).mapping(node, ())
    except _TooLargeError as error:
        raise ConfigError(f"{path}: line {error.line}: too large for a job file: {_TOO_LARGE}") from None
    return file


def is_secret(path: KeyPath) -> bool:
    """Whether a value must not be shown: by its key's name, or because its block may hold secrets."""
    return (
        path[:1] in (("storage",), ("on_commit",))
        or path[:2] in _SECRET_BLOCKS
        or any(is_secret_name(str(key)) for key in path)
    )


def dotted(path: KeyPath) -> str:
    """A key path, human-readable: ``targets[0].path``."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


class _CoreLoader(yaml.SafeLoader):
    """YAML 1.2's core schema (specification 1.2.2, section 10.3.2) without octal and hexadecimal numbers."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - yaml's own interface
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """See yaml.composer.Composer, which calls it recursively for child nodes."""
        self._depth += 1
        if parent is not None and self._depth > _DEEPEST:
            where = parent.start_mark
            raise yaml.MarkedYAMLError(problem=f"nested more than {_DEEPEST} deep", problem_mark=where)
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


_CoreLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""])
_CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), list("tTfF")
)
_CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"[-+]?(?:0|[1-9][0-9]{0,30})\Z"), list("-+0123456789")
)
_CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"),
    list("-+.0123456789"),
)


class _TooLargeError(Exception):
    """Values, aliases expanded, exceed the limit of a job file.

    Attributes:
        line: line at which the limit was exceeded.
    """

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


class _Builder:
    """Turns YAML nodes into values and fills in the file's lines and problems."""

    def __init__(self, file: JobFile, environment: Mapping[str, str]) -> None:
        self._file = file
        self._environment = environment
        self._left = _MOST_CHARACTERS
        self._around: list[yaml.Node] = []

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Value]:
        """A mapping's values; of a repeated key the first value counts."""
        result: dict[str, Value] = {}
        first_lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._file.problems.append(ConfigProblem(path, "a key is a word, not a list or mapping", line))
                continue
            key = str(key_node.value)
            name, colon, _ = key.partition(":")
            if colon and value_node.tag == _NULL:
                # YAML reads {password:secret} as one word: the text behind the colon was meant as a value.
                message = "no value: write a space behind the colon"
                self._file.problems.append(ConfigProblem((*path, name), message, line))
                continue
            if key in result:
                message = f"given twice, first in line {first_lines[key]}; keep one"
                self._file.problems.append(ConfigProblem((*path, key), message, line))
                continue
            first_lines[key] = line
            self._file._lines[(*path, key)] = line
            result[key] = self.value(value_node, (*path, key))
        return result

    def value(self, node: yaml.Node, path: KeyPath) -> Value:
        """Any node's value."""
        self._file._lines[path] = min(node.start_mark.line + 1, self._file._lines.get(path, 1 << 62))
        self._left -= _VALUE_CHARACTERS + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
        if self._left < 0:
            raise _TooLargeError(node.start_mark.line + 1)
        if any(each is node for each in self._around):
            self._file.add(path, "an alias stands for what contains it; write out what is meant", show=False)
            return None
        if len(path) > _DEEPEST:
            self._file.add(path[:3], f"nested more than {_DEEPEST} deep", show=False)
            return None
        self._around.append(node)
        try:
            match node:
                case yaml.MappingNode():
                    return self.mapping(node, path)
                case yaml.SequenceNode():
                    return [self.value(item, (*path, number)) for number, item in enumerate(node.value)]
                case _:
                    return self.scalar(node, path)
        finally:
            self._around.pop()

    def scalar(self, node: yaml.Node, path: KeyPath) -> Value:
        """A scalar's value, references resolved."""
        written = str(node.value)
        self._file._written[path] = written
        match node.tag:
            case "tag:yaml.org,2002:null":
                return None
            case "tag:yaml.org,2002:bool":
                return written.lower() == "true"
            case "tag:yaml.org,2002:int":
                return int(written)
            case "tag:yaml.org,2002:float":
                return float(written)
            case "tag:yaml.org,2002:str":
                return self.text(written, path)
        self._file.add(path, "a tag (a word that begins with '!') is not allowed; write a plain value, or quote it")
        return written

    def text(self, written: str, path: KeyPath) -> Value:
        """A text, references resolved; models convert it to numbers and booleans."""
        resolved = self.resolved(written, path)
        if path[:1] == ("storage",) and _REFERENCE.fullmatch(written) and resolved in _TRUTHS:
            return _TRUTHS[resolved]  # storage has no model, and a store's client takes the text `false` as true
        return resolved

    def resolved(self, written: str, path: KeyPath) -> str:
        """The text with references replaced by environment variables."""

        def replacement(found: re.Match[str]) -> str:
            if found.group() == "$${":
                return "${"
            name, default = found["name"], found["default"]
            if name is None:
                what = "'${'" if is_secret(path) else repr(found.group())
                self._file.add(path, f"{what} is no reference; write ${{NAME}}, ${{NAME:-default}}, or $${{")
            elif name in self._environment:
                return self._environment[name]
            elif default is not None:
                return str(default).removeprefix(":-")
            else:
                self._file.add(
                    path, f"environment variable {name} is not set; set it, or write ${{{name}:-default}}", show=False
                )
            return found.group()

        return _REFERENCE.sub(replacement, written)
