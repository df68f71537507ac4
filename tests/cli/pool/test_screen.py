"""`muster env screen`: from somebody's file of problems to one that a pool takes."""

import hashlib
import json
from pathlib import Path

from localnet.plan import pool_config
from tests.cli.muster import Muster
from tests.validator.world import tokenizer_folder


def row(number: int, prompt: str, truth: str, kind: str = "code_output_prediction") -> str:
    info = {"ground_truth": truth}
    return json.dumps({"problem_id": f"p{number}", "task_type": kind, "prompt": prompt, "verification_info": info})


def test_a_file_is_screened_kept_and_the_rest_is_named(tmp_path: Path) -> None:
    muster, out = Muster(tmp_path), tmp_path / "rows.jsonl"
    lines = [row(n, f"What does print({n}) print?" + " Really?" * (n == 3) * 40, str(n)) for n in (0, 1, 2, 3, 0)]
    lines.append("no row")
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
    rows = [row(number, f"Problem {number}?", one, "verifiable_math") for number, one in enumerate(references)]
    given.write_text("".join(f"{one}\n" for one in rows))
    found = muster.ok("env", "screen", given, "--out", out, "--json").json
    assert (found["kept"], found["dropped"]["schema"]) == (1, 2)
    refused = [json.loads(line) for line in (tmp_path / "rows.jsonl.refused.jsonl").read_text().splitlines()]
    assert [(one["row"], "cannot be read whole" in json.dumps(one)) for one in refused] == [(1, True), (2, True)]
