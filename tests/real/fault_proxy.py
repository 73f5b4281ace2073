"""A proxy on loopback between an S3 client and a real server that injects faults by rules.

::

    client ──▶ rules that match: wait, drop, refuse ──▶ server ──▶ rules that match: wait, drop, spoil ──▶ client

The ``Host`` header passes, so signatures stay valid. A client's timeout does not cancel its request:
a delayed or held request still reaches the server, as on a network.

In a test: ``with FaultProxy(server.endpoint_url) as proxy: proxy.arm(Rule(Fault.DROP_ANSWER, "PUT"))``.
As a process of its own, ``python -m tests.real.fault_proxy UPSTREAM [SEED]`` prints one line of JSON,
``{"url": …, "control": …}``, and accepts at the control URL ``PUT /rules`` (a list of rules as JSON
objects), ``POST /release``, ``GET /fired`` (count of each fault). The process ends on SIGTERM, and with its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import hashlib
import hmac
import io
import json
import os
import random
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from urllib.parse import unquote

import aiohttp
import yarl
from aiohttp import web

T = TypeVar("T")

_HOP_BY_HOP = ("Connection", "Keep-Alive", "Transfer-Encoding", "Expect")
_CODES = {404: "NoSuchUpload", 429: "TooManyRequests", 500: "InternalError", 503: "SlowDown"}
_LARGEST_BODY = 1 << 30


class Fault(enum.StrEnum):
    """Faults that a rule injects into matching requests."""

    DELAY_REQUEST = "delay request"
    """The request reaches the server after `seconds`."""
    DELAY_ANSWER = "delay answer"
    """The server's answer reaches the client after `seconds`."""
    DROP_REQUEST = "drop request"
    """The connection is reset, the server sees nothing."""
    DROP_ANSWER = "drop answer"
    """The server executes the request, the connection is reset."""
    DUPLICATE = "duplicate"
    """The client gets its answer; the server gets the request once more `seconds` later."""
    REFUSE = "refuse"
    """The client gets `status`, the server sees nothing."""
    SPOIL_ANSWER = "spoil answer"
    """The server executes the request, the client gets `status`."""
    THROTTLE = "throttle"
    """Bodies pass at `bytes_per_s`, both ways."""
    HANG = "hang"
    """The request waits until `FaultProxy.release`, then goes on to the server."""
    FORGET_CONDITION = "forget condition"
    """``If-None-Match`` is removed and the request signed anew: a store without put-if-absent."""


@dataclass(frozen=True)
class Rule:
    """A fault, and the requests to inject it into.

    Attributes:
        fault: kind of fault.
        method: HTTP method; "" for any.
        key: regular expression, searched in the unquoted ``/bucket/key?query``.
        first: number of the first match with the fault, counted from 1.
        times: number of matches with the fault; None: all from `first` on.
        probability: of the fault at each of these matches, by the proxy's seed.
        seconds: of a delay, or until a duplicate.
        status: HTTP status of a refusal or a spoiled answer.
        bytes_per_s: of a throttled body.
    """

    fault: Fault
    method: str = ""
    key: str = ""
    first: int = 1
    times: int | None = None
    probability: float = 1.0
    seconds: float = 0.0
    status: int = 500
    bytes_per_s: int = 1 << 20


@dataclass
class _Armed:
    """A rule, and its number of matches so far."""

    rule: Rule
    matches: int = 0

    def draws(self, method: str, target: str, draw: random.Random) -> bool:
        """Whether to inject the fault into this request; counts the match."""
        rule = self.rule
        if rule.method not in ("", method) or not re.search(rule.key, target):
            return False
        passed, self.matches = self.matches - rule.first + 1, self.matches + 1
        return passed >= 0 and (rule.times is None or passed < rule.times) and draw.random() < rule.probability


class FaultProxy:
    """A running proxy; its server is a thread of this process. Use it as a context manager."""

    def __init__(self, upstream: str, *, secret: str = "", seed: int = 0) -> None:
        """Prepare a proxy; nothing listens yet.

        Args:
            upstream: endpoint URL of the server.
            secret: the client's secret key; needed only for FORGET_CONDITION, because conditions are signed.
            seed: of all probabilities.
        """
        self.url = ""
        self.fired: Counter[Fault] = Counter()
        """Number of injections of each fault."""
        self._upstream = upstream.rstrip("/")
        self._secret = secret
        self._random = random.Random(seed)
        self._armed: list[_Armed] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._open = 0
        self._late: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._await(self._start())
        return self

    def __exit__(self, *exception: object) -> None:
        self.disarm()
        self._await(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def arm(self, *rules: Rule) -> None:
        """Replace all rules by these. Every matching rule applies."""
        self._armed = [_Armed(rule) for rule in rules]

    def disarm(self) -> None:
        """Remove all rules, and release held requests."""
        self.arm()
        self.release()

    def release(self) -> None:
        """Release held requests."""
        self._loop.call_soon_threadsafe(self._let_go)

    def drain(self) -> None:
        """Wait until all requests through this proxy are done, late duplicates included."""
        self._await(self._drained())

    async def _start(self) -> None:
        self._released = asyncio.Event()
        self._client = aiohttp.ClientSession(
            auto_decompress=False,
            connector=aiohttp.TCPConnector(limit=0),
            skip_auto_headers=["User-Agent", "Accept", "Accept-Encoding", "Content-Type"],
        )
        self._runner, self.url = await _listen(self._handle)

    async def _stop(self) -> None:
        await self._drained()
        await self._runner.cleanup()
        await self._client.close()

    async def _drained(self) -> None:
        while self._open or self._late:
            await asyncio.sleep(0.01)

    def _let_go(self) -> None:
        self._released.set()
        self._released = asyncio.Event()

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _drawn(self, method: str, target: str) -> list[Rule]:
        """The rules that apply to a request."""
        drawn = [armed.rule for armed in self._armed if armed.draws(method, target, self._random)]
        self.fired.update(rule.fault for rule in drawn)
        return drawn

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self._open += 1
        try:
            body = await request.read()
            return await self._faulty(request, body)
        except (aiohttp.ClientError, ConnectionError):
            return _reset(request)
        finally:
            self._open -= 1

    async def _faulty(self, request: web.Request, body: bytes) -> web.StreamResponse:
        rules = self._drawn(request.method, unquote(request.raw_path))
        headers = {name: value for name, value in request.headers.items() if name not in _HOP_BY_HOP}
        for rule in rules:
            match rule.fault:
                case Fault.HANG:
                    await self._released.wait()
                case Fault.DELAY_REQUEST:
                    await asyncio.sleep(rule.seconds)
                case Fault.THROTTLE:
                    await asyncio.sleep(len(body) / rule.bytes_per_s)
                case Fault.FORGET_CONDITION:
                    headers = _unconditional(request, headers, self._secret)
                case Fault.DROP_REQUEST:
                    return _reset(request)
                case Fault.REFUSE:
                    return _error(rule.status)
                case _:
                    pass
        answer = await self._forward(request, headers, body)
        for rule in rules:
            match rule.fault:
                case Fault.DUPLICATE:
                    self._deliver_late(rule.seconds, request, headers, body)
                case Fault.DELAY_ANSWER:
                    await asyncio.sleep(rule.seconds)
                case Fault.THROTTLE:
                    await asyncio.sleep((answer.content_length or 0) / rule.bytes_per_s)
                case Fault.DROP_ANSWER:
                    return _reset(request)
                case Fault.SPOIL_ANSWER:
                    return _error(rule.status)
                case _:
                    pass
        return answer

    async def _forward(self, request: web.Request, headers: Mapping[str, str], body: bytes) -> web.Response:
        url = yarl.URL(self._upstream + request.raw_path, encoded=True)
        whole = {**headers, "Content-Length": str(len(body))}
        async with self._client.request(
            request.method, url, headers=whole, data=io.BytesIO(body), allow_redirects=False
        ) as answer:
            kept = {name: value for name, value in answer.headers.items() if name not in _HOP_BY_HOP}
            return web.Response(status=answer.status, reason=answer.reason, headers=kept, body=await answer.read())

    def _deliver_late(self, seconds: float, request: web.Request, headers: Mapping[str, str], body: bytes) -> None:
        async def deliver() -> None:
            await asyncio.sleep(seconds)
            await self._forward(request, headers, body)

        task = asyncio.create_task(deliver())
        self._late.add(task)
        task.add_done_callback(self._late.discard)


def _reset(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _error(status: int) -> web.Response:
    code = _CODES.get(status, "Error")
    body = f"<Error><Code>{code}</Code><Message>made by the fault proxy</Message></Error>"
    return web.Response(status=status, text=body, content_type="application/xml")


def _unconditional(request: web.Request, headers: Mapping[str, str], secret: str) -> dict[str, str]:
    """The headers without ``If-None-Match``, signed anew (AWS Signature Version 4, "Create a signed request")."""
    kept = {name.lower(): value for name, value in headers.items() if name.lower() != "if-none-match"}
    given = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=([^/]+)/([^,]+), ?SignedHeaders=([^,]+), ?Signature=\w+", kept["authorization"]
    )
    assert given is not None, "the request is signed in a way that the proxy does not know"
    key_id, scope, names = given[1], given[2], [name for name in given[3].split(";") if name != "if-none-match"]
    path, _, query = request.raw_path.partition("?")
    pairs = sorted(pair if "=" in pair else f"{pair}=" for pair in query.split("&") if pair)
    lines = [f"{name}:{' '.join(kept[name].split())}" for name in names]
    payload = kept["x-amz-content-sha256"]
    canonical = "\n".join([request.method, path, "&".join(pairs), *lines, "", ";".join(names), payload])
    to_sign = "\n".join(["AWS4-HMAC-SHA256", kept["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    signing_key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        signing_key = hmac.digest(signing_key, part.encode(), "sha256")
    signature = hmac.digest(signing_key, to_sign.encode(), "sha256").hex()
    kept["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={key_id}/{scope}, SignedHeaders={';'.join(names)}, Signature={signature}"
    )
    return kept


async def _listen(
    handler: Callable[[web.Request], Coroutine[Any, Any, web.StreamResponse]],
) -> tuple[web.AppRunner, str]:
    """A server on a free port of loopback, and its URL."""
    app = web.Application(client_max_size=_LARGEST_BODY)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


def rules_from_json(body: str) -> Sequence[Rule]:
    """Rules from the control's format: a list of objects with the names of `Rule`'s attributes."""
    return [Rule(**{**fields, "fault": Fault(fields["fault"])}) for fields in json.loads(body)]


def rules_to_json(rules: Sequence[Rule]) -> str:
    """Rules for the control of a proxy in another process."""
    return json.dumps([dataclasses.asdict(rule) for rule in rules])


async def _serve_control(proxy: FaultProxy) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)

    async def control(request: web.Request) -> web.StreamResponse:
        match (request.method, request.path):
            case ("PUT", "/rules"):
                proxy.arm(*rules_from_json(await request.text()))
            case ("POST", "/release"):
                proxy.release()
            case ("GET", "/fired"):
                return web.json_response(proxy.fired)
            case _:
                return web.Response(status=404)
        return web.Response()

    runner, url = await _listen(control)
    print(json.dumps({"url": proxy.url, "control": url}), flush=True)
    parent = os.getppid()
    while not ended.is_set() and os.getppid() == parent:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), 1)
    await runner.cleanup()


if __name__ == "__main__":
    # The secret comes from the environment: arguments are visible to everyone on the machine.
    _seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with FaultProxy(sys.argv[1], secret=os.environ.get("FAULT_PROXY_SECRET", ""), seed=_seed) as _proxy:
        asyncio.run(_serve_control(_proxy))
