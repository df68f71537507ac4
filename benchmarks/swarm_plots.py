"""`python -m benchmarks.swarm_plots`: draws docs/images/swarm.png and writes the tables of docs/swarm.md from the
finished runs of `python -m benchmarks swarm`.

Beside them the cumulative rewards that SAPO (2509.08721) gives for eight members of 0.5B parameters, nine tasks of
reasoning_gym and 2,000 rounds; its curves are pictures.
"""

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.swarm import KEPT_HOSTILE, KEPT_MIXED, KEPT_RUNS, SMOOTH, kept
from benchmarks.swarm_mixed import ALONE, DEFENDED, SHARED
from protocol.files import write_atomic

ROOT = Path(__file__).parent.parent
IMAGE, DOCUMENT = ROOT / "docs" / "images" / "swarm.png", ROOT / "docs" / "swarm.md"
PUBLISHED = {"8/0": 561.79, "6/2": 854.43, "4/4": 1093.31, "2/6": 945.87}
_MARK, _END = "<!-- {}: written by benchmarks/swarm_plots.py -->", "<!-- {}: end -->"
Row = dict[str, Any]


def by_mix(runs: Sequence[Row]) -> dict[str, list[Row]]:
    """Mix → runs of the seeds that have all mixes, so that every mean is over the same seeds."""
    seeds = [{run["seed"] for run in runs if run["mix"] == mix} for mix in PUBLISHED]
    whole = set.intersection(*seeds)
    return {mix: [run for run in runs if run["mix"] == mix and run["seed"] in whole] for mix in PUBLISHED}


def smoothed(series: Sequence[float]) -> list[float]:
    """Means over the SMOOTH rounds that end at each; shorter at the beginning."""
    return [statistics.fmean(series[max(0, at + 1 - SMOOTH) : at + 1]) for at in range(len(series))]


def mixes_table(runs: Sequence[Row]) -> str:
    """A row for each mix: cumulative reward of every seed and their mean, beside the paper's."""
    found = by_mix(runs)
    if not all(found.values()):
        return "Not all mixes have been run with one seed."
    seeds = [str(run["seed"]) for run in found["8/0"]]
    alone = _mean(found["8/0"], "cumulative")
    lines = [
        f"| mix | cumulative reward of seeds {', '.join(seeds)} | mean | over 8/0 | held-out reward | trained groups "
        "with an advantage | deviation from its mean of ten rounds | paper's cumulative reward | over 8/0 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for mix, rows in found.items():
        cumulative = _mean(rows, "cumulative")
        held_out = statistics.fmean(run["held_out"][-1][1] for run in rows)
        cells = [
            mix,
            ", ".join(f"{run['cumulative']:.2f}" for run in rows),
            f"{cumulative:.2f}",
            f"{cumulative / alone - 1:+.1%}",
            f"{held_out:.3f}",
            f"{_mean(rows, 'signal'):.0%}",
            f"{_mean(rows, 'spread'):.3f}",
            f"{PUBLISHED[mix]}",
            f"{PUBLISHED[mix] / PUBLISHED['8/0'] - 1:+.1%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def mixed_table(found: Row) -> str:
    """Two rows for each of the unlike models, sharing as in the paper and with the defences: the held-out reward alone
    and with sharing, and what that gains as a difference, as a share, and in log-odds."""
    if "gains" not in found:
        return "No seed has all of them yet."
    ends = {(row["mix"], row["seed"]): row["end"] for row in found["rows"]}
    starts = [row["start"] for row in found["rows"] if row["mix"] == ALONE.name and row["seed"] in found["seeds"]]
    lines = [
        "| model | before | alone (8/0) | sharing (4/4) | with it | gain | over what it has alone | in log-odds"
        " (standard error of the seeds) | gain of each seed | gain of the mean over the rounds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, alone in found["alone"].items():
        for arm, kind, ending in ((SHARED, "shared", ""), (DEFENDED, "defended", "_defended")):
            gain, odds = found[f"gains{ending}"][name], found[f"log_odds{ending}"][name]
            each = (ends[arm.name, seed][name] - ends[ALONE.name, seed][name] for seed in found["seeds"])
            cells = [
                name + (" (weakest alone)" if name == found["weakest"] else ""),
                f"{statistics.fmean(start[name] for start in starts):.3f}",
                f"{alone:.3f}",
                "as in the paper" if arm is SHARED else "with the defences",
                f"{found[kind][name]:.3f}",
                f"{gain:+.3f}",
                f"{gain / alone:+.0%}",
                f"{statistics.fmean(odds):+.2f} ({_standard_error(odds):.2f})",
                ", ".join(f"{one:+.3f}" for one in each),
                f"{found[f'gains_mean{ending}'][name]:+.3f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _standard_error(values: Sequence[float]) -> float:
    """Of their mean; 0 of a single one, which says nothing about it."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def crowds_table(found: Row) -> str:
    """A row for each crowd of a thousand: whom its receivers looked at and trained on."""
    lines = [
        "| hostile members' envelopes | hostile of the keys | of the groups looked at | of those trained on"
        " | places filled | variance over mean of how often honest members are drawn | milliseconds a round |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found.get("crowds", ()):
        cells = [
            one["name"], f"{one['keys']:.0%}", f"{one['hostile_looked']:.0%}", f"{one['hostile']:.0%}",
            f"{one['full']:.0%}", f"{one['variance_ratio']:.2f}", f"{one['milliseconds']:.0f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def hostile_table(found: Row) -> str:
    """A row for each attack: how many held-out completions show it, and rewards over those without."""
    attacks = found.get("hostile", {}).get("attacks", ())
    lines = [
        "| attack | seeds undefended, defended | shows it, undefended | defended (without the attacker, under other"
        " attacks) | each seed, defended, and without the attacker | the attack adds, in points (95%) | hostile of the"
        " shared groups trained on, undefended, defended | cumulative reward over that without it, undefended"
        " | defended | of each seed | over that of members who see nobody |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in attacks:
        unseen = one.get("reward_ratio_unseen")
        cells = [
            one["name"],
            f"{one['seeds_undefended']}, {one['seeds']}",
            f"{one['success_undefended']:.1%}",
            f"{one['success']:.1%} ({one['without']:.1%}, {one['elsewhere']:.1%})",
            _pairs(one["success_each"], one["without_each"]),
            "{:+.2f} ± {:.2f}".format(*(100 * value for value in one["adds"])),
            f"{one['hostile_share_undefended']:.0%}, {one['hostile_share']:.0%}",
            f"{one['reward_ratio_undefended']:.2f}",
            f"{one['reward_ratio']:.2f}",
            ", ".join(f"{ratio:.2f}" for ratio in one["each"]),
            "" if unseen is None else f"{unseen:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def unrationed_table(found: Row) -> str:
    """A row for each attack that was run without the ration of what is rare, too."""
    attacks = [one for one in found.get("hostile", {}).get("attacks", ()) if one["seeds_unrationed"]]
    lines = [
        "| attack | seeds | shows it (without the attacker) | each seed, and without the attacker | hostile of the"
        " shared groups trained on | cumulative reward over that without it | of each seed |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in attacks:
        cells = [
            one["name"],
            str(one["seeds_unrationed"]),
            f"{one['success_unrationed']:.1%} ({one['without_unrationed']:.1%})",
            _pairs(one["success_each_unrationed"], one["without_each_unrationed"]),
            f"{one['hostile_share_unrationed']:.0%}",
            f"{one['reward_ratio_unrationed']:.2f}",
            ", ".join(f"{ratio:.2f}" for ratio in one["each_unrationed"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _pairs(first: Sequence[float], second: Sequence[float]) -> str:
    return "; ".join(f"{one:.1%}, {other:.1%}" for one, other in zip(first, second, strict=True))


def draw(runs: Sequence[Row], path: Path) -> None:
    """Rewards by round, and cumulative rewards over those without sharing beside the paper's."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    rounds, bars = figure.subplots(1, 2, width_ratios=(3, 2))
    found = by_mix(runs)
    for mix, rows in found.items():
        curves = list(zip(*(smoothed(run["series"]) for run in rows), strict=True))
        at = range(1, len(curves) + 1)
        rounds.plot(at, [statistics.fmean(values) for values in curves], label=mix)
        rounds.fill_between(at, list(map(min, curves)), list(map(max, curves)), alpha=0.12)
    rounds.set_xlabel("round")
    rounds.set_ylabel(f"mean reward of {SMOOTH} rounds; seeds' mean and range")
    rounds.legend(title="own / shared")
    alone = _mean(found["8/0"], "cumulative")
    ours = [_mean(rows, "cumulative") / alone for rows in found.values()]
    paper = [value / PUBLISHED["8/0"] for value in PUBLISHED.values()]
    for place, (title, values) in enumerate((("ours", ours), ("paper", paper))):
        bars.bar([number + 0.4 * place for number in range(len(values))], values, 0.38, label=title)
    bars.set_xticks([number + 0.2 for number in range(len(found))], list(found))
    bars.set_ylabel("cumulative reward over that of 8/0")
    bars.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def write(document: Path, name: str, table: str) -> None:
    """Put a table between its marks."""
    text, mark, end = document.read_text(), _MARK.format(name), _END.format(name)
    before, rest = text.split(mark)
    _, after = rest.split(end)
    write_atomic(document, f"{before}{mark}\n{table}\n{end}{after}".encode())


def _mean(rows: Sequence[Row], key: str) -> float:
    return statistics.fmean(row[key] for row in rows)


def main() -> None:
    runs = kept(KEPT_RUNS)
    write(DOCUMENT, "mixes", mixes_table(runs))
    if all(by_mix(runs).values()):
        draw(runs, IMAGE)
    if KEPT_HOSTILE.is_file():
        kept_hostile = json.loads(KEPT_HOSTILE.read_bytes())
        write(DOCUMENT, "hostile", hostile_table(kept_hostile))
        write(DOCUMENT, "unrationed", unrationed_table(kept_hostile))
        write(DOCUMENT, "crowds", crowds_table(kept_hostile))
    if KEPT_MIXED.is_file():
        write(DOCUMENT, "mixed", mixed_table(json.loads(KEPT_MIXED.read_bytes())))


if __name__ == "__main__":
    main()
