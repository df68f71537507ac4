"""The ledger's tables say what the events say, and files keep amounts to the last base unit."""

import csv
import json
from pathlib import Path

import pytest
from pyarrow import parquet

from chain.indexer.reducers import replay
from cli.ledger import write_table
from orchestrator.ledger import NAMES, escrow, tables
from protocol.errors import ConfigError
from protocol.verdict import Code
from tests.orchestrator.chain import CHEAT, NODE, RATE, ScriptedChain


def played() -> ScriptedChain:
    chain = ScriptedChain()
    chain.create()
    for key in (NODE, CHEAT):
        chain.join(key)
    chain.publish(0)
    accepted = chain.submit(NODE, 0, units=70)
    chain.settle(NODE, accepted, Code.ACCEPT, units=70)
    forged = chain.submit(CHEAT, 0)
    chain.settle(CHEAT, forged, Code.REJECT_WEIGHTS)
    chain.finalize(CHEAT, forged, Code.REJECT_WEIGHTS, 5000, 3003)
    chain.submit(NODE, 1)
    chain.claim(NODE, 70)
    return chain


def test_every_table_follows_from_the_events() -> None:
    chain = played()
    state = replay(chain.history())
    found = {name: list(rows) for name, rows in tables(state, 1, 10_000).items()}
    assert tuple(found) == NAMES
    files = found["submissions"]
    assert [(one["node"], one["status"], one["pay_grains"]) for one in files] == [
        (NODE.address, "accepted", 70 * RATE),
        (CHEAT.address, "rejected", 0),
        (NODE.address, "pending", 0),
    ]
    assert files[1]["reason"] == "reject: weights"
    by_node = {one["node"]: (one["files"], one["accepted"], one["pending"]) for one in found["contributions"]}
    assert by_node == {NODE.address: (2, 1, 1), CHEAT.address: (1, 0, 0)}
    assert [(one["kind"], one["amount_grains"]) for one in found["payouts"]] == [("claim", 70 * RATE)]
    assert [(one["who"], one["amount_grains"]) for one in found["slashes"]] == [(CHEAT.address, 5000)]
    claimed = sum(one["claimed_grains"] for one in found["accounts"])
    assert claimed == escrow(state, 1).claimed == 70 * RATE


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_amounts_stay_exact_in_files(tmp_path: Path, ending: str) -> None:
    path, huge = tmp_path / f"table.{ending}", 2**100 + 1
    rows = [{"node": "a", "final": True, "step": 3, "pay_grains": huge}, {"node": "b", "final": False, "step": 4}]
    rows[1]["pay_grains"] = 0
    assert write_table(path, rows) == 2
    if ending == "csv":
        with path.open() as file:
            assert [int(row["pay_grains"]) for row in csv.DictReader(file)] == [huge, 0]
    elif ending == "json":
        assert json.loads(path.read_text()) == rows
    else:
        assert [int(one) for one in parquet.read_table(path)["pay_grains"].to_pylist()] == [huge, 0]


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"table.xlsx says no format; end it in .csv, .json, .parquet"):
        write_table(tmp_path / "table.xlsx", [])
