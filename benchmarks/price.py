"""The price of cheating: what every attack of the table saves, how soon it is found, and what that costs.

`python -m benchmarks price [--quick]`. Detection comes from results of `benchmarks audits` (files alone, at
audit rates of 1/64, 1/16, 1/4 and 1) and of `benchmarks evidence` (a node's files together; kinds that it lacks: of
`benchmarks margins`); stakes, pay and penalties from chain/networks; what checking costs from `benchmarks verify`. A
full run also writes the tables of docs/economics.md.

Keys: networks {pay, stake, …}; rates; cost (of checking, by rate); attacks [{name, dtype, why, saved, extra, outcome,
whole, mixed, values}]; `values`: by network and rate {value: tokens a file, at the 95% limit of detection that favours
the cheat; likely: at the measured one; bought: with a third of the seats; loss: `value` is one; pays: `likely` is no
loss; files: until found with 99%; stake: the least; life: tokens that a node's life of such files is worth where its
evidence was measured and a node case can name what shows it, else null}; pays {network: {rate: [names]}},
pays_with_law: those whose node is not found either; least {network: {rate: {stake, without: names that no stake
deters}}}; evidence: the same of nodes' lives.
"""

import json
import tomllib
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from benchmarks.audits import AUDITS as MEASURED
from benchmarks.audits import CHEATED
from benchmarks.offline_pool import FULL_WORK, interval
from benchmarks.price_gains import Costs, Motive, motive
from benchmarks.price_table import write_tables
from benchmarks.price_value import (
    AtStake,
    Gain,
    Outcome,
    captured,
    expected,
    files_until,
    least_stake,
    over_lives,
)
from chain.contracts import MOST_FILES
from chain.deployment import FOLDER, NetworkConfig
from protocol.amounts import GRAINS, parse_tokens, show_tokens
from protocol.seeds import AUDIT_EVERYTHING

AUDITS = MEASURED[1:]
RESULTS = Path(__file__).parent / "results"
NETWORKS = ("base-sepolia", "local")
SEATS, DISHONEST = 300, 100
"""For the column of a bought committee: a third of the seats, as in docs/contracts.md."""
Row = dict[str, Any]


def run(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:
    """See the module; takes a second. Raises FileNotFoundError without the results of `audits`."""
    audits, attacks, verify = (
        json.loads((RESULTS / f"{name}.json").read_text()) for name in ("audits", "attacks", "verify")
    )
    found = priced(seen_before_audits(audits, attacks["attacks"]), _evidence(), cost_of_checking(verify))
    for network, by_rate in found["pays"].items():
        progress(f"{network}: { ({rate: len(names) for rate, names in by_rate.items()}) } attacks pay")
    if not quick:
        write_tables(found)
    return found


def seen_before_audits(audits: dict[str, Any], attacks: Sequence[Row]) -> dict[str, Any]:
    """Whole files that fell before any row was prefilled do so at every audit rate: theirs are the more numerous files
    of `benchmarks attacks`."""
    sure = {(one["name"], one["dtype"]): one for one in attacks if one["margin"] is None}
    rows = []
    for row in audits["attacks"]:
        one = sure.get((row["name"], row["dtype"]))
        counts = [[one["detected"], one["submissions"]]] * len(MEASURED) if one else row["whole"]
        rows.append(row | {"whole": counts})
    return audits | {"attacks": rows}


def cost_of_checking(verify: dict[str, Any]) -> dict[str, Any]:
    """What one seat's check of a file of 128 rows costs of generating it, at each audit rate: measured where all and a
    quarter of the rows are audited (`benchmarks verify`), and where few are and share no prompts; without a measurement
    projected from a quarter's cost of a row. One row more than the rate's share is always audited."""
    rows = FULL_WORK.rows
    quarter = 4 / Fraction(str(verify["ratio_quarter"]))
    rates = {}
    for rate in AUDITS:
        audited = 1 + (rows - 1) * Fraction(rate, AUDIT_EVERYTHING)
        each = 1 / Fraction(str(verify["ratio"])) if rate == AUDIT_EVERYTHING else quarter
        each = Fraction(str(verify.get("row_at", {}).get(str(rate), each)))
        rates[str(rate)] = {
            "rows": round(float(audited), 1),
            "share": float(f"{float(each * audited / rows):.3g}"),
            "without_last": float(f"{float(each * rate / AUDIT_EVERYTHING):.3g}"),
        }
    return {"dtype": verify["dtype"], "batch": verify["batch"], "rates": rates}


def priced(audits: dict[str, Any], evidence: Sequence[Row], cost: dict[str, Any]) -> dict[str, Any]:
    """The result from what was measured."""
    whole = Fraction(str(cost["rates"][str(AUDITS[-1])]["share"]))
    costs = Costs(min(Fraction(1), whole), FULL_WORK.samples_per_problem)
    stakes = {name: stakes_of(name) for name in NETWORKS}
    lives = [_life(row, costs, stakes) for row in evidence if not row["name"].startswith("steer")]
    attacks = [_attack(row, costs, stakes) for row in audits["attacks"] if row["name"] != "honest"]
    _add_lives(attacks, lives)
    return {
        "networks": {name: _told(name, one) for name, one in stakes.items()},
        "rates": list(AUDITS),
        "cost": cost,
        "attacks": attacks,
        "pays": {name: {rate: _paying(attacks, name, rate) for rate in map(str, AUDITS)} for name in NETWORKS},
        "pays_with_law": {
            name: {rate: _paying(attacks, name, rate, law=True) for rate in map(str, AUDITS)} for name in NETWORKS
        },
        "least": {name: {rate: _least(attacks, name, rate) for rate in map(str, AUDITS)} for name in NETWORKS},
        "evidence": lives,
    }


def stakes_of(network: str) -> AtStake:
    """What a pool with the shipped terms of a network puts at stake; the largest file's pay."""
    terms, penalties = terms_of(network), NetworkConfig.load(network).suite.penalties
    pay = parse_tokens(terms["rate"]) * int(terms["max_units"])
    return AtStake(pay, parse_tokens(terms["min_stake"]), penalties.slash_bps, penalties.malformed)


def terms_of(network: str) -> dict[str, Any]:
    """The shipped terms of a pool there, as their file has them."""
    return tomllib.loads((FOLDER / "terms" / f"{network}.toml").read_text())


def _told(name: str, stakes: AtStake) -> Row:
    committee = int(terms_of(name)["committee"])
    bought = captured(SEATS, DISHONEST, committee)
    return {
        "pay": show_tokens(stakes.pay),
        "stake": show_tokens(stakes.stake),
        "slash": show_tokens(stakes.penalty("slashed")),
        "malformed": show_tokens(stakes.malformed),
        "committee": committee,
        "captured": float(f"{float(bought):.4f}"),
    }


def outcome_of(codes: dict[str, int]) -> Outcome:
    """What most of an attack's refused files come to. Bytes that do not match their hash are never attested: late."""
    refused = {label: count for label, count in codes.items() if label not in ("accept", "unsure")}
    if not refused:
        return "nothing"
    label = max(refused, key=lambda one: refused[one])
    return "slashed" if label.startswith("reject") else "fined"


def _attack(row: Row, costs: Costs, stakes: dict[str, AtStake]) -> Row:
    why = motive(row["name"])
    gain, outcome = why.gain(costs, row["dtype"]), outcome_of(row["codes"])
    values = {
        name: {str(rate): _value(row, place, gain, outcome, one) for place, rate in enumerate(MEASURED) if place}
        for name, one in stakes.items()
    }
    return {
        "name": row["name"],
        "dtype": row["dtype"],
        "why": why.why,
        "saved": _number(gain.saved),
        "extra": _number(gain.extra),
        "outcome": outcome,
        "whole": row["whole"],
        "mixed": row["mixed"],
        "values": values,
    }


def _value(row: Row, place: int, gain: Gain, outcome: Outcome, stakes: AtStake) -> Row:
    """What the dearer of the two ways to cheat, on all rows or on a sixteenth, is worth at one audit rate."""
    ways = list(_ways(row, place))
    sure = max(expected(gain, share, low, outcome, stakes) for share, low, _ in ways)
    likely = max(expected(gain, share, mean, outcome, stakes) for share, _, mean in ways)
    bought = captured(SEATS, DISHONEST, 3)
    least = [least_stake(gain, share, low, stakes) for share, low, _ in ways]
    return {
        "value": tokens(sure),
        "likely": tokens(likely),
        "bought": tokens(max(expected(gain, share, low * (1 - bought), outcome, stakes) for share, low, _ in ways)),
        "loss": sure < 0,
        "pays": likely > 0,
        "files": files_until(min(low for _, low, _ in ways), Fraction(99, 100)),
        "stake": None if None in least else show_tokens(max(one for one in least if one is not None)),
    }


def _ways(row: Row, place: int) -> Iterator[tuple[Fraction, Fraction, Fraction]]:
    """(share of rows cheated, detection at its lower 95% limit, measured detection)."""
    for share, found in ((Fraction(1), row["whole"]), (Fraction(1, CHEATED), row["mixed"])):
        if found is not None:
            refused, files = found[place]
            yield share, Fraction(int(interval(refused, files)[0] * 10_000), 10_000), Fraction(refused, files)


def _paying(attacks: Sequence[Row], network: str, rate: str, law: bool = False) -> list[str]:
    """Attacks with a gain by what was measured; `law`: in a pool whose law of evidence takes the stake of a node that
    is found by its files together."""
    values = [(_label(one), one["values"][network][rate]) for one in attacks]
    return [name for name, one in values if one["pays"] and not (law and one["life"] is not None and one["life"] < 0)]


def _add_lives(attacks: Sequence[Row], lives: Sequence[Row]) -> None:
    """`life` of every attack's values: a case is brought before a jury that has the worker's engine, so of the pairs of
    a worker's engine the one that sees most counts, and of the engines the one whose cheats are worth most."""
    for row in attacks:
        for network, by_rate in row["values"].items():
            for rate, value in by_rate.items():
                same = [one for one in lives if (one["name"], str(one["audit"])) == (row["name"], rate)]
                value["life"] = worst_life(same, network) if row["dtype"] == "bfloat16" else None


def worst_life(lives: Sequence[Row], network: str) -> float | None:
    """None where nothing was measured, or no case can name what shows one engine's cheats."""
    by_worker: dict[str, list[float]] = {}
    for one in lives:
        known = by_worker.setdefault(one["pair"].split()[0], [])
        if one["values"][network] is not None:
            known.append(one["values"][network])
    return max(map(min, by_worker.values())) if by_worker and all(by_worker.values()) else None


def _least(attacks: Sequence[Row], network: str, rate: str) -> Row:
    """The least stake that makes every attack that gains anything a loss, but for those in `without`."""
    slashed = [one for one in attacks if one["outcome"] != "fined" and one["saved"] + one["extra"] > 0]
    needed = {_label(one): one["values"][network][rate]["stake"] for one in slashed}
    able = [Fraction(stake) for stake in needed.values() if stake is not None]
    without = [name for name, stake in needed.items() if stake is None]
    return {"stake": tokens(max(able, default=Fraction(0)) * GRAINS), "without": without}


def _life(row: Row, costs: Costs, stakes: dict[str, AtStake]) -> Row:
    """Nodes that cheat in every file until a node case takes their stake, which it does with their `files_p99`-th file,
    or until they have handed in as many as a case can name; found as seldom as the 95% interval allows. None where no
    case can name what shows them."""
    why: Motive = motive(row["name"])
    gain = why.gain(costs, "bfloat16")
    kept = {
        name: row[name]
        for name in ("name", "pair", "audit", "found", "nodes", "files_median", "files_p99")
        if name in row
    }
    found = shown(row)
    worth = {
        name: None if found is None else tokens(over_lives(gain, Fraction(1), found, row["files_p99"], MOST_FILES, one))
        for name, one in stakes.items()
    }
    return kept | {"saved": _number(gain.saved), "values": worth}


def shown(row: Row) -> Fraction | None:
    """The share of nodes whose evidence a case can name, at the lower end of the 95% interval. One node of a hundred
    may have needed more files than `files_p99`, so it does not count; None where these are more than a case can
    name."""
    if row["files_p99"] > MOST_FILES:
        return None
    found = min(row["found"], row["nodes"] - max(1, row["nodes"] // 100))
    return Fraction(int(interval(found, row["nodes"])[0] * 10_000), 10_000)


def _evidence() -> list[Row]:
    """What a node's files add up to: as `benchmarks evidence` measured it, and kinds that only `margins` has."""
    sources = (("evidence", "attacks"), ("margins", "lives"))
    paths = [(RESULTS / f"{name}.json", key) for name, key in sources]
    found: list[list[Row]] = [json.loads(path.read_text())[key] if path.exists() else [] for path, key in paths]
    if paths[0][0].exists():
        found[0] += json.loads(paths[0][0].read_text())["settings"]["large law"]["attacks"]
    known = {one["name"] for one in found[0]}
    return found[0] + [one for one in found[1] if one["name"] not in known and not one["name"].startswith("honest")]


def _label(row: Row) -> str:
    return f"{row['name']} ({row['dtype']})"


def tokens(grains: Fraction) -> float:
    """Tokens, to four digits, for reading."""
    return float(f"{float(grains / GRAINS):.4g}")


def _number(share: Fraction) -> float:
    return float(f"{float(share):.3g}")
