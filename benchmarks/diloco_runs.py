"""What is left of a run of `python -m benchmarks diloco`: its losses and its bytes, a line of a few kilobytes that
outlives checkpoints, journals and the machine that made it."""

import statistics
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from benchmarks.journal import append, lines, resumed
from protocol.sites.traffic import all_reduce

KEPT_RUNS = Path(__file__).parent / "results" / "diloco_runs.jsonl"
Runs = Mapping[tuple[int, str], dict[str, Any]]
"""By seed and name, as `measured` makes them."""


def measured(journal: list[dict[str, Any]]) -> dict[str, Any]:
    """Of a run so far. `losses`: [step, held-out loss]; `ratio`, `ratio_reducing`: bytes of data parallelism to those
    of a site, the mean of the outer steps; `bytes_each`: of the payload, per element."""
    outer = [line["outer"] for line in journal if "outer" in line]
    found: dict[str, Any] = {
        "step": journal[-1]["step"] if journal else 0,
        "losses": [[line["step"], round(line["loss"], 7)] for line in journal if "loss" in line],
        "cpu_s": round(sum(line["cpu"] for line in journal)),
    }
    if outer:
        found |= {
            "outer_steps": len(outer),
            "ratio": statistics.fmean(float(_parallel(one) / all_fetched(one)) for one in outer),
            "ratio_reducing": statistics.fmean(float(_parallel(one) / reduced(one)) for one in outer),
            "bytes_each": statistics.fmean(
                sum(one["payload"].values()) / len(one["payload"]) / one["size"] for one in outer
            ),
            "excluded": sum(len(one["excluded"]) for one in outer),
            "elements_sent": round(statistics.fmean(one["sent"] for one in outer), 4),
        }
    return found


def all_fetched(outer: dict[str, Any]) -> Fraction:
    """Sent and received by the mean site, where each publishes its contribution and fetches all others'."""
    return Fraction(sum(outer["payload"].values()) + sum(outer["document"].values()))


def reduced(outer: dict[str, Any]) -> Fraction:
    """Sent and received by the mean site, where each publishes its contribution, fetches one shard of all others',
    publishes that shard's mean, and fetches the other means."""
    sites = len(outer["payload"])
    payload, document = Fraction(sum(outer["payload"].values())), Fraction(sum(outer["document"].values()))
    means = Fraction(sum(outer["means"]))
    return (payload + document + means) / sites + Fraction(sites - 1, sites) * (payload / sites + document + means)


def keep(path: Path, seed: int, name: str, plan: str, run: dict[str, Any]) -> None:
    """A line for a run that has come to its end. `plan`: digest of all that decides its bits."""
    append(path, {"seed": seed, "name": name, "plan": plan, **run})


def kept(path: Path, plans: Mapping[tuple[int, str], str]) -> dict[tuple[int, str], dict[str, Any]]:
    """The finished runs of these plans, for the one process that writes; what a kill cut off is taken away."""
    found = resumed(path) if path.exists() else []
    return {
        (one["seed"], one["name"]): _run(one) for one in found if plans.get((one["seed"], one["name"])) == one["plan"]
    }


def kept_for_all(path: Path) -> dict[tuple[int, str], dict[str, Any]]:
    """Whatever was finished, the newest of each name and seed."""
    return {(one["seed"], one["name"]): _run(one) for one in lines(path)}


def _run(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in ("seed", "name", "plan")}


def _parallel(outer: dict[str, Any]) -> Fraction:
    """Bytes per site of as many inner steps of data parallelism in float32, by a ring."""
    size, inner_steps = int(outer["size"]), int(outer["inner_steps"])
    return inner_steps * all_reduce(size, len(outer["payload"]), Fraction(4)).total
