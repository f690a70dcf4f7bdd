"""Figures that Prometheus can read, and a dashboard that asks for no others."""

import json
import re
from pathlib import Path

from tests.service.conftest import post

DASHBOARD = Path(__file__).parents[2] / "examples" / "grafana-dashboard.json"
LINE = re.compile(r'([a-z_]+)(\{([a-z_]+="[^"\n]*",?)+\})? (-?[0-9.e+-]+)')


def parse(text):
    """Return the figures by name and labels, and check the form of every line."""
    found, types = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line[7:].split()
            assert name not in types
            types[name] = kind
        elif not line.startswith("# HELP "):
            match = LINE.fullmatch(line)
            assert match, line
            family = re.sub(r"_(bucket|sum|count)$", "", match[1])
            assert family in types or match[1] in types
            assert (match[1], match[2]) not in found
            found[match[1], match[2]] = float(match[4])
    assert all(name.endswith("_total") for name, kind in types.items() if kind == "counter")
    return found, types


def test_what_is_counted(serving, rows, tmp_path):
    with serving(tmp_path) as client:
        for batch_id in ("one", "one", "two"):
            post(client, "a", rows[:10], batch_id)
        client.post("/v1/targets/a/rows", json={"rows": [[1]]})
        client.get("/nowhere")
        client.request("BREW", "/v1/targets")
        answer = client.get("/metrics")
    found, _ = parse(answer.text)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    for name, value in (
        ("rows_total", 20), ("batches_total", 2), ("repeated_batches_total", 1), ("targets", 1),
        ("refused_batches_total", 1), ("ready", 1), ("log_batches_total", 2), ("targets_in_memory", 1),
    ):  # fmt: skip
        assert found[f"baryflow_{name}", None] == value
    assert found["process_resident_memory_bytes", None] > 1e6
    requests = {labels: n for (name, labels), n in found.items() if name == "baryflow_requests_total"}
    assert requests['{route="post_rows",method="POST",status="200"}'] == 3
    assert requests['{route="post_rows",method="POST",status="422"}'] == 1
    assert requests['{route="other",method="GET",status="404"}'] == 1
    assert '{route="list_targets",method="other",status="405"}' in requests
    count = found["baryflow_request_duration_seconds_count", '{route="post_rows"}']
    assert (
        count == found["baryflow_request_duration_seconds_bucket", '{route="post_rows",le="+Inf"}'] == 4
    )


def test_lines_for_each_target_are_for_who_asks_and_capped(serving, rows):
    with serving() as client:
        post(client, "secret-name", rows[:2])
        assert "secret-name" not in client.get("/metrics").text
    with serving(target_metrics=2) as client:
        for name in ("a", "b", "c"):
            post(client, name, rows[:2])
        found, _ = parse(client.get("/metrics").text)
    shown = {labels for name, labels in found if name == "baryflow_target_rows_total"}
    assert shown == {'{target="a"}', '{target="b"}'}


def test_the_dashboard_asks_for_what_there_is(serving, rows):
    with serving(target_metrics=5) as client:
        post(client, "a", rows[:2])
        _, types = parse(client.get("/metrics").text)
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    asked = re.findall(
        r"(?:baryflow|process)_[a-z_]+", json.dumps([p["targets"] for p in dashboard["panels"]])
    )
    assert len(asked) >= 8
    for name in asked:
        assert re.sub(r"_(bucket|sum|count)$", "", name) in types or name in types
