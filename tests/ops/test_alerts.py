"""Every alert fires at its fault and is quiet without it, and reads metrics that there are."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from runtime.diagnose import NAMES, Facts
from runtime.watch import Watcher, WatchGauges
from tests.orchestrator.conftest import Desk, desk
from tests.runtime.test_diagnose import config
from trainer.reports.metrics import HELP

__all__ = ["desk"]
OPS = Path(__file__).parents[2] / "ops"
RULES = sorted((OPS / "prometheus" / "rules").glob("*.yml"))
DASHBOARDS = sorted((OPS / "grafana" / "dashboards").glob("*.json"))
METRIC = re.compile(r"\bmuster_[a-z0-9_]+")

SLOW = 'muster_request_seconds_bucket{le="%s"}'
JOB, ROLE, TRAINER = 'up{job="muster-%s"}', '{role="worker"}', "muster_trainer_%s"
REQUESTS = 'muster_request_seconds_count{status="%s"}'
# Alert → a metric with its values (every 15 s) with the fault and without.
SIMPLE = {
    "MusterServiceDown": (JOB % "service", "0x40", "1x40"),
    "MusterTrainerDown": (JOB % "trainer", "0x40", "1x40"),
    "MusterWatchDown": ("muster_watch_looked_seconds", "0x40", "0+15x40"),
    "MusterServiceChainTrouble": ("muster_chain_trouble", "1x40", "0x40"),
    "MusterServiceTaskFails": ("muster_tasks_failing", "1x40", "0x40"),
    "MusterServiceHeadOld": ("muster_head_age_seconds", "121x40", "4x40"),
    "MusterLedgerDiffers": ("muster_ledger_differences", "1x40", "0x40"),
    "MusterStepOld": ("muster_step_age_seconds", "3601x40", "900x40"),
    "MusterOthersInTrouble": (f"muster_processes_in_trouble{ROLE}", "2x40", "0x40"),
    "MusterOthersBehind": (f"muster_processes_behind{ROLE}", "1x60", "0x60"),
    "MusterSlashed": ('muster_slashes_total{kind="node"}', "0x20 1x20", "5x40"),
    "MusterDisputeOpen": ("muster_disputes_open", "1x40", "0x40"),
    "MusterNobodyWorks": (f"muster_processes{ROLE}", "0x60", "1x60"),
    "MusterTrainerIdle": (TRAINER % "idle_share", "0.8x140", "0.1x140"),
    "MusterPolicyDrifts": (TRAINER % "mismatch", "0.1x60", "0.0001x60"),
    "MusterLettersWait": ("muster_watch_letters", "50x60", "1x60"),
}
FAULTS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "MusterServerErrors": ({REQUESTS % "5xx": "0+1x40"}, {REQUESTS % "5xx": "3x40", REQUESTS % "2xx": "0+9x40"}),
    "MusterServiceSlow": (
        {SLOW % "0.5": "0+1x40", SLOW % "2.5": "0+9x40", SLOW % "+Inf": "0+9x40"},
        {SLOW % "0.5": "0+9x40", SLOW % "2.5": "0+9x40", SLOW % "+Inf": "0+9x40"},
    ),
    "MusterNodesFrozen": ({'muster_nodes{standing="frozen"}': "1x40"}, {'muster_nodes{standing="member"}': "9x40"}),
} | {alert: ({name: fault}, {name: well}) for alert, (name, fault, well) in SIMPLE.items()}


def rules() -> list[dict[str, Any]]:
    return [rule for path in RULES for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def series(fault: bool) -> dict[str, dict[str, str]]:
    out = {alert: given[0 if fault else 1] for alert, given in FAULTS.items()}
    for rule in rules():
        if rule["expr"].startswith("muster_watch_alarm"):
            out[rule["alert"]] = {rule["expr"].removesuffix(" == 1"): "1x40" if fault else "0x40"}
    return out


def test_every_alert_has_a_fault_and_a_cure_and_every_alarm_an_alert() -> None:
    alerts = [rule["alert"] for rule in rules()]
    assert len(alerts) == len(set(alerts))
    assert set(alerts) == set(series(True))
    watched = re.findall(r'muster_watch_alarm\{alarm="([a-z_]+)"\}', " ".join(rule["expr"] for rule in rules()))
    assert sorted(watched) == sorted(NAMES)
    for rule in rules():  # each says what to do
        assert set(rule["annotations"]) == {"summary", "hint"}, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


@pytest.mark.parametrize("fault", [True, False])
def test_alerts_fire_at_their_faults_alone(fault: bool, tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    tests = []
    for alert, given in series(fault).items():
        expected = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)'
        sample = {"labels": "{}", "value": 1 if fault else 0}
        when = "33m" if "x140" in str(given) else "10m"
        lines = [{"series": name, "values": values} for name, values in given.items()]
        check = {"expr": expected, "eval_time": when, "exp_samples": [sample]}
        tests.append({"interval": "15s", "name": alert, "input_series": lines, "promql_expr_test": [check]})
    document = {"rule_files": [str(path) for path in RULES], "evaluation_interval": "15s", "tests": tests}
    path = tmp_path / "tests.yml"
    path.write_text(yaml.safe_dump(document))
    argv = [promtool, "test", "rules", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def exposed(desk: Desk, home: Path) -> set[str]:
    """Every metric that service, watch and trainer expose, by the names that queries use."""
    desk.view.refresh()
    service = desk.http.get("/metrics").text
    watched = str(next(iter(desk.view.state.accounts))[1])
    watcher = Watcher(config(home=home, node=watched))
    watcher.facts = Facts(now=1.0, free={"home": 1}, transactions_left={"node": 1}, state=desk.view.state)
    registry = CollectorRegistry()
    registry.register(WatchGauges(watcher))
    text = service + generate_latest(registry).decode()
    families = list(text_string_to_metric_families(text))
    names = {sample.name for family in families for sample in family.samples}
    # What has labels has no sample before its first event, but its family is there.
    ends = {"counter": ("_total",), "histogram": ("_count", "_bucket")}
    names |= {family.name + end for family in families for end in ends.get(family.type, ("",))}
    return names | {f"muster_trainer_{name}" for name in HELP}


def test_rules_and_dashboards_read_metrics_that_there_are(desk: Desk, tmp_path: Path) -> None:
    there = exposed(desk, tmp_path)
    there |= {"muster_ledger_differences"}  # only with an indexer, which compares with real contracts
    for path in (*RULES, *DASHBOARDS):
        read = set(METRIC.findall(path.read_text()))
        assert read, path
        assert read <= there, path


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_well_formed(path: Path) -> None:
    board = json.loads(path.read_text())
    assert board["uid"] == path.stem
    sources = yaml.safe_load((OPS / "grafana/provisioning/datasources/muster.yml").read_text())["datasources"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in board["panels"]:
        assert panel["datasource"]["uid"] == sources[0]["uid"]
        assert all(target["expr"] for target in panel["targets"])
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
