"""Headless Chromium: a page's document, its screenshot, and its network requests.

``ensure()`` finds the browser, or installs it if this process is root. Its requests go to a recording proxy.
"""

from __future__ import annotations

import shutil
import socketserver
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.real.processes import HOST
from tests.real.toolchain import MissingToolchainError, apt_install

NAMES = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT_S = 60

# No background traffic, and no sandbox, which does not work for root.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-domain-reliability",
    "--disable-field-trial-config",
    "--disable-features=NetworkTimeServiceQuerying,OptimizationHints,MediaRouter,Translate",
    "--no-pings",
    "--hide-scrollbars",
)
# Hosts of Chromium's own requests, which no flag stops: clock, updates, accounts. No page refers to these hosts.
_OWN_HOSTS = ("clients2.google.com", "update.googleapis.com", "accounts.google.com")


def find() -> Path | None:
    """Path of the installed browser, if any."""
    found = (shutil.which(name) for name in NAMES)
    return next((Path(path) for path in found if path is not None), None)


def ensure() -> Path:
    """Path of the browser; installed by apt-get if it is missing and this process is root.

    Raises:
        MissingToolchainError: the browser is missing and cannot be installed here, or apt-get does not find it.
    """
    there = find()
    if there is not None:
        return there
    apt_install("chromium", "the page's test")
    there = find()
    if there is None:
        raise MissingToolchainError("apt-get installed chromium, but it is not on the path")
    return there


@dataclass(frozen=True)
class Seen:
    """A loaded page.

    Attributes:
        dom: the document after loading.
        screenshot: PNG file.
        asked: first lines of the page's network requests.
    """

    dom: str
    screenshot: Path
    asked: tuple[str, ...]


@dataclass(frozen=True)
class Browser:
    """An installed browser.

    Attributes:
        program: path of the executable.
        folder: takes profiles and screenshots.
    """

    program: Path
    folder: Path

    def look(self, page: Path, *, width: int = 1200, height: int = 3200, dark: bool = False) -> Seen:
        """Load a local file.

        Args:
            page: HTML file.
            width: of the window, in pixels.
            height: of the window, in pixels.
            dark: whether the browser prefers dark colours.
        """
        scheme = "--blink-settings=preferredColorScheme=" + ("0" if dark else "1")
        shot = Path(tempfile.mkstemp(suffix=".png", prefix=f"{page.stem}-", dir=self.folder)[1])
        with _recording() as (port, asked):
            # Requests to this machine go through the proxy too; the page itself is a file.
            proxy = (f"--proxy-server=http://{HOST}:{port}", "--proxy-bypass-list=<-loopback>")
            dom = self._run(
                page, *proxy, scheme, f"--window-size={width},{height}", f"--screenshot={shot}", "--dump-dom"
            )
        return Seen(dom, shot, tuple(line for line in asked if not any(host in line for host in _OWN_HOSTS)))

    def _run(self, page: Path, *options: str) -> str:
        profile = tempfile.mkdtemp(prefix="profile-", dir=self.folder)
        try:
            done = subprocess.run(
                [str(self.program), *_FLAGS, f"--user-data-dir={profile}", *options, page.as_uri()],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=True,
            )
        finally:
            shutil.rmtree(profile, ignore_errors=True)
        return done.stdout


@contextmanager
def _recording() -> Iterator[tuple[int, list[str]]]:
    """A proxy that answers every request with 502: its port, and the first lines of the requests."""
    asked: list[str] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            line = self.rfile.readline().decode("latin-1").strip()
            if line:
                asked.append(line)
                self.wfile.write(b"HTTP/1.1 502 closed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    with socketserver.ThreadingTCPServer((HOST, 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.server_address[1], asked
        finally:
            server.shutdown()
            thread.join()
