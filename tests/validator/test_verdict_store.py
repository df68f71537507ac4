"""A file is judged once per process, and again where the draw decides which rows are looked at."""

import dataclasses
from pathlib import Path

from tests.validator import tiny
from validator.verdict_store import VerdictStore


def test_verdicts_are_kept_per_lane_seed_where_it_draws_a_sample(tmp_path: Path) -> None:
    verdicts = VerdictStore(tmp_path, b"c" * 32)
    verdict = tiny.verdict_on(tiny.honest(), tiny.work_of(), audit_rate=20000)
    facts = tiny.facts(tiny.work_of(), tiny.honest(), audit_rate=20000)
    verdicts.keep(facts, verdict)
    assert verdicts.find(facts) == verdict
    assert verdicts.find(dataclasses.replace(facts, lane_seed=b"x" * 32)) is None
    everything = tiny.facts(tiny.work_of(), tiny.honest())
    verdicts.keep(everything, verdict)
    redrawn = verdicts.find(dataclasses.replace(everything, lane_seed=b"x" * 32))
    assert redrawn is not None
    assert redrawn.lane_seed == "78" * 32
    for path in tmp_path.glob("*.json"):
        path.write_bytes(b"{}")
    assert verdicts.find(facts) is None
