"""A real S3 server on loopback: versitygw over a folder, built once by the Go toolchain and kept in the user's cache.

``python -m tests.real.s3_server`` builds it ahead of the tests.
"""

from __future__ import annotations

import os
import secrets
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.real.certificates import Certificates
from tests.real.processes import HOST, ServerProcess, on_free_ports
from tests.real.toolchain import MissingToolchainError, find_tool, kept

MODULE = "github.com/versity/versitygw/cmd/versitygw"
VERSION = "v1.8.0"
REGION = "us-east-1"


@dataclass(frozen=True)
class Credentials:
    """Credentials of a server's root user."""

    key: str = field(default_factory=lambda: secrets.token_hex(8))
    secret: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)


@dataclass(frozen=True)
class S3Server:
    """A server: its port, credentials and process.

    Attributes:
        port: on loopback; the same after a restart.
        credentials: key and secret.
        authority: certificate that clients trust; None without TLS.
        process: the server's process.
    """

    port: int
    credentials: Credentials
    authority: Path | None
    process: ServerProcess

    @property
    def endpoint_url(self) -> str:
        """The endpoint URL for clients."""
        return f"{'http' if self.authority is None else 'https'}://{HOST}:{self.port}"

    @property
    def key(self) -> str:
        """The access key."""
        return self.credentials.key

    @property
    def secret(self) -> str:
        """The secret of the key."""
        return self.credentials.secret

    @property
    def options(self) -> dict[str, Any]:
        """The options for `open_store`; with TLS they trust the server's authority."""
        client = {"endpoint_url": self.endpoint_url, "region_name": REGION}
        options: dict[str, Any] = {"key": self.key, "secret": self.secret, "client_kwargs": client}
        if self.authority is not None:
            client["verify"] = str(self.authority)
            # Puts over TLS would be sent in chunks with a checksum behind them. The server answers before it has read
            # the end of the last chunk, and refuses an end that arrives late as a malformed next request.
            options["config_kwargs"] = {"request_checksum_calculation": "when_required"}
        return options

    def start(self) -> None:
        """Start or restart the server on the same port and data; returns when it answers."""
        self.process.start(self._answers)

    def stop(self) -> None:
        """Stop the server gracefully; no effect if it does not run."""
        self.process.stop()

    def kill(self) -> None:
        """Kill the server (SIGKILL)."""
        self.process.kill()

    def _answers(self) -> bool:
        if self.port not in self.process.listening_ports:
            return False
        trust = None if self.authority is None else ssl.create_default_context(cafile=self.authority)
        try:
            urllib.request.urlopen(self.endpoint_url, timeout=1, context=trust).close()
        except urllib.error.HTTPError as answer:
            # A refusal of the unsigned request is an answer.
            answer.close()
        except OSError:
            return False
        return True


def build() -> Path:
    """Path of the server's binary, built into the cache if missing.

    Raises:
        MissingToolchainError: there is no Go toolchain.
    """
    go = find_tool("go", "the S3 server", "https://go.dev/dl")
    toolchain = subprocess.run([go, "version"], capture_output=True, check=True, text=True).stdout
    command = [go, "install", "-trimpath", "-ldflags", "-s -w", f"{MODULE}@{VERSION}"]

    def install(folder: Path) -> None:
        environment = os.environ | {"GOBIN": str(folder), "CGO_ENABLED": "0"}
        subprocess.run(command, env=environment, check=True, stdin=subprocess.DEVNULL)

    return kept(f"versitygw-{VERSION}", f"{command[1:]} {toolchain}", install) / "versitygw"


def launch(
    folder: Path, port: int, credentials: Credentials | None = None, certificates: Certificates | None = None
) -> S3Server:
    """A started server over `folder`; each first-level folder in it is a bucket.

    Args:
        folder: the data; the log is written beside it.
        port: on loopback.
        credentials: new ones by default.
        certificates: TLS with these; without TLS by default.

    Raises:
        MissingToolchainError: the server cannot be built here.
        PortTakenError: another process listens on the port.
        ServerStartError: the server does not start.
    """
    binary = build()
    credentials = credentials or Credentials()
    tls = [] if certificates is None else ["--cert", str(certificates.server), "--key", str(certificates.server)]
    # Connections stay open, as those of S3 do.
    command = [str(binary), "--port", f"{HOST}:{port}", "--quiet", "--keep-alive", *tls, "posix", str(folder)]
    environment = os.environ | {"ROOT_ACCESS_KEY": credentials.key, "ROOT_SECRET_KEY": credentials.secret}
    server = S3Server(
        port,
        credentials,
        None if certificates is None else certificates.authority,
        ServerProcess("the S3 server", command, folder.parent / "s3-server.log", environment),
    )
    server.start()
    return server


@contextmanager
def running(folder: Path, certificates: Certificates | None = None) -> Iterator[S3Server]:
    """A server over `folder` on a free port until the block ends; see `launch`."""
    server = on_free_ports(1, lambda ports: launch(folder, ports[0], certificates=certificates))
    try:
        yield server
    finally:
        server.stop()


if __name__ == "__main__":
    try:
        print(build())
    except MissingToolchainError as missing:
        sys.exit(str(missing))
