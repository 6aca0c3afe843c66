"""conf/monitoring/: rules, dashboard and the example of a Prometheus hold together with what is exported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tagstream.streaming.monitor.metrics import METRICS
from tests.support.paths import ROOT
from tests.support.tools import run_tool

FOLDER = ROOT / "conf" / "monitoring"
RULES, DASHBOARD = FOLDER / "tagstream-rules.yml", FOLDER / "tagstream-dashboard.json"
EXPORTED = {m.name for m in METRICS} | {
    f"{m.name}{part}" for m in METRICS if m.kind == "histogram" for part in ("_bucket", "_sum", "_count")
}
LABELS = {label for m in METRICS for label in m.labels} | {"table", "stream", "le", "instance", "job"}


def expressions() -> list[str]:
    """The queries of the dashboard, those of its variables left out."""
    doc: dict[str, Any] = json.loads(DASHBOARD.read_text("utf-8"))
    return [target["expr"] for panel in doc["panels"] for target in panel["targets"]]


def named(text: str) -> set[str]:
    """Metrics that a text names; keys of the job's options are no metrics."""
    return set(re.findall(r"\btagstream_\w+", text))


def test_rules_are_sound_and_do_what_they_say() -> None:
    assert "SUCCESS: 9 rules found" in run_tool("promtool", "check", "rules", str(RULES))
    told = run_tool("promtool", "test", "rules", str(Path(__file__).with_name("rules_test.yml")))
    assert "SUCCESS" in told


def test_the_unit_test_has_every_alert_both_ways() -> None:
    text = Path(__file__).with_name("rules_test.yml").read_text("utf-8")
    for alert in re.findall(r"- alert: (\w+)", RULES.read_text("utf-8")):
        assert f"alertname: {alert}, exp_alerts: []" in text, f"{alert} is never seen silent"
        assert re.search(rf"alertname: {alert}\n +exp_alerts:\n +- exp_labels", text), f"{alert} is never seen to fire"


def test_the_example_of_a_prometheus_is_one() -> None:
    told = run_tool("promtool", "check", "config", str(FOLDER / "prometheus.yml"))
    assert "1 rule files found" in told and "is valid prometheus config" in told


def test_rules_and_dashboard_name_exported_metrics_only() -> None:
    assert named(RULES.read_text("utf-8")) - EXPORTED == set()
    found = named(DASHBOARD.read_text("utf-8"))
    assert found - EXPORTED == set()
    assert {m.name for m in METRICS} - {re.sub("_(bucket|sum|count)$", "", name) for name in found} == set()


def test_the_dashboards_queries_are_promql(tmp_path: Path) -> None:
    rules = []
    for number, text in enumerate(expressions()):
        text = (
            text.replace("$__rate_interval", "5m")
            .replace("$__range", "6h")
            .replace("$table", ".+")
            .replace("$stream", ".+")
        )
        assert "$" not in text, text
        assert set(re.findall(r"(\w+)=~?\"", text)) <= LABELS, text
        rules.append({"record": f"panel:{number}", "expr": text})
    assert len(rules) > 20
    file = tmp_path / "rules.yml"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"SUCCESS: {len(rules)} rules found" in run_tool("promtool", "check", "rules", str(file))


def test_panels_lie_side_by_side() -> None:
    doc = json.loads(DASHBOARD.read_text("utf-8"))
    taken: set[tuple[int, int]] = set()
    for panel in doc["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in doc["panels"]]
    assert len(ids) == len(set(ids))


def test_every_alert_is_explained() -> None:
    text = (ROOT / "docs" / "operations" / "monitoring.md").read_text("utf-8")
    alerts = set(re.findall(r"- alert: (\w+)", RULES.read_text("utf-8")))
    assert set(re.findall(r"^\| `(Tagstream\w+)` \|", text, flags=re.M)) == alerts
