"""Values of metrics and the bound on their series; dashboard and alerts name only metrics that exist."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.openmetrics.exposition import generate_latest
from pydantic import BaseModel

from ingest.config.models import CallbackConfig, MetricsConfig
from ingest.execution.reasons import OTHER
from ingest.listeners.metrics.job_metrics import MOST_REASONS, JobMetrics
from ingest.listeners.metrics.lag import WORST, LagWatch
from ingest.listeners.metrics.server import serve
from ingest.protocol.events import (
    Completed,
    EpochOpened,
    EpochResult,
    Idle,
    Leased,
    LeftPending,
    PendingFound,
    Phase,
    PhaseBegan,
    PhaseDone,
    Planned,
    Renewed,
    RolledBack,
)
from ingest.sources.base import ShardEnd, SourcePlan, Unit
from tests.job import ROOT
from tests.waiting import wait_until
from tests.watched_run import Scraped, parsed, scrape
from timeline.decision import Decision, Outcome
from timeline.epoch import EpochRef, Manifest, OffsetRange, Part, Plan, Position, ShardCount
from timeline.errors import ConfigError, SourceError
from timeline.instant import format_time
from timeline.lease import LeaseObserver, take_lease
from timeline.stores.base import Retry
from timeline.stores.opening import open_store

DASHBOARD = ROOT / "monitoring" / "grafana-dashboard.json"
ALERTS = ROOT / "monitoring" / "alerts.yaml"
HOW_TO = ROOT / "docs" / "how-to" / "monitor-a-job.md"
NOW_S = 2_000_000_000.0


def no_ends() -> Any:
    raise AssertionError("the source is not asked")


def metrics(lag: LagWatch | None = None) -> JobMetrics:
    return JobMetrics("job", lag or LagWatch(no_ends), now_s=lambda: NOW_S)


def seen(of: JobMetrics) -> Scraped:
    return parsed(generate_latest(of.registry).decode())  # type: ignore[no-untyped-call]


def ref(epoch: int, age_s: float = 0.0) -> EpochRef:
    return EpochRef(epoch, format_time(round((NOW_S - age_s) * 1000)), 1)


def completed(of: EpochRef, *, is_recovered: bool = False, reasons: Mapping[str, int] | None = None) -> Completed:
    rejected = sum((reasons or {}).values())
    counts = (ShardCount("a", 10 + rejected, 10, rejected, reasons or {}),)
    parts = (Part("keyed", of, 7, 700, dropped=2, rejected=1), Part("quarantine", of, rejected + 1, 90))
    decision = Decision(of.epoch, Outcome.COMMIT, of.instant, of.instant, 1, "p", "written", "t", rows=10)
    return Completed(EpochResult(decision, Manifest(of, counts, parts)), is_recovered)


def planned(*sizes: int, behind: int = 0, shards: int = 0) -> Planned:
    ranges = tuple(OffsetRange(f"s{number}", 0, size) for number, size in enumerate(sizes))
    return Planned(0, SourcePlan(ranges, behind, shards), {})


def plan_of(of: EpochRef) -> Plan:
    return Plan(of, "job", "p", (), ("keyed", "quarantine"), {}, "t")


class TestCounts:
    def test_everything_that_can_rise_is_there_from_the_beginning(self) -> None:
        found = seen(metrics())
        for name in ("rows_read", "rows_committed", "rollbacks", "recommits", "fencing_rejections"):
            assert found(f"{name}_total") == 0, name
        assert found.labelled("epochs_total", "outcome") == {"committed": 0, "rolled_back": 0, "pending": 0}
        assert found("lease_state", state="none") == 1
        assert found("start_timestamp_seconds") == NOW_S
        assert found("last_completed_epoch") is None and found("offset_lag_sum", unit="bytes") is None

    def test_targets_have_their_series_before_their_first_row(self) -> None:
        of = metrics()
        of(EpochOpened(plan_of(ref(0))))
        assert seen(of).labelled("rows_written_total", "target") == {"keyed": 0, "quarantine": 0}

    def test_what_a_target_drops_and_refuses_is_counted(self) -> None:
        of = metrics()
        of(completed(ref(3), reasons={"id: not bigint": 4}))
        found = seen(of)
        assert found("rows_dropped_total", target="keyed") == 2
        assert found("written_bytes_total", target="keyed") == 700
        assert found.labelled("rows_rejected_total", "reason") == {
            "id: not bigint": 4,
            "refused by target keyed": 1,
        }

    def test_reasons_of_all_epochs_together_are_bounded(self) -> None:
        of = metrics()
        for epoch in range(10):
            of(completed(ref(epoch), reasons={f"reason {epoch} {number}": 1 for number in range(20)}))
        found = seen(of).labelled("rows_rejected_total", "reason")
        assert len(found) == MOST_REASONS + 1
        assert sum(found.values()) == 210
        assert found[OTHER] > 0

    def test_the_oldest_pending_instant_counts_until_it_is_settled(self) -> None:
        of = metrics()
        of(PendingFound((ref(0, 500).instant, ref(1, 300).instant)))
        of(EpochOpened(plan_of(ref(2, 5))))
        assert seen(of)("oldest_pending_instant_age_seconds") == 500
        of(RolledBack(ref(0, 500), ""))
        of(LeftPending(ref(1, 300), is_decided=True))
        assert seen(of)("oldest_pending_instant_age_seconds") == 300
        of(completed(ref(1, 300), is_recovered=True))
        assert seen(of)("oldest_pending_instant_age_seconds") == 5
        of(completed(ref(2, 5)))
        assert seen(of)("oldest_pending_instant_age_seconds") == 0

    def test_a_clock_behind_the_writers_gives_no_negative_age(self) -> None:
        of = metrics()
        of(PendingFound((ref(0, -3600).instant,)))
        assert seen(of)("oldest_pending_instant_age_seconds") == 0

    def test_the_lease_shows_what_it_is_now(self, tmp_path: Path) -> None:
        store, of = open_store(str(tmp_path)), metrics()

        def take(*, force: bool = False) -> Any:
            observer = LeaseObserver(store, Retry())
            return take_lease(observer, job="job", ttl_ms=60_000, force=force)

        lease = take()
        of(Leased(lease))
        assert seen(of).labelled("lease_state", "state") == {"none": 0, "held": 1, "lost": 0, "released": 0}
        other = take(force=True)
        lease.send_heartbeat()
        assert seen(of)("lease_state", state="lost") == 1
        of(Leased(other))
        other.release()
        assert seen(of)("lease_state", state="released") == 1

    def test_each_phase_is_measured(self) -> None:
        clock_s = [10.0]
        of = JobMetrics("job", LagWatch(no_ends), monotonic=lambda: clock_s[0])
        of(PhaseBegan(Phase.WRITE))
        clock_s[0] = 12.5
        of(PhaseDone(Phase.WRITE))
        found = seen(of)
        assert found("phase_seconds_sum", phase="write") == 2.5
        assert found("phase_seconds_count", phase="write") == 1

    def test_signs_of_life_that_fail_are_counted(self) -> None:
        of = metrics()
        for is_done in (True, False, False):
            of(Renewed(is_done))
        assert seen(of)("lease_renewal_failures_total") == 2

    def test_calls_are_counted_by_callback(self) -> None:
        of = metrics()
        of.expect_calls("a")
        of.called("a", is_delivered=None)
        of.called("a", is_delivered=False)
        found = seen(of)
        assert found("callbacks_total", callback="a", outcome="given_up") == 1
        assert found("callbacks_total", callback="a", outcome="delivered") == 0
        assert found("callback_retries_total", callback="a") == 1


class TestLag:
    def test_a_plan_that_takes_everything_tells_each_shard(self) -> None:
        of = metrics()
        of(planned(30, 10))
        found = seen(of)
        assert found("offset_lag_sum", unit="bytes") == 40
        assert found.labelled("offset_lag", "shard") == {"s0": 30, "s1": 10}
        assert found("shards_behind") == 2
        of(completed(ref(0)))
        found = seen(of)
        assert (found("offset_lag_sum", unit="bytes"), found.labelled("offset_lag", "shard")) == (0, {})

    def test_only_the_worst_shards_have_a_series_and_the_sum_holds_all(self) -> None:
        of = metrics()
        of(planned(*range(1, 1001)))
        found = seen(of)
        assert set(found.labelled("offset_lag", "shard").values()) == set(map(float, range(1001 - WORST, 1001)))
        assert found("offset_lag_sum", unit="bytes") == 500_500

    def test_a_recovered_epoch_is_none_of_the_plan(self) -> None:
        of = metrics()
        of(planned(30))
        of(completed(ref(0), is_recovered=True))
        assert seen(of)("offset_lag_sum", unit="bytes") == 30

    def test_an_idle_job_is_not_behind(self) -> None:
        of = metrics()
        of(planned(30))
        of(Idle(1.0))
        assert seen(of)("offset_lag_sum", unit="bytes") == 0

    def test_what_a_plan_leaves_is_asked_of_the_source_without_the_loop(self) -> None:
        asked = threading.Event()
        told: list[Mapping[str, Position]] = []

        def ends(after: Mapping[str, Position]) -> Mapping[str, ShardEnd]:
            told.append(after)
            return {"s0": ShardEnd(0, 90, 90), "s1": ShardEnd(0, 70, 70), "s2": ShardEnd(5, 5, 0)}

        class Watch(LagWatch):
            def _look(self, ends: Any) -> None:
                super()._look(ends)
                asked.set()

        watch = Watch(lambda: ends, look_every_s=3600)
        try:
            watch.planned(SourcePlan((OffsetRange("s0", 0, 40),), 120, 2, unit=Unit.RECORDS), {"s9": Position(1)})
            assert asked.wait(30)
            assert told == [{"s9": Position(1)}]
            assert watch.lag is not None
            assert (watch.lag.units, watch.lag.shards) == (160, 2)
            assert watch.lag.largest(WORST) == [("s0", 90), ("s1", 70)]
            watch.completed()
            assert (watch.lag.units, watch.lag.largest(WORST)) == (120, [("s1", 70), ("s0", 50)])
        finally:
            watch.close()

    def test_within_a_long_epoch_each_scrape_asks_again_and_one_that_caught_up_asks_no_more(self) -> None:
        numbers = itertools.count(1)
        watch = LagWatch(lambda: lambda _: {"s0": ShardEnd(0, None, next(numbers))}, look_every_s=0)
        watch.planned(SourcePlan((OffsetRange("s0", 0, 40),), 120, 2), {})
        wait_until(lambda: watch.lag is not None and watch.lag.units > 5, "it is asked at each look", 30)
        watch.caught_up()
        asked = next(numbers)
        assert watch.lag is not None and watch.lag.units == 0
        assert next(numbers) <= asked + 2, "one request may still run"

    def test_a_source_that_does_not_answer_costs_the_single_shards_only(self) -> None:
        asked = threading.Event()

        def broken(after: Mapping[str, Position]) -> Mapping[str, ShardEnd]:
            asked.set()
            raise SourceError("no answer")

        watch = LagWatch(lambda: broken, look_every_s=3600)
        try:
            watch.planned(SourcePlan((OffsetRange("s0", 0, 40),), 120, 2), {})
            assert asked.wait(30)
            assert watch.lag is not None and watch.lag.units == 160
        finally:
            watch.close()


class TestServer:
    def test_two_jobs_do_not_share_a_port_or_a_number(self) -> None:
        one, other = metrics(), metrics()
        one(completed(ref(0)))
        with serve(one.registry, "127.0.0.1", 0) as url, serve(other.registry, "127.0.0.1", 0) as other_url:
            assert url != other_url
            assert (scrape(url)("rows_committed_total"), scrape(other_url)("rows_committed_total")) == (10, 0)

    def test_a_taken_port_says_what_to_change(self) -> None:
        with serve(metrics().registry, "127.0.0.1", 0) as url:
            port = int(url.rpartition(":")[2].partition("/")[0])
            with (
                pytest.raises(ConfigError, match=rf"nothing can listen at 127\.0\.0\.1:{port}: .*metrics\.port"),
                serve(metrics().registry, "127.0.0.1", port),
            ):
                pass

    def test_a_port_is_free_again_at_once(self) -> None:
        with serve(metrics().registry, "127.0.0.1", 0) as url:
            port = int(url.rpartition(":")[2].partition("/")[0])
        with serve(metrics().registry, "127.0.0.1", port) as again:
            assert again == url


def everything() -> Scraped:
    """A scrape in which every metric has a sample."""
    of = metrics()
    of.expect_calls("a")
    of(PhaseDone(Phase.PLAN))
    of(planned(30))
    of(EpochOpened(plan_of(ref(0))))
    of(completed(ref(0), reasons={"bad": 1}))
    of(planned(30))
    return seen(of)


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\btideline_[a-z_]+\b", expression))


def labels_in(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The metric of each selector, and the labels that the selector matches."""
    for name, selector in re.findall(r"\b(tideline_[a-z_]+)\{([^}]*)\}", expression):
        yield name, set(re.findall(r"([a-z_]+)(?:=~|!=|=|!~)\"", selector))


@pytest.fixture
def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text())


@pytest.fixture
def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return list(group["rules"])


class TestMonitoring:
    def test_expressions_name_only_metrics_and_labels_that_there_are(
        self, dashboard: Any, rules: list[dict[str, Any]]
    ) -> None:
        there = everything()
        labels: dict[str, set[str]] = {}
        for name, found in there.values:
            labels.setdefault(name, {"job"}).update(label for label, _ in found)
        shown = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
        asked = [variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable]
        expressions = [*shown, *asked, *(rule["expr"] for rule in rules)]
        assert len(expressions) > 30
        for expression in expressions:
            assert names_in(expression), expression
            assert names_in(expression) <= there.names, expression
            for name, wanted in labels_in(expression):
                assert wanted <= labels[name], expression

    def test_every_metric_is_on_the_dashboard_and_documented(self, dashboard: Any) -> None:
        shown, documented = names_in(json.dumps(dashboard)), names_in(HOW_TO.read_text())
        for name in everything().names:
            if name.endswith("_created"):
                continue
            family = re.sub(r"^(tideline_phase_seconds)_\w+$", r"\1", name)
            assert family in documented, family
            assert any(each.startswith(family) for each in shown) or family in _NOT_SHOWN, family

    def test_the_dashboard_can_be_imported_into_any_grafana(self, dashboard: Any) -> None:
        assert dashboard["schemaVersion"] >= 36 and dashboard["uid"] == "tideline-jobs"
        assert "id" not in dashboard, "an id belongs to one server"
        variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
        assert variables["datasource"]["type"] == "datasource"
        sources = set(re.findall(r'"uid": "([^"]+)"', DASHBOARD.read_text()))
        assert sources == {"${datasource}", "tideline-jobs"}
        ids = [panel["id"] for panel in dashboard["panels"]]
        assert len(ids) == len(set(ids))

    def test_panels_fill_their_rows_and_do_not_overlap(self, dashboard: Any) -> None:
        taken: set[tuple[int, int]] = set()
        for panel in dashboard["panels"]:
            at = panel["gridPos"]
            assert at["x"] + at["w"] <= 24
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not cells & taken, panel["title"]
            taken |= cells

    def test_every_alert_says_what_happened_and_which_page_helps(self, rules: list[dict[str, Any]]) -> None:
        assert len({rule["alert"] for rule in rules}) == len(rules)
        for rule in rules:
            assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
            assert rule["labels"]["severity"] in ("page", "ticket")
            assert rule["annotations"]["summary"]
            pages = re.findall(r"(docs/[a-z/-]+\.md)(?:#([a-z-]+))?", rule["annotations"]["description"])
            assert pages, rule["alert"]
            for page, anchor in pages:
                headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.M)
                anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
                assert not anchor or anchor in anchors, f"{page}#{anchor}"

    def test_alerts_have_brackets_that_match(self, rules: list[dict[str, Any]]) -> None:
        for rule in rules:
            for pair in ("()", "[]", "{}"):
                assert rule["expr"].count(pair[0]) == rule["expr"].count(pair[1]), rule["alert"]


@pytest.mark.parametrize(("heading", "model"), [("metrics", MetricsConfig), ("on_commit", CallbackConfig)])
def test_every_key_of_both_blocks_is_documented(heading: str, model: type[BaseModel]) -> None:
    section = (ROOT / "docs" / "job-file.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    documented = re.findall(r"^\| `(\w+)` \|", section, re.M)
    assert documented == list(model.model_fields)


_NOT_SHOWN = {"tideline_orphan_files_deleted_total", "tideline_last_completed_epoch", "tideline_rows_written_total"}
"""Metrics for which the dashboard has no panel."""
