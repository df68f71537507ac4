"""`python -m benchmarks.diloco_plots`: draws docs/images/diloco.png and writes the table of docs/sites.md from what
`python -m benchmarks diloco` has so far, as that does itself at the end of every slice.

OpenDiLoCo (2407.07852) publishes curves as pictures and their ends as numbers; the ends are drawn beside our curves:
150M parameters, eight replicas, H = 500, 88,000 steps on C4, perplexities of its first table.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.diloco_runs import KEPT_RUNS, Runs, kept_for_all, measured
from protocol.files import write_atomic
from trainer.records import read_records

ROOT = Path(__file__).parent.parent
IMAGE, TABLE = ROOT / "docs" / "images" / "diloco.png", ROOT / "docs" / "sites.md"
JOURNALS = ROOT / "build" / "diloco" / "full"
BEGIN, END = "<!-- diloco: written by benchmarks/diloco_plots.py -->", "<!-- diloco: end -->"
TITLES = {
    "dp": "data parallelism",
    "h10": "H = 10, float32",
    "h50": "H = 50, float32",
    "h100": "H = 100, float32",
    "h100-int8": "H = 100, int8, uniform",
    "h100-int8-quantile": "H = 100, int8, quantile",
    "h100-sparse": "H = 100, sparse",
    "alone": "one site alone, a quarter of the tokens",
}
PERPLEXITY = {"alone": 16.17, "data parallelism": 13.68, "DiLoCo": 13.73}


def published_gap(name: str) -> float:
    """Of OpenDiLoCo's loss over its data parallelism's, less 1, at the end of training."""
    return math.log(PERPLEXITY[name]) / math.log(PERPLEXITY["data parallelism"]) - 1


def so_far(finished: Path = KEPT_RUNS, journals: Path = JOURNALS) -> Runs:
    """The finished runs, and of others as much as this machine has."""
    runs = dict(kept_for_all(finished))
    for path in sorted(journals.glob("*/*/journal.jsonl")):
        key = int(path.parent.parent.name), path.parent.name
        if key not in runs and key[1] in TITLES:
            runs[key] = measured(read_records(path))
    return runs


def gaps(runs: Runs, name: str) -> dict[int, dict[int, float]]:
    """Seed → step → loss over data parallelism's at the same step, less 1."""
    found: dict[int, dict[int, float]] = {}
    for (seed, other), run in sorted(runs.items()):
        beside = dict(map(tuple, runs[seed, "dp"]["losses"])) if (seed, "dp") in runs else {}
        shared = {step: loss / beside[step] - 1 for step, loss in run["losses"] if step in beside}
        if other == name and shared:
            found[seed] = shared
    return found


def band(series: Sequence[dict[int, float]]) -> list[tuple[int, float, float, float]]:
    """(step, least, mean, greatest) over the seeds, of the steps that all of them have."""
    steps = sorted(set.intersection(*(set(one) for one in series))) if series else []
    found = [(step, [one[step] for one in series]) for step in steps]
    return [(step, min(values), sum(values) / len(values), max(values)) for step, values in found]


def draw(runs: Runs, path: Path) -> None:
    """Losses, and how far they lie above data parallelism's, with OpenDiLoCo's published ends."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    losses, above = figure.subplots(1, 2)
    for name, title in TITLES.items():
        series = [dict(map(tuple, run["losses"])) for (_, other), run in sorted(runs.items()) if other == name]
        gap = list(gaps(runs, name).values()) if name != "dp" else []
        for axes, shown, factor in ((losses, series, 1.0), (above, gap, 100.0)):
            if steps := band(shown):
                at, least, mean, greatest = zip(*steps, strict=True)
                axes.plot(at, [factor * one for one in mean], marker=".", label=f"{title} ({len(shown)})")
                axes.fill_between(at, [factor * one for one in least], [factor * one for one in greatest], alpha=0.15)
    for name, style in (("DiLoCo", "--"), ("alone", ":")):
        title = f"OpenDiLoCo's end, {'H = 500' if name == 'DiLoCo' else 'one replica alone'}"
        above.axhline(100 * published_gap(name), linestyle=style, color="grey", label=title)
    losses.set(title="held-out loss", xlabel="inner step", ylabel="nats per byte")
    above.set(title="above data parallelism at the same step", xlabel="inner step", ylabel="% of its loss")
    for axes in (losses, above):
        axes.legend(fontsize="x-small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def table(runs: Runs, last: int) -> Iterator[str]:
    """Markdown lines. A run that has not come to step `last` is said to be under way."""
    yield f"| run | seeds | loss after {last} steps | above data parallelism, worst seed | bytes, times fewer |"
    yield "|---|---|---|---|---|"
    for name, title in TITLES.items():
        mine = {seed: run for (seed, other), run in sorted(runs.items()) if other == name}
        ended = {seed: run["losses"][-1][1] for seed, run in mine.items() if run["step"] >= last and run["losses"]}
        under_way = [f"seed {seed} at step {run['step']}" for seed, run in mine.items() if seed not in ended]
        above = [one[last] for one in gaps(runs, name).values() if last in one] if name != "dp" else []
        ratios = [(run["ratio"], run["ratio_reducing"]) for run in mine.values() if "ratio" in run]
        loss = f"{sum(ended.values()) / len(ended):.4f}" if ended else "–"
        gap = f"{100 * max(above):+.2f}%" if above else "–"
        fewer = f"{ratios[0][0]:.0f}; {ratios[0][1]:.0f} by shard means" if ratios else "–"
        yield f"| {title} | {', '.join([str(len(ended)), *under_way])} | {loss} | {gap} | {fewer} |"
    end = f"{PERPLEXITY['DiLoCo']} beside {PERPLEXITY['data parallelism']} (perplexity)"
    yield f"| OpenDiLoCo, 150M, 8 replicas, H = 500 | – | {end} | {100 * published_gap('DiLoCo'):+.2f}% | 500 |"


def write_table(runs: Runs, last: int, path: Path, image: Path) -> None:
    """In the place between the two marks. Raises ValueError where these are missing."""
    text = path.read_text()
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{path} has no place for the table: {BEGIN} … {END}")
    picture = [f"![losses of sites and of data parallelism]({image.parent.name}/{image.name})", ""] if runs else []
    body = "\n".join(["", *picture, *table(runs, last), ""])
    write_atomic(path, f"{before}{BEGIN}\n{body}\n{END}{after}".encode())


def write(runs: Runs, last: int, image: Path = IMAGE, page: Path = TABLE) -> None:
    """Picture, once there is anything to draw, and table."""
    if runs:
        draw(runs, image)
    write_table(runs, last, page, image)


if __name__ == "__main__":
    from benchmarks.diloco_training import Scale

    write(so_far(), Scale().last)
    print(f"{IMAGE.name}, {TABLE.name}")
