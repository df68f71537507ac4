"""`python -m benchmarks.recipe_plots`: draws docs/images/recipe-*.png from the runs in benchmarks/results/recipe.json.

One picture a comparison: task reward of every step's rollouts, the mean over the seeds that there are and the range
between them.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.recipe import KEPT

IMAGES = Path(__file__).parent.parent / "docs" / "images"
TITLES = {
    "asynchrony": "asynchrony (policy steps)",
    "loss": "losses, eight minibatches a step",
    "clip": "clipping, rollouts four steps old without importance weights",
    "filter": "online filter",
    "budgets": "length targets of 4 and 17 tokens",
}


def compared(runs: Sequence[dict[str, Any]]) -> dict[str, dict[str, list[list[float]]]]:
    """Comparison → setting → the series of its seeds. The demo's own setting stands for "filter off" too."""
    out: dict[str, dict[str, list[list[float]]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        kind, _, value = run["setting"].partition(" ")
        out[kind][value or "with targets"].append(run["series"])
        if run["setting"] == "asynchrony 4":
            out["filter"]["off"].append(run["series"])
    return {kind: dict(sorted(lines.items())) for kind, lines in out.items() if kind != "filter" or "on" in lines}


def band(series: Sequence[Sequence[float]]) -> tuple[list[float], list[float], list[float]]:
    """(least, mean, greatest) of each step over the seeds, as far as all of them go."""
    steps = list(zip(*series, strict=False))
    return [min(step) for step in steps], [sum(step) / len(step) for step in steps], [max(step) for step in steps]


def draw(kind: str, lines: dict[str, list[list[float]]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, series in lines.items():
        least, mean, greatest = band(series)
        steps = range(1, len(mean) + 1)
        axes.plot(steps, mean, label=f"{name} ({len(series)} seed{'s' if len(series) > 1 else ''})")
        axes.fill_between(steps, least, greatest, alpha=0.15)
    axes.set(title=TITLES.get(kind, kind), xlabel="training step", ylabel="task reward of the rollouts", ylim=(0, 1))
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    for kind, lines in compared(json.loads(KEPT.read_bytes())["runs"]).items():
        draw(kind, lines, IMAGES / f"recipe-{kind}.png")
        print(f"{IMAGES.name}/recipe-{kind}.png")
