"""`python -m benchmarks.real_plot [RESULTS]`: keeps what `make real` found, and draws it as docs/images/real.png.

RESULTS is its build/real/results.json, kept in benchmarks/results/real.json; without it that is drawn again.
"""

import json
import sys
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parent / "results" / "real.json"
IMAGE = Path(__file__).parent.parent / "docs" / "images" / "real.png"
FIELDS = (
    *("steps", "seconds", "reward_first", "reward_last", "rewards", "samples", "trainer_idle_share"),
    *("submissions", "tokens_verified", "honest_rejected", "cheaters", "agreement"),
    *("ledger_matches_chain", "escrow_balanced"),
)


def kept(results: dict[str, Any]) -> dict[str, Any]:
    """Of every seed's summary what the documentation speaks of."""
    seeds = {seed: {name: found[name] for name in FIELDS} for seed, found in results["seeds"].items()}
    return {"model": results["model"], "seeds": seeds}


def draw(results: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for seed, found in results["seeds"].items():
        steps = range(1, len(found["rewards"]) + 1)
        (line,) = axes.plot(steps, found["rewards"], alpha=0.6, label=f"seed {seed}: rollouts of each step")
        held_out = [found["reward_first"], found["reward_last"]]
        axes.plot([0, found["steps"]], held_out, "o--", color=line.get_color(), label=f"seed {seed}: held-out problems")
    axes.set(title=results["model"], xlabel="training step", ylabel="task reward", ylim=(0, 1))
    axes.legend(loc="upper left")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        KEPT.write_text(json.dumps(kept(json.loads(Path(sys.argv[1]).read_bytes())), indent=1) + "\n")
    draw(json.loads(KEPT.read_bytes()), IMAGE)
