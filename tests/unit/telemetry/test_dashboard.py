"""The dashboard and the alert rules name only metrics that Holdfast exports."""

import json
import re
from pathlib import Path

import pytest

from holdfast.gateway.http import context
from holdfast.gateway.routes import operations
from holdfast.gateway.server.metrics import Metrics, metrics_text
from holdfast.telemetry.totals import METRICS

OPERATIONS = Path(__file__).parents[3] / "docs/operations"
_NAME = re.compile(r"\b(?:holdfast|gen_ai)_[a-z_]+")
_LABELS = {"gen_ai_request_model", "gen_ai_token_type"}


def exported() -> set[str]:
    found = set(_NAME.findall(metrics_text({None: Metrics().counts({})}, {})))
    gauges = []
    for module in (operations, context):
        source = Path(module.__file__).read_text()
        gauges += re.findall(r'"([a-z_]+)": \(', source)
        gauges += re.findall(r'gauges\["([a-z_]+)"\]', source)
    found |= {f"holdfast_{name}" for name in gauges}
    for metric in METRICS.values():
        unit = "_seconds" if metric.unit == "s" else ""
        base = metric.name.replace(".", "_") + unit
        found |= {f"{base}_bucket", f"{base}_count", f"{base}_sum"}
    return found


def expressions(name: str) -> list[str]:
    text = (OPERATIONS / name).read_text()
    if name.endswith(".json"):
        return [
            target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]
        ]
    return re.findall(r"expr: (.+)", text)


@pytest.mark.parametrize("name", ["grafana-dashboard.json", "alert-rules.yml"])
def test_every_metric_exists(name: str) -> None:
    found = [each for text in expressions(name) for each in _NAME.findall(text)]
    assert len(found) >= 5
    assert set(found) - _LABELS <= exported()
