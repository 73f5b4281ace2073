"""Toolchain of the servers: tools that have to be installed, and results of long builds, kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

INSTALL_S = 900


class MissingToolchainError(Exception):
    """A required program is missing; the message says which."""


def find_tool(name: str, needed_for: str, advice: str) -> str:
    """The path of an installed program.

    Raises:
        MissingToolchainError: the program is not on the path.
    """
    path = shutil.which(name)
    if path is None:
        raise MissingToolchainError(f"{needed_for} needs {name}: {advice}")
    return path


def apt_install(package: str, needed_for: str) -> None:
    """Install a Debian package, if this process is root.

    Raises:
        MissingToolchainError: there is no apt-get, this process is not root, or the installation failed.
    """
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise MissingToolchainError(f"{needed_for} needs {package}: apt-get install {package}")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", package]):
        try:
            done = subprocess.run(
                [apt, *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=INSTALL_S,
            )
        except subprocess.TimeoutExpired as error:
            raise MissingToolchainError(f"apt-get {command[0]} did not end in {INSTALL_S} s") from error
        if done.returncode:
            raise MissingToolchainError(f"apt-get {' '.join(command)} failed: {done.stderr[-500:]}")


def find_java(needed_for: str) -> str:
    """Java as Spark finds it: from JAVA_HOME, then from the path."""
    home = os.environ.get("JAVA_HOME")
    name = str(Path(home) / "bin" / "java") if home else "java"
    return find_tool(name, needed_for, "apt-get install openjdk-17-jre-headless, or https://adoptium.net")


def kept(name: str, recipe: str, make: Callable[[Path], None]) -> Path:
    """A folder in the user's cache that `make` has filled, once for each recipe.

    Concurrent processes each make the folder, and the first result stays: a folder under its final name is always
    whole.

    Args:
        name: readable name of the content, with its version.
        recipe: all inputs of the content; a digest of the recipe is part of the folder's name.
        make: fills the given empty folder.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tideline" / "servers"
    folder = cache / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=f"making-{name}-", dir=cache))
        try:
            make(making)
            making.rename(folder)
        except OSError:
            # A rename never replaces a folder with content: another process was first.
            if not folder.is_dir():
                raise
        finally:
            shutil.rmtree(making, ignore_errors=True)
    return folder


@dataclass(frozen=True)
class Artifact:
    """One jar by its Maven coordinates."""

    group: str
    name: str
    version: str


def fetch_jars(name: str, artifacts: Sequence[Artifact], *, with_dependencies: bool) -> Path:
    """A folder of jars, fetched by Maven from the repository in Maven's settings.

    Raises:
        MissingToolchainError: there is no Maven.
        CalledProcessError: Maven did not find the artifacts.
    """
    maven = find_tool("mvn", name, "apt-get install maven, or https://maven.apache.org")
    pom = _pom(artifacts, with_dependencies)

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as project:
            (Path(project) / "pom.xml").write_text(pom)
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
            command = [maven, "--batch-mode", "--quiet", *goal]
            subprocess.run(command, cwd=project, check=True, stdin=subprocess.DEVNULL)

    return kept(name, pom, make)


def _pom(artifacts: Sequence[Artifact], with_dependencies: bool) -> str:
    every = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = "".join(
        f"<dependency><groupId>{escape(jar.group)}</groupId><artifactId>{escape(jar.name)}</artifactId>"
        f"<version>{escape(jar.version)}</version>{'' if with_dependencies else every}</dependency>"
        for jar in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>tideline</groupId>'
        "<artifactId>servers</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
