"""Metrics that Prometheus can read, and a dashboard that uses no others."""

import json
import re
from pathlib import Path

import prometheus_client
from prometheus_client.parser import text_string_to_metric_families

from tests.service.conftest import post

DASHBOARD = Path(__file__).parents[2] / "examples" / "grafana-dashboard.json"


def parse(client):
    """Return the samples of /metrics by name and labels, and the types of the metrics by name."""
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {}
    for family in text_string_to_metric_families(answer.text):
        assert family.documentation
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in samples
            samples[key] = sample.value
    types = dict(line[7:].split() for line in answer.text.splitlines() if line.startswith("# TYPE "))
    assert all(name.endswith("_total") for name, kind in types.items() if kind == "counter")
    assert not any(name.endswith("_created") for name in types)
    return samples, types


def labels(**values):
    return tuple(sorted(values.items()))


def test_requests_rows_and_batches_are_counted(serving, rows, tmp_path):
    with serving(tmp_path) as client:
        for batch_id in ("one", "one", "two"):
            post(client, "a", rows[:10], batch_id)
        client.post("/v1/targets/a/rows", json={"rows": [[1]]})
        client.get("/nowhere")
        client.request("BREW", "/v1/targets")
        found, _ = parse(client)
    for name, value in (
        ("rows_total", 20),
        ("batches_total", 2),
        ("repeated_batches_total", 1),
        ("refused_batches_total", 1),
        ("quarantined_rows_total", 0),
        ("shed_connections_total", 0),
        ("drifts_total", 0),
        ("targets", 1),
        ("targets_in_memory", 1),
        ("requests_waiting", 0),
        ("received_bytes", 0),
        ("listeners", 0),
        ("replayed_batches", 0),
        ("snapshots_total", 0),
        ("log_batches_total", 2),
        ("ready", 1),
    ):
        assert found[f"baryflow_{name}", ()] == value, name
    assert found["baryflow_log_commits_total", ()] >= 1
    assert found["process_resident_memory_bytes", ()] > 1e6
    requests = {key: n for (name, key), n in found.items() if name == "baryflow_requests_total"}
    assert requests[labels(route="post_rows", method="POST", status="200")] == 3
    assert requests[labels(route="post_rows", method="POST", status="422")] == 1
    assert requests[labels(route="other", method="GET", status="404")] == 1
    assert labels(route="list_targets", method="other", status="405") in requests
    seconds = "baryflow_request_duration_seconds"
    assert found[f"{seconds}_count", labels(route="post_rows")] == 4
    assert found[f"{seconds}_bucket", labels(route="post_rows", le="+Inf")] == 4


def test_metrics_of_single_targets_are_optional_and_limited(serving, rows):
    with serving() as client:
        post(client, "secret-name", rows[:2])
        assert "secret-name" not in client.get("/metrics").text
    with serving(target_metrics=2) as client:
        for name in ("a", "b", "c"):
            post(client, name, rows[:2])
        found, _ = parse(client)
    shown = {key for name, key in found if name == "baryflow_target_rows_total"}
    assert shown == {labels(target="a"), labels(target="b")}


def test_each_application_has_its_own_registry(serving, rows):
    with serving() as first, serving() as second:
        post(first, "a", rows[:3])
        assert parse(first)[0]["baryflow_rows_total", ()] == 3
        assert parse(second)[0]["baryflow_rows_total", ()] == 0
    assert "baryflow" not in prometheus_client.generate_latest().decode()


def test_the_dashboard_uses_metrics_that_exist(serving, rows):
    with serving(target_metrics=5) as client:
        post(client, "a", rows[:2])
        _, types = parse(client)
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    used = re.findall(
        r"(?:baryflow|process)_[a-z_]+", json.dumps([p["targets"] for p in dashboard["panels"]])
    )
    assert len(used) >= 8
    for name in used:
        assert re.sub(r"_(bucket|sum|count)$", "", name) in types or name in types
