"""A file is judged once per process, and again where the draw decides which rows are looked at."""

import dataclasses
from pathlib import Path

from tests.validator import tiny
from validator.judging.verdicts import VerdictStore

CONFIG = tiny.CONFIG.digest


def test_verdicts_are_kept_per_lane_seed_where_it_draws_a_sample(tmp_path: Path) -> None:
    verdicts = VerdictStore(tmp_path)
    verdict = tiny.verdict_on(tiny.honest(), tiny.work_of(), audit_rate=20000)
    facts = tiny.facts(tiny.work_of(), tiny.honest(), audit_rate=20000)
    verdicts.keep(facts, verdict)
    assert verdicts.find(facts, CONFIG) == verdict
    assert verdicts.find(dataclasses.replace(facts, lane_seed=b"x" * 32), CONFIG) is None
    assert verdicts.find(facts, b"c" * 32) is None, "another pool's"
    everything = tiny.facts(tiny.work_of(), tiny.honest())
    verdicts.keep(everything, verdict)
    redrawn = verdicts.find(dataclasses.replace(everything, lane_seed=b"x" * 32), CONFIG)
    assert redrawn is not None
    assert redrawn.lane_seed == "78" * 32
    for path in tmp_path.glob("*.json"):
        path.write_bytes(b"{}")
    assert verdicts.find(facts, CONFIG) is None
