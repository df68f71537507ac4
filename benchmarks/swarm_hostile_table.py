"""The table of a hostile swarm: each attack's rows beside those of the same honest members without it."""

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.swarm_hostile import ATTACKS, UNSEEN, SwarmAttack

Row = dict[str, Any]
SeedRows = dict[tuple[str, str], Row]
"""Of one seed, by attack and level of defence."""
LEVELS = {"defended": "", "undefended": "_undefended", "rationed": "_rationed"}
"""How the keys of each end."""


def table(rows: Sequence[Row]) -> Row:
    """The rows as {share, reward_ratio, attacks: [{name, success, success_undefended, …}], rows}; rewards as shares of
    those of the same honest members without attackers, with the same defences (`reward_ratio_unseen`: of those who see
    nobody); means over the seeds that have these rows, so many as `seeds`, `seeds_undefended` and `seeds_rationed` say.
    Of each seed `each` has the reward ratio, `success_each` the success and `without_each` what shows without the
    attacker. `reward_ratio`: the least of the means."""
    kinds: dict[tuple[int, int], dict[int, SeedRows]] = {}
    for row in rows:
        seeds = kinds.setdefault((row["members"], row["rounds"]), {})
        seeds.setdefault(row["seed"], {})[row["attack"], row["name"].rpartition(", ")[2]] = row
    attacks: list[Row] = []
    for (members, rounds), seeds in kinds.items():
        for attack in ATTACKS:
            each = [_compared(attack, seeds[seed]) for seed in sorted(seeds)]
            each = [one for one in each if "success" in one]
            if any("success_undefended" in one for one in each):
                attacks.append({"name": attack.name, "members": members, "rounds": rounds} | _over_seeds(each))
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
    rationed = {f"{name}_rationed": f"{key}_rationed" for name, key in listed.items()}
    return means | counts | {name: found[key] for name, key in (listed | rationed).items() if key in found}


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
