"""The table of a hostile swarm: each attack's rows beside those of the same honest members without it."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.swarm_hostile import ATTACKS, UNSEEN, SwarmAttack

Row = dict[str, Any]
SeedRows = dict[tuple[str, str], Row]
"""Of one seed, by attack and level of defence."""
LEVELS = {"defended": "", "undefended": "_undefended", "unrationed": "_unrationed"}
"""How the keys of each end."""


def table(rows: Sequence[Row]) -> Row:
    """The rows as {share, reward_ratio, attacks: [{name, success, success_undefended, …}], rows}; rewards as shares of
    those of the same honest members without attackers, with the same defences (`reward_ratio_unseen`: of those who see
    nobody); means over the seeds that have these rows, as many as `seeds`, `seeds_undefended`, `seeds_unrationed`. Of
    each seed `each` has the reward ratio, `success_each` the success and `without_each` what shows without the
    attacker. `adds`: [by how much more of an honest member's completions show it than without the attacker, half of the
    95% interval of that], over the pairs of one member in both. `reward_ratio`: the least of the means."""
    kinds: dict[tuple[int, int, float], dict[int, SeedRows]] = {}
    for row in rows:
        seeds = kinds.setdefault((row["members"], row["rounds"], row["rate"]), {})
        seeds.setdefault(row["seed"], {})[row["attack"], row["name"].rpartition(", ")[2]] = row
    attacks: list[Row] = []
    for (members, rounds, rate), seeds in kinds.items():
        for attack in ATTACKS:
            each = [_compared(attack, seeds[seed]) for seed in sorted(seeds)]
            each = [one for one in each if "success" in one]
            if any("success_undefended" in one for one in each):
                kind = {"name": attack.name, "members": members, "rounds": rounds, "rate": rate}
                pairs = [pair for seed in sorted(seeds) for pair in _pairs(attack, seeds[seed])]
                attacks.append(kind | _over_seeds(each) | {"adds": adds(pairs)})
    shares = {row["hostile"] / row["members"] for row in rows if row["hostile"]}
    ratios = [one["reward_ratio"] for one in attacks]
    return {
        "share": max(shares, default=0.0),
        "reward_ratio": min(ratios, default=None),
        "attacks": attacks,
        "rows": list(rows),
    }


def _over_seeds(each: Sequence[Row]) -> Row:
    found = {key: [one[key] for one in each if key in one] for one in each for key in one}
    means: Row = {key: round(statistics.fmean(values), 4) for key, values in found.items()}
    counts = {f"seeds{ending}": len(found.get(f"success{ending}", ())) for ending in LEVELS.values()}
    listed = {"each": "reward_ratio", "success_each": "success", "without_each": "without"}
    endings = [ending for ending in LEVELS.values() if f"success{ending}" in found]
    return means | counts | {f"{name}{end}": found[f"{key}{end}"] for end in endings for name, key in listed.items()}


def _pairs(attack: SwarmAttack, found: SeedRows) -> list[tuple[float, float]]:
    """Of one seed, for each honest member what shows with and without the attacker, defended."""
    keys = (attack.name, "defended"), ("", "defended")
    if not set(keys) <= found.keys():
        return []
    attacked, alone = (found[key]["shown_each"][attack.poison] for key in keys)
    return list(zip(attacked, alone, strict=True))


def adds(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The mean difference of the pairs, and 1.96 of its standard errors. Members of one seed learn from one another, so
    the interval is a little too narrow."""
    differences = [one - other for one, other in pairs]
    if len(differences) < 2:
        return (round(sum(differences), 4), 1.0)
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    return (round(statistics.fmean(differences), 4), round(1.96 * error, 4))


def _compared(attack: SwarmAttack, found: SeedRows) -> Row:
    """At each level for which there is a row with the attack and one without."""
    made: Row = {}
    for level, ending in LEVELS.items():
        if not {(attack.name, level), ("", level)} <= found.keys():
            continue
        attacked, alone = found[attack.name, level], found["", level]
        made[f"success{ending}"] = attacked["success"]
        made[f"without{ending}"] = alone["shown"][attack.poison]
        made[f"elsewhere{ending}"] = _elsewhere(attack, level, found)
        made[f"reward_ratio{ending}"] = _ratio(attacked["cumulative"], alone["cumulative"])
        made[f"held_out_ratio{ending}"] = _ratio(attacked["held_out"], alone["held_out"])
        made[f"hostile_share{ending}"] = _ratio(attacked["hostile_groups"], attacked["shared_groups"])
        if level == "defended" and (UNSEEN, level) in found:
            made["reward_ratio_unseen"] = _ratio(attacked["cumulative"], found[UNSEEN, level]["cumulative"])
            made["without_unseen"] = found[UNSEEN, level]["shown"][attack.poison]
    return made


def _elsewhere(attack: SwarmAttack, level: str, found: SeedRows) -> float:
    """How much of the plant shows where something else was planted: what rounds that went another way come to by
    themselves. Without any such row, what shows where nobody attacked."""
    others = [one.name for one in ATTACKS if one.poison != attack.poison and (one.name, level) in found]
    shown = [found[name, level]["shown"][attack.poison] for name in others or ("",)]
    return statistics.fmean(shown)


def _ratio(value: float, to: float) -> float:
    return round(value / to, 4) if to else 0.0
