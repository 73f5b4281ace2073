"""Callbacks: retried while a server fails, never waited for by the loop, given up within bounds; no secret is shown."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ingest.config.load import JobConfig, load_config
from ingest.config.models import CallbackConfig
from ingest.listeners.on_commit import (
    MOST_OFFSETS,
    Call,
    CommitCallbacks,
    Deliveries,
    call_of,
    delivering,
    transport_of,
)
from ingest.listeners.webhook import CallbackTransport, CommandTransport, NotDeliveredError, UrlTransport
from ingest.protocol.events import Completed, EpochResult
from timeline.decision import Decision, Outcome
from timeline.epoch import EpochRef, Manifest, OffsetRange, Part, ShardCount
from timeline.errors import ConfigError

SECRET = "hunter2-Xq9"
INSTANT = "20260301101530123"


@dataclass
class Heard:
    """Requests that a server received, and its answers: status codes in turn, the last one repeatedly; 0: no answer."""

    answers: list[int] = field(default_factory=lambda: [200])
    bodies: list[dict[str, object]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)
    url: str = ""


@pytest.fixture
def heard() -> Iterator[Heard]:
    heard = Heard()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = heard.answers.pop(0) if len(heard.answers) > 1 else heard.answers[0]
            heard.bodies.append(json.loads(body))
            heard.headers.append(dict(self.headers))
            if status == 0:
                heard.hold.wait(30)
                return
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", heard.url)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        heard.url = f"http://127.0.0.1:{server.server_port}/hook/{SECRET}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield heard
        heard.hold.set()
        server.shutdown()
        thread.join()


@dataclass
class Counts:
    """See CallCounter."""

    delivered: int = 0
    given_up: int = 0
    retried: int = 0
    expected: list[str] = field(default_factory=list)

    def called(self, callback: str, *, is_delivered: bool | None) -> None:
        self.retried += is_delivered is None
        self.delivered += is_delivered is True
        self.given_up += is_delivered is False

    def expect_calls(self, callback: str) -> None:
        self.expected.append(callback)


@pytest.fixture(autouse=True)
def warnings(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "ingest")
    return caplog


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    own = [record for record in caplog.records if record.name.startswith("ingest.")]
    return [record.getMessage() for record in own if record.levelno >= logging.WARNING]


def completed(epoch: int = 7, *, shards: int = 1, is_recovered: bool = False) -> Completed:
    ref = EpochRef(epoch, INSTANT, 3)
    decision = Decision(
        epoch, Outcome.COMMIT, INSTANT, "20260301101531000", 3, "process 1 on x", "written", "t", rows=9
    )
    counts = (ShardCount("a", 10, 9, 1, {"malformed JSON": 1}),)
    parts = (Part("delta:lake", ref, 8, 100, dropped=1), Part("quarantine", ref, 1, 20))
    ranges = tuple(OffsetRange(f"s{number}", 5, 15) for number in range(shards))
    return Completed(EpochResult(decision, Manifest(ref, counts, parts), ranges), is_recovered)


def call(epoch: int = 7) -> Call:
    return call_of("job", completed(epoch), 0, 1.5)


def through(
    transport: CallbackTransport, *, retries: int = 3, epochs: tuple[int, ...] = (7,), wait_s: float = 20.0
) -> Counts:
    """Deliver calls to the end, as a job does.

    Args:
        transport: delivers one call.
        retries: retries of each call.
        epochs: one call for each.
        wait_s: longest wait at the end.
    """
    counts = Counts()
    deliveries = Deliveries("hook", transport, retries=retries, counter=counts, first_wait_s=0.01)
    for epoch in epochs:
        deliveries.add(call(epoch))
    deliveries.end(time.monotonic() + wait_s)
    return counts


def url_courier(heard: Heard, timeout_s: float = 10.0) -> UrlTransport:
    return UrlTransport(heard.url, {"Authorization": f"Bearer {SECRET}"}, timeout_s=timeout_s)


def command(*arguments: str, timeout_s: float = 20.0) -> CommandTransport:
    return CommandTransport([sys.executable, "-c", *arguments], timeout_s=timeout_s)


class TestBody:
    def test_it_tells_what_was_committed_from_where_and_when(self) -> None:
        told = json.loads(call_of("job", completed(), 1_772_360_132_000, 1.5).body)
        assert told == {
            "job": "job",
            "epoch": 7,
            "instant": INSTANT,
            "idempotency_key": f"job/7/{INSTANT}",
            "recovered": False,
            "read": 10,
            "rows": 9,
            "rejected": 1,
            "files": 0,
            "bytes": 120,
            "targets": {
                "delta:lake": {"rows": 8, "dropped": 1, "rejected": 0, "files": 0, "bytes": 100},
                "quarantine": {"rows": 1, "dropped": 0, "rejected": 0, "files": 0, "bytes": 20},
            },
            "offsets": {"s0": {"from": 5, "until": 15}},
            "offsets_left_out": 0,
            "times": {
                "requested": "2026-03-01T10:15:30.123Z",
                "decided": "2026-03-01T10:15:31.000Z",
                "completed": "2026-03-01T10:15:32.000Z",
            },
            "seconds": 1.5,
        }

    def test_a_recovered_epoch_says_so(self) -> None:
        told = json.loads(call_of("job", completed(is_recovered=True), 0, None).body)
        assert (told["recovered"], told["seconds"]) == (True, None)

    def test_it_stays_small_however_many_shards_there_are(self) -> None:
        told = json.loads(call_of("job", completed(shards=MOST_OFFSETS + 5), 0, 1.5).body)
        assert (len(told["offsets"]), told["offsets_left_out"]) == (MOST_OFFSETS, 5)


class TestUrl:
    def test_it_is_posted_once_with_headers_and_key(self, heard: Heard) -> None:
        assert through(url_courier(heard)) == Counts(delivered=1, expected=["hook"])
        (body,), (headers,) = heard.bodies, heard.headers
        assert body["epoch"] == 7
        assert headers["Idempotency-Key"] == f"job/7/{INSTANT}"
        assert headers["Content-Type"] == "application/json"
        assert headers["Authorization"] == f"Bearer {SECRET}"

    @pytest.mark.parametrize("answers", [[500, 200], [503, 429, 408, 204]])
    def test_it_is_posted_again_with_the_same_key_until_it_is_taken(self, heard: Heard, answers: list[int]) -> None:
        tries = len(answers)
        heard.answers = answers
        counts = through(url_courier(heard))
        assert (counts.delivered, counts.retried, counts.given_up) == (1, tries - 1, 0)
        assert len({headers["Idempotency-Key"] for headers in heard.headers}) == 1 < len(heard.headers)

    @pytest.mark.parametrize("status", [400, 401, 404, 302])
    def test_an_answer_that_would_be_the_same_again_is_not_asked_for_again(
        self, heard: Heard, status: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        heard.answers = [status]
        assert through(url_courier(heard)) == Counts(given_up=1, expected=["hook"])
        assert len(heard.bodies) == 1
        (warning,) = said(caplog)
        assert f"it answered {status}" in warning

    def test_what_is_given_up_is_one_warning_without_a_secret(
        self, heard: Heard, caplog: pytest.LogCaptureFixture
    ) -> None:
        heard.answers = [500]
        counts = through(url_courier(heard), retries=2)
        assert (counts.given_up, counts.retried, len(heard.bodies)) == (1, 2, 3)
        assert said(caplog) == [
            f"hook was not told of epoch 7 (instant {INSTANT}): it answered 500 (3 tries). "
            "The epoch is committed all the same"
        ]
        assert SECRET not in caplog.text

    def test_nobody_who_listens_is_given_up(self, caplog: pytest.LogCaptureFixture) -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            port = closed.getsockname()[1]
        transport = UrlTransport(f"http://127.0.0.1:{port}/{SECRET}", {}, timeout_s=5)
        assert through(transport, retries=1).given_up == 1
        assert "Connection refused (2 tries)" in said(caplog)[0]
        assert SECRET not in caplog.text

    def test_a_server_that_hangs_is_given_up_after_the_timeout(
        self, heard: Heard, caplog: pytest.LogCaptureFixture
    ) -> None:
        heard.answers = [0]
        assert through(url_courier(heard, timeout_s=0.2), retries=1).given_up == 1
        assert "no answer within 0.2 s (2 tries)" in said(caplog)[0]

    def test_a_server_that_sends_a_byte_now_and_then_does_not_hold_the_call(self) -> None:
        ended = threading.Event()

        def drip(server: socket.socket) -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                while not ended.wait(0.05):
                    try:
                        connection.sendall(b"X: y\r\n")
                    except OSError:
                        return

        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=drip, args=(server,))
            thread.start()
            transport = UrlTransport(f"http://127.0.0.1:{server.getsockname()[1]}/", {}, timeout_s=0.3)
            with pytest.raises(NotDeliveredError, match="no answer within"):
                transport.deliver("key", b"{}", {})
            ended.set()
            thread.join()

    def test_what_is_no_http_is_given_up_in_words(self) -> None:
        def answer(server: socket.socket) -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=answer, args=(server,))
            thread.start()
            transport = UrlTransport(f"http://127.0.0.1:{server.getsockname()[1]}/", {}, timeout_s=5)
            with pytest.raises(NotDeliveredError, match="BadStatusLine"):
                transport.deliver("key", b"{}", {})
            thread.join()


class TestCommand:
    def test_it_gets_the_body_on_stdin_and_the_ids_in_its_environment(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        script = f"import os, sys; open({str(out)!r}, 'w').write(sys.stdin.read() + os.environ['TIDELINE_INSTANT'])"
        assert through(command(script)).delivered == 1
        assert out.read_text() == call().body.decode() + INSTANT

    def test_one_that_fails_is_run_again_and_its_output_is_told_nowhere(self, caplog: pytest.LogCaptureFixture) -> None:
        counts = through(command("import sys; print('a'); sys.exit('no such table')"), retries=2)
        assert (counts.given_up, counts.retried) == (1, 2)
        assert "it ended with exit code 1 (3 tries)" in said(caplog)[0] and "no such table" not in caplog.text

    def test_one_that_fails_at_first_is_delivered(self, tmp_path: Path) -> None:
        flag = tmp_path / "flag"
        script = f"import os, sys; p = {str(flag)!r}; e = os.path.exists(p); open(p, 'w'); sys.exit(not e)"
        counts = through(command(script))
        assert (counts.delivered, counts.retried) == (1, 1)

    def test_one_that_hangs_is_killed_with_what_it_has_started(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        out = tmp_path / "pids"
        script = (
            "import os, subprocess, time\n"
            "child = subprocess.Popen(['sleep', '600'])\n"
            f"open({str(out)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
            "time.sleep(600)"
        )
        assert through(command(script, timeout_s=8.0), retries=0).given_up == 1
        assert "it ran for more than 8 s and was killed" in said(caplog)[0]
        for pid in map(int, out.read_text().split()):
            assert is_over(pid)

    def test_one_that_prints_much_neither_blocks_nor_fills_memory_or_log(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        script = "import sys\nfor _ in range(300): sys.stdout.write('x' * 100_000)\nsys.exit(3)"
        assert through(command(script), retries=0).given_up == 1
        (warning,) = said(caplog)
        assert "exit code 3" in warning and len(warning) < 1000

    def test_one_that_reads_nothing_is_no_failure(self) -> None:
        assert through(command("pass")).delivered == 1

    def test_one_that_a_signal_ends_is_told(self, caplog: pytest.LogCaptureFixture) -> None:
        assert through(command("import os; os.kill(os.getpid(), 15)"), retries=0).given_up == 1
        assert "it ended with signal SIGTERM" in said(caplog)[0]

    def test_one_that_is_not_there_is_refused_at_the_start(self) -> None:
        with pytest.raises(ConfigError, match="no program 'no-such-program'"):
            CommandTransport.found(["no-such-program"], timeout_s=1)

    def test_one_that_vanishes_is_given_up_at_once(self, tmp_path: Path) -> None:
        counts = through(CommandTransport([str(tmp_path / "gone")], timeout_s=1))
        assert (counts.given_up, counts.retried) == (1, 0)


def is_over(pid: int) -> bool:
    """Whether a process ends within 10 s; a zombie has ended."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        os.sched_yield()
    return False


@dataclass
class Held:
    """A transport that holds its first call until `cut`."""

    began: threading.Event = field(default_factory=threading.Event)
    was_cut: threading.Event = field(default_factory=threading.Event)
    calls: int = 0

    def deliver(self, key: str, body: bytes, environment: object) -> None:
        self.calls += 1
        self.began.set()
        self.was_cut.wait(30)
        raise NotDeliveredError("held")

    def cut(self) -> None:
        self.was_cut.set()


class TestBounds:
    def test_the_loop_never_waits_and_a_full_queue_gives_up_the_newest(self, caplog: pytest.LogCaptureFixture) -> None:
        held, counts = Held(), Counts()
        deliveries = Deliveries("hook", held, retries=5, counter=counts, most_waiting=2)
        deliveries.add(call(0))
        assert held.began.wait(10)
        for epoch in (1, 2, 3, 4):
            deliveries.add(call(epoch))
        assert counts.given_up == 2
        assert [re.findall(r"epoch (\d)", line)[0] for line in said(caplog)] == ["3", "4"]
        deliveries.end(time.monotonic())

    def test_what_nobody_foresaw_ends_one_call_and_not_the_later_ones(self, caplog: pytest.LogCaptureFixture) -> None:
        class Odd(Held):
            def deliver(self, key: str, body: bytes, environment: object) -> None:
                self.calls += 1
                if self.calls <= 2:
                    raise UnicodeError(SECRET)

        odd = Odd()
        counts = through(odd, retries=1, epochs=(1, 2))
        assert (counts.given_up, counts.delivered) == (1, 1)
        (line,) = said(caplog)
        assert "unforeseen UnicodeError" in line and SECRET not in line

    def test_a_call_whose_connection_took_too_long_is_not_sent(
        self, heard: Heard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        connect = HTTPConnection.connect

        def slowly(connection: HTTPConnection) -> None:
            until = time.monotonic() + 20
            while any(isinstance(each, threading.Timer) for each in threading.enumerate()):
                assert time.monotonic() < until, "nobody has ended it"
                time.sleep(0.01)
            connect(connection)

        monkeypatch.setattr(HTTPConnection, "connect", slowly)
        with pytest.raises(NotDeliveredError, match="no answer within"):
            url_courier(heard, timeout_s=0.1).deliver("key", b"{}", {})
        assert heard.bodies == []

    def test_the_end_waits_for_a_bounded_time_and_names_what_was_not_told(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        held, counts = Held(), Counts()
        deliveries = Deliveries("hook", held, retries=3, counter=counts, first_wait_s=0.01)
        for epoch in (1, 2, 3):
            deliveries.add(call(epoch))
        assert held.began.wait(10)
        deliveries.end(time.monotonic() + 0.1)
        assert held.calls == 1
        assert counts.given_up == 3
        first, rest = said(caplog)
        assert "epoch 1 (instant" in first
        assert rest == "hook was not told of epoch 2 to 3: the job ended before"

    def test_the_end_does_not_sit_out_the_wait_for_another_try(self, heard: Heard) -> None:
        heard.answers = [500]
        counts = Counts()
        deliveries = Deliveries("hook", url_courier(heard), retries=50, counter=counts, first_wait_s=3600)
        deliveries.add(call())
        while not counts.retried:
            os.sched_yield()
        deliveries.end(time.monotonic())
        assert counts.given_up == 1

    @pytest.mark.parametrize("kind", ["command", "url"])
    def test_what_begins_while_the_job_ends_is_ended_too(self, kind: str, heard: Heard) -> None:
        heard.answers = [0]
        transport: CallbackTransport = (
            command("import time; time.sleep(600)") if kind == "command" else url_courier(heard)
        )
        transport.cut()
        with pytest.raises(NotDeliveredError):
            transport.deliver("key", b"{}", {})
        assert heard.bodies == []

    def test_one_callback_does_not_hold_up_another_one(self, heard: Heard) -> None:
        held, counts = Held(), Counts()
        slow = Deliveries("slow", held, retries=0, counter=Counts())
        quick = Deliveries("quick", url_courier(heard), retries=0, counter=counts)
        calls = CommitCallbacks("job", [slow, quick])
        calls(completed())
        assert held.began.wait(10)
        quick.end(time.monotonic() + 20)
        assert counts.delivered == 1
        calls.end(0.0)

    def test_calls_arrive_in_the_order_of_epochs(self, heard: Heard) -> None:
        through(url_courier(heard), epochs=tuple(range(30)))
        assert [body["epoch"] for body in heard.bodies] == list(range(30))


class TestJobFile:
    @pytest.fixture
    def load(self, tmp_path: Path) -> Callable[[str], JobConfig]:
        file = tmp_path / "job.yaml"

        def loaded(block: str) -> JobConfig:
            file.write_text(
                "name: x\nsource: {type: files, path: logs, format: json}\n"
                f"targets: [{{type: delta, path: lake}}]\non_commit: {block}\n"
            )
            return load_config(file, {"TOKEN": SECRET})

        return loaded

    def test_one_block_or_a_list_of_them(self, load: Callable[[str], JobConfig]) -> None:
        (one,) = load('{url: "https://example.test/x", headers: {Authorization: "Bearer ${TOKEN}"}}').on_commit
        assert one.headers == {"Authorization": f"Bearer {SECRET}"}
        first, second = load(
            "[{url: 'http://a:1/'}, {command: [notify, x], timeout: 2m, retries: 0, drain: 0s}]"
        ).on_commit
        assert (first.timeout, first.retries, first.drain) == (10.0, 5, 10.0)
        assert (second.command, second.timeout, second.retries, second.drain) == (("notify", "x"), 120.0, 0, 0.0)
        assert (first.place, second.place) == ("http://a:1", "notify")

    @pytest.mark.parametrize(
        ("block", "words"),
        [
            ("{}", "either url or command"),
            ("{url: 'http://a/', command: [x]}", "either url or command"),
            ("{ulr: 'http://a/'}", "ulr: unknown key; allowed are url, command, headers"),
            ("[{url: 'http://a/'}, {comand: [x]}]", "[1]comand: unknown key"),
            ("{url: 'ftp://a/'}", "http://host[:port]/path or https://"),
            (f"{{url: 'http://user:{SECRET}@a/'}}", "without user and password"),
            ("{url: 'http://a:99999/'}", "http://host[:port]/path"),
            ("{command: []}", "command"),
            ("{command: ['']}", "a program's name is needed"),
            ("{command: notify}", "command"),
            ("{command: [x], headers: {A: b}}", "headers are for a url"),
            (f'{{url: "http://a/", headers: {{A: "{SECRET}\\nB: c"}}}}', "values of one line"),
            (f"{{url: 'http://a/', headers: {{A: [{SECRET}]}}}}", "headers.A"),
            (f"{{url: 'http://a/', headers: {SECRET}}}", "headers"),
            ("{url: 'http://a/', timeout: 0s}", "timeout"),
            ("{url: 'http://a/', retries: -1}", "retries"),
            ("http://a/", "{url: …} or {command: [program, …]} is allowed"),
            ("[]", "{url: …} or {command: [program, …]} is allowed"),
        ],
    )
    def test_what_is_wrong_is_named_without_a_secret(
        self, load: Callable[[str], JobConfig], block: str, words: str
    ) -> None:
        with pytest.raises(ConfigError) as refused:
            load(block)
        assert "on_commit" in str(refused.value) and words in str(refused.value)
        assert SECRET not in str(refused.value)

    def test_nothing_secret_is_shown(self, load: Callable[[str], JobConfig]) -> None:
        config = load(f"[{{url: 'http://a/{SECRET}', headers: {{X: '{SECRET}'}}}}, {{command: [sh, {SECRET}]}}]")
        for part in (config, *config.on_commit, call()):
            assert SECRET not in f"{part!r} {part}"
        assert [each.place for each in config.on_commit] == ["http://a", "sh"]

    def test_a_stream_is_told_that_it_has_neither(self, tmp_path: Path) -> None:
        file = tmp_path / "job.yaml"
        file.write_text(
            "name: x\nsource: {type: stream}\ntargets: [{type: delta, path: lake}]\n"
            "metrics: {port: 0}\non_commit: {url: 'http://a/'}\n"
        )
        with pytest.raises(ConfigError) as refused:
            load_config(file, {})
        assert "metrics: not for a stream" in str(refused.value)
        assert "on_commit: not for a stream" in str(refused.value)

    def test_a_transport_is_what_the_block_says(self) -> None:
        assert isinstance(transport_of(CallbackConfig(url="http://a/")), UrlTransport)
        assert isinstance(transport_of(CallbackConfig(command=(sys.executable,))), CommandTransport)

    def test_metrics_know_each_callback_from_the_beginning(self) -> None:
        counts = Counts()
        with delivering("job", [CallbackConfig(url="http://a:1/x"), CallbackConfig(url="http://a:1/y")], counts):
            assert counts.expected == ["on_commit[0] http://a:1", "on_commit[1] http://a:1"]
