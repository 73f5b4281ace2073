"""Tideline's subset of TiKV's protocol has kvproto's names, numbers and types; its Python code is generated from it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import grpc_tools
import pytest
from google.protobuf import descriptor_pb2

from sinks.tikv import tikv_pb2
from tests.conftest import or_absent
from tests.real.tikv_cluster import MODULES
from tests.real.toolchain import find_tool

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
OURS = ROOT / "sinks" / "tikv" / "tikv.proto"
PACKAGE = "tideline.tikv"
COUNTERPART = re.compile(r"^// kvproto: (?P<theirs>[\w.]+)\n(?P<kind>message|enum) (?P<ours>\w+)", re.MULTILINE)
DECLARED = re.compile(r"^(?:message|enum) (\w+)", re.MULTILINE)
# Field name → number, type, type name, label and oneof; for values of an enum only the number.
Shape = dict[str, tuple[object, ...]]


def protoc(*arguments: str) -> None:
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    command = [sys.executable, "-m", "grpc_tools.protoc", *arguments, f"-I{well_known}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def shapes(files: descriptor_pb2.FileDescriptorSet) -> dict[str, Shape]:
    """Full name → shape of every message and enum."""
    found: dict[str, Shape] = {}

    def add_enum(enum: descriptor_pb2.EnumDescriptorProto, scope: str) -> None:
        found[f"{scope}.{enum.name}"] = {value.name: (value.number,) for value in enum.value}

    def add(message: descriptor_pb2.DescriptorProto, scope: str) -> None:
        name = f"{scope}.{message.name}"
        found[name] = {field.name: shape_of(field, message) for field in message.field}
        for inner in message.nested_type:
            add(inner, name)
        for enum in message.enum_type:
            add_enum(enum, name)

    for file in files.file:
        for message in file.message_type:
            add(message, file.package)
        for enum in file.enum_type:
            add_enum(enum, file.package)
    return found


def shape_of(field: descriptor_pb2.FieldDescriptorProto, message: descriptor_pb2.DescriptorProto) -> tuple[object, ...]:
    alternatives = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
    return field.number, field.type, field.type_name.removeprefix("."), field.label, alternatives


def read(path: Path) -> descriptor_pb2.FileDescriptorSet:
    return descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes())


@pytest.fixture
def theirs(tmp_path: Path) -> dict[str, Shape]:
    """Shapes of kvproto, in the version of the test store."""
    with or_absent():
        go = find_tool("go", "kvproto", "https://go.dev/dl")
    module = ["-m", "-f", "{{.Dir}}", "github.com/pingcap/kvproto"]
    subprocess.run([go, "mod", "download", module[-1]], cwd=MODULES / "store", check=True, stdin=subprocess.DEVNULL)
    listed = subprocess.run([go, "list", *module], cwd=MODULES / "store", check=True, capture_output=True, text=True)
    kvproto = Path(listed.stdout.strip())
    folders = [f"-I{kvproto / folder}" for folder in ("proto", "include")]
    packages = ["metapb.proto", "errorpb.proto", "pdpb.proto", "kvrpcpb.proto"]
    protoc(*folders, f"--descriptor_set_out={tmp_path / 'theirs'}", *packages)
    return shapes(read(tmp_path / "theirs"))


@pytest.fixture
def ours(tmp_path: Path) -> dict[str, Shape]:
    protoc("-I.", f"--descriptor_set_out={tmp_path / 'ours'}", str(OURS.relative_to(ROOT)))
    return shapes(read(tmp_path / "ours"))


def counterparts() -> dict[str, str]:
    """Full name of each of our messages and enums → its name in kvproto, from the comment above it."""
    return {f"{PACKAGE}.{match['ours']}": match["theirs"] for match in COUNTERPART.finditer(OURS.read_text())}


def test_every_message_names_its_counterpart(ours: dict[str, Shape]) -> None:
    assert set(counterparts()) == set(ours)
    assert len(DECLARED.findall(OURS.read_text())) == len(ours)


def test_messages_are_the_ones_of_kvproto(ours: dict[str, Shape], theirs: dict[str, Shape]) -> None:
    names = counterparts()
    differences = []
    for name, fields in ours.items():
        known = theirs.get(names[name], {})
        for field, shape in fields.items():
            # The type name is that of our message or enum; kvproto's field has the counterpart.
            mapped = tuple(names.get(part, part) if isinstance(part, str) else part for part in shape)
            if known.get(field) != mapped:
                differences.append(f"{name}.{field}: {mapped}, but {names[name]} has {known.get(field)}")
    assert not differences, "\n".join(differences)


def test_enums_know_every_value_of_kvproto(ours: dict[str, Shape], theirs: dict[str, Shape]) -> None:
    enums = {name for name in ours if name.removeprefix(f"{PACKAGE}.") in tikv_pb2.DESCRIPTOR.enum_types_by_name}
    unknown = {name: theirs[counterparts()[name]].keys() - ours[name].keys() for name in enums}
    assert not {name: values for name, values in unknown.items() if values}


@pytest.mark.parametrize("suffix", ["py", "pyi"])
def test_python_is_what_protoc_makes_of_it_now(tmp_path: Path, suffix: str) -> None:
    protoc("-I.", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", str(OURS.relative_to(ROOT)))
    name = f"sinks/tikv/tikv_pb2.{suffix}"
    assert (ROOT / name).read_text() == (tmp_path / name).read_text(), "make stubs"
