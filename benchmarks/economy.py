"""What breaking the rules earns, played on the contracts themselves (contracts/test/economy).

A plan is a point among a coalition's choices: named strategies, random plans, and variations of those that earned most.
Lanes are played unwatched, watched (somebody re-checks what is to be paid) and with a canary; expectations mix them by
EconomyLimits. Gains are tokens a lane beyond honest play in the same lanes, plus work and checks spared: work at its
pay, which is the most that it can cost, and checks at the share of that which benchmarks/results/price.json measured.

Keys: `strategies`, `lanes`; `check`: what one of the largest file costs and earns; `named`: what each of NAMED
gains; `profitable`: how many plans gain, by three standard errors, within STATED; `worst` of these, by what it surely
gains; `found`: the profitable ones; `beyond`: the best outside each of the limits.
"""

import json
import math
import os
import random
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from eth_abi.abi import decode, encode

from chain.deployment import FOLDER, NetworkConfig
from protocol.encoding import TOKEN, parse_tokens

ROOT = Path(__file__).parent.parent
NETWORK = "base-sepolia"
TERMS = tomllib.loads((FOLDER / "terms" / f"{NETWORK}.toml").read_text())
ROWS, UNITS, WAYS = 128, 128 * 512, 5
VOTE = {"truth": 12, "nothing": 0, "accept": 1, "reject": 3, "malformed": 10, "unavailable": 11}
VOTE |= {"against the truth and split": 13, "a copied commitment": 14}
CHOICES = {
    "owner": {"honest": 0, "in the coalition": 1},
    "forged rows": {"none": 0, "1 of 128": 1, "32 of 128": 32, "all": ROWS},
    "bytes": {"served to all": 0, "own ones nowhere": 1, "own ones to own seats": 2, "others' to own seats": 3},
    "votes on own files": VOTE,
    "votes on others' files": VOTE,
    "votes so": {"with a majority": 1, "always": 0, "with all members": 2, "in the minority": 3, "alone": 4},
    "jurors on own files": VOTE,
    "jurors on others' files": VOTE,
    "disputes": {"nothing": 0, "honest work": 1, "own fraud": 2},
    "appeals": {"no": 0, "yes": 1},
    "false canary": {"none": 0, "accepted by most": 1, "not accepted by most": 2, "accepted by none": 3},
    "owner's service": {"relays": 0, "is silent": 1, "rotates its key": 2, "pauses the pool": 3},
    "sequencer": {"runs": 0, "halts for half the window": 1},
    "bonds": {"filled up": 0, "carried until evicted": 1},
}
"""By name and label what Market.sol's `Strategy` holds, in its order; the first label is the honest one. Votes are five
nibbles, one for each of the coalition's members of a body."""
OWN, OTHERS, JURORS, OTHER_JURORS = (name for name, options in CHOICES.items() if options is VOTE)
SO, FORGED = "votes so", "forged rows"
REPLIES = ("accept", "reject", "malformed", "unavailable", "nothing", "a copied commitment")
NAMED: dict[str, dict[str, Any]] = {
    **{f"one seat votes {vote}, unseen": {OTHERS: vote, SO: "alone"} for vote in REPLIES},
    **{f"all its seats vote {vote}, unseen": {OTHERS: vote, SO: "always"} for vote in REPLIES},
    "owner rejects honest work": {"owner": 1, OTHERS: "reject", OTHER_JURORS: "reject"},
    "owner voids honest work (High 1)": {"owner": 1, OTHERS: "against the truth and split", SO: "always"},
    "owner calls honest work unavailable": {"owner": 1, OTHERS: "unavailable", SO: "with all members"},
    "owner hides honest work from others": {"owner": 1, OTHERS: "reject", "bytes": 3},
    "owner opens a false canary": {"owner": 1, OWN: "reject", JURORS: "reject", "false canary": 2},
    "owner accuses those who accepted": {"owner": 1, JURORS: "reject", "false canary": 1},
    "owner accepts what is nowhere": {"owner": 1, OWN: "accept", FORGED: ROWS, "bytes": 1},
    "nodes forge, their seats accept": {OWN: "accept", JURORS: "accept", FORGED: ROWS},
    "nodes forge, their seats split": {OWN: "against the truth and split", SO: "always", FORGED: ROWS},
    "nodes forge, their jurors split": {OWN: "accept", JURORS: "against the truth and split", FORGED: ROWS},
    "nodes forge, their seats do not look (High 2)": {OWN: "unavailable", JURORS: "unavailable", FORGED: ROWS},
    "nodes flood with tiny garbage (High 3)": {OWN: "nothing", FORGED: ROWS, "files": 16, "others": 0, "units": 1},
    "jurors reject honest work that friends dispute": {OTHER_JURORS: "reject", "disputes": 1},
    "jurors stay away from disputes of friends (High 3)": {OTHER_JURORS: "nothing", "disputes": 1, SO: "always"},
}
RULES = ["rate", "fee", "jury_fee", "min_stake", "leverage", "committee", "jury", "appeal_jury", "audit_rate"]
RULES += ["challenge_window", "commit_window", "reveal_window"]
Plan = dict[str, int]


def labels(name: str) -> dict[str, int]:
    """Return a choice's values by label; of votes those with which every seat votes alike."""
    return {label: value * (0x11111 if CHOICES[name] is VOTE else 1) for label, value in CHOICES[name].items()}


@dataclass(frozen=True)
class EconomyLimits:
    """Shares: of the seats that the coalition holds, of lanes that somebody re-checks, of files that are canaries."""

    seats: float = 1 / 3
    watched: float = 1 / 10
    canaries: float = 1 / 500


STATED = EconomyLimits()
BEYOND = {"nobody re-checks": replace(STATED, watched=0.0), "no canaries": replace(STATED, canaries=0.0)}


@dataclass
class Played:
    plan: Plan
    named: str = ""
    lanes: list[tuple[int, int]] = field(default_factory=list)
    """The coalition's gain, the others' loss, in base units; of four lanes two are unwatched, the last has a canary."""

    def expected(self, limits: EconomyLimits = STATED, column: int = 0) -> tuple[float, float]:
        """Return the mean per lane in tokens, and its standard error."""
        values = [lane[column] / TOKEN for lane in self.lanes]
        canary = min(1.0, limits.canaries * (self.plan["files"] + self.plan["others"]))
        rates = ((1 - canary) * (1 - limits.watched), (1 - canary) * limits.watched, canary)
        strata = (values[0::4] + values[1::4], values[2::4], values[3::4])
        error = sum(rate**2 * variance(part) / len(part) for rate, part in zip(rates, strata, strict=True))
        return sum(rate * fmean(part) for rate, part in zip(rates, strata, strict=True)), math.sqrt(error)

    def least(self, limits: EconomyLimits = STATED) -> float:
        """Return what it surely gains: three standard errors below the mean."""
        mean, error = self.expected(limits)
        return mean - 3 * error

    def summary(self, limits: EconomyLimits = STATED) -> dict[str, Any]:
        (mean, error), (harm, _) = self.expected(limits), self.expected(limits, 1)
        return {"name": self.name(), "gain": round(mean, 4), "error": round(error, 4), "harm": round(harm, 4)}

    def name(self) -> str:
        plan, count = self.plan, self.plan["files"] + self.plan["others"]
        parts = [f"{plan['seats']}% of the seats, {plan['files']} of {count} files of {plan['units']} units"]
        for name in CHOICES:
            if plan[name] != next(iter(labels(name).values())):
                labels_of_value = (label for label, value in labels(name).items() if value == plan[name])
                parts.append(f"{name}: {next(labels_of_value, hex(plan[name]))}")
        return "; ".join(parts)


def draw_plan(source: random.Random, lanes: int, known: dict[str, Any] | None = None) -> Plan:
    """Choose at random, three in four honestly, except the `known` ones; of votes, half of the time one for each
    seat."""
    files = source.choice((1, 3, 4, 16))
    plan = {"seed": source.getrandbits(40), "lanes": lanes, "seats": source.randint(5, 33), "files": files}
    plan |= {"others": source.choice((min(16 - files, round(files * 7 / 3)), 16 - files)), "rows": ROWS}
    plan["units"] = source.choice((UNITS, UNITS // 10, 1))
    for name, options in CHOICES.items():
        honest, *others = options.values()
        plan[name] = honest if known is not None or source.random() < 0.75 else source.choice(others)
        if options is VOTE:
            each = plan[name] != honest and source.random() < 0.5
            ways = source.choices([*options.values()], k=WAYS) if each else [plan[name]] * WAYS
            plan[name] = sum(vote << 4 * way for way, vote in enumerate(ways))
    plan |= {name: value if isinstance(value, int) else labels(name)[value] for name, value in (known or {}).items()}
    if not plan["owner"]:  # no other service relays what it has not
        plan["bytes"] = 0
    if not plan["owner"] or not plan["others"]:
        plan |= {"false canary": 0, "owner's service": 0}
    return plan


def vary(source: random.Random, parent: Plan) -> Plan:
    """Return a plan with about a quarter of its choices drawn again."""
    fresh = draw_plan(source, parent["lanes"])
    fresh |= {name: parent[name] for name in ("seats", "units", *CHOICES) if source.random() < 0.75}
    return draw_plan(source, parent["lanes"], fresh | {"seed": source.getrandbits(40)})


def setting(units: int) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Return the harness's Setting and Rules, of the shipped network and its pool's terms, with what a check of so many
    `units` costs."""
    suite = NetworkConfig.load(NETWORK).suite
    fixed = (suite.min_window, suite.block_seconds, suite.unbonding, suite.bond, suite.min_bond, suite.epoch_blocks)
    terms = [parse_tokens(TERMS[name]) if isinstance(TERMS[name], str) else TERMS[name] for name in RULES]
    prices = json.loads((ROOT / "benchmarks/results/price.json").read_text())["cost"]["rates"]
    check = round(prices[str(TERMS["audit_rate"])]["share"] * units * terms[0])
    return (*fixed, suite.penalties.as_tuple()), (*terms, UNITS, check)


def case_types() -> str:
    """Return the ABI type of a list of Economy.t.sol's `Case`: setting, rules, plan."""
    fixed, rules, plan = ((count * ",uint256")[1:] for count in (6, len(RULES) + 2, 7 + len(CHOICES)))
    return f"(({fixed},(uint16,uint16{6 * ',uint256'})),({rules}),({plan}))[]"


def play(batch: Sequence[Played]) -> None:
    """Add every plan's lanes, played by forge."""
    cases = [(*setting(game.plan["units"]), tuple(game.plan.values())) for game in batch]
    binary = next(ROOT.glob("node_modules/@foundry-rs/forge-*/bin/forge"))
    cache = ROOT / "contracts" / "cache"
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="economy-") as folder:
        path = Path(folder) / "plans"
        path.write_bytes(encode([case_types()], [cases]))
        settings = {"FOUNDRY_TEST": "contracts/test/economy", "MUSTER_ECONOMY": f"./{path.relative_to(ROOT)}"}
        command = [str(binary), "test", "--match-contract=EconomyTest", f"--gas-limit={1 << 60}"]
        done = subprocess.run(command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"forge could not play the plans:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
        (lanes,) = decode(["int256[2][][]"], path.with_suffix(".out").read_bytes())
    for game, more in zip(batch, lanes, strict=True):
        game.lanes += more


def best(played: Sequence[Played], limits: EconomyLimits = STATED) -> list[Played]:
    return sorted(played, key=lambda game: game.least(limits), reverse=True)


def run(quick: bool, progress: Callable[[str], None], count: int = 24) -> dict[str, Any]:
    """`count`: lanes per plan."""
    source, lanes, size = random.Random(7), 8 if quick else count, 20 if quick else 100
    usual = {"seats": 33, "files": 4, "others": 12, "units": UNITS}
    everyone = [Played(draw_plan(source, 4 * lanes, usual | known), name) for name, known in NAMED.items()]
    everyone += [Played(draw_plan(source, lanes)) for _ in range(size)]

    def play_all(batch: Sequence[Played], what: str) -> None:
        for start in range(0, len(batch), 20):
            play(batch[start : start + 20])
        progress(f"{what}: {len(batch)} plans, {sum(len(game.lanes) for game in everyone)} lanes in all")

    play_all(everyone, "named and random")
    for _ in range(2):
        parents = best(everyone)[:12] + best(everyone, BEYOND["no canaries"])[:4]
        batch = [Played(vary(source, source.choice(parents).plan)) for _ in range(size)]
        everyone += batch
        play_all(batch, "variations")
    for _ in range(1 if quick else 3):
        doubtful = [game for game in everyone if game.expected()[0] > 0]
        for game in doubtful:
            game.plan |= {"seed": source.getrandbits(40), "lanes": 4 * lanes}
        play_all(doubtful, "again, those that gained")

    def gaining(limits: EconomyLimits) -> list[dict[str, Any]]:
        return [played.summary(limits) for played in best(everyone, limits) if played.least(limits) > 0]

    rules = setting(UNITS)[1]
    return {
        "strategies": len(everyone),
        "lanes": sum(len(game.lanes) for game in everyone),
        "profitable": len(gaining(STATED)),
        "worst": best(everyone)[0].summary(),
        "limits": asdict(STATED),
        "check": {"cost": rules[-1] / TOKEN, "fee": rules[1] / TOKEN},
        "named": {game.named: game.summary() for game in everyone if game.named},
        "found": gaining(STATED),
        "beyond": {name: gaining(limits)[:5] for name, limits in BEYOND.items()},
    }
