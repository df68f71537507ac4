"""`muster env screen`: from somebody's file of problems to one that a pool takes."""

import hashlib
import json
from pathlib import Path

from localnet.plan import pool_config
from tests.cli.muster import Muster
from tests.validator.world import tokenizer_folder

ROWS = [
    {
        "problem_id": f"o{number}",
        "task_type": "code_output_prediction",
        "prompt": f"What does print({number}) print?" + " Really?" * (number == 3) * 40,
        "verification_info": {"ground_truth": str(number)},
    }
    for number in range(4)
]


def test_a_file_is_screened_kept_and_the_rest_is_named(tmp_path: Path) -> None:
    muster, out = Muster(tmp_path), tmp_path / "rows.jsonl"
    lines = [json.dumps(row) for row in (*ROWS, ROWS[0])] + ["no row"]
    given, config = tmp_path / "given.jsonl", tmp_path / "pool.json"
    given.write_text("\n".join(lines))
    config.write_bytes(pool_config(1, 1).canonical())
    fitting = ("--pool-config", config, "--weights", tokenizer_folder())
    assert "--weights go together" in muster.refused("env", "screen", given, "--out", out, *fitting[:2])
    found = muster.ok("env", "screen", given, "--out", out, *fitting, "--keep", "--json").json
    content = hashlib.sha256(out.read_bytes()).hexdigest()
    assert out.read_text().splitlines() == lines[:3]
    assert (found["rows"], found["kept"], found["content"]) == (6, 3, content)
    assert {name: count for name, count in found["dropped"].items() if count} == {"long": 1, "repeated": 1, "schema": 1}
    assert (tmp_path / ".cache/muster/environments" / content).read_bytes() == out.read_bytes()
    bad = [json.loads(line)["row"] for line in (tmp_path / "rows.jsonl.refused.jsonl").read_text().splitlines()]
    assert bad == [3, 4, 5]
    assert "4 of 6 rows" in muster.ok("env", "screen", given, "--out", out).out
    given.write_text("no row\n")
    assert "is no JSON" in muster.refused("env", "screen", given, "--out", out)


def test_a_reference_that_cannot_be_read_whole_is_refused(tmp_path: Path) -> None:
    """Half read it would make wrong answers right, which reinforcement learning finds."""
    muster, given, out = Muster(tmp_path), tmp_path / "given.jsonl", tmp_path / "rows.jsonl"
    references = ["7", "(1, 2", r"n \equiv 1 \pmod 4"]
    rows = [
        {
            "problem_id": f"m{number}",
            "task_type": "verifiable_math",
            "prompt": f"Problem {number}?",
            "verification_info": {"ground_truth": reference},
        }
        for number, reference in enumerate(references)
    ]
    given.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = muster.ok("env", "screen", given, "--out", out, "--json").json
    assert (found["kept"], found["dropped"]["schema"]) == (1, 2)
    refused = [json.loads(line) for line in (tmp_path / "rows.jsonl.refused.jsonl").read_text().splitlines()]
    assert [one["row"] for one in refused] == [1, 2]
    assert all("cannot be read whole" in json.dumps(one) for one in refused)
