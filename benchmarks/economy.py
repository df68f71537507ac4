"""What coalitions earn by breaking the rules, played on the contracts themselves (contracts/test/economy).

A plan is a point among a coalition's choices: known attacks, random plans, and variations of those that earned most.
Lanes are played unwatched, watched (somebody re-checks what is to be paid) and with a canary; expectations mix them by
EconomyLimits. Gains are tokens a lane beyond honest play in the same lanes, plus work spared.

Keys: `strategies`, `lanes`; `profitable`: how many gain, by three standard errors, within STATED; `worst` of these
limits, by what it surely gains; `found`: the profitable ones; `beyond`: the best outside each of the limits.
"""

import math
import os
import random
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from eth_abi.abi import decode, encode

from chain.deployment import FOLDER, NetworkConfig
from protocol.encoding import TOKEN, parse_tokens

ROOT = Path(__file__).parent.parent
NETWORKS = ("local", "base-sepolia")
ROWS = 16
VOTE = {"truth": 12, "nothing": 0, "accept": 1, "reject": 3, "malformed": 10, "unavailable": 11, "each its own": 13}
CHOICES = {
    "owner": {"honest": 0, "in the coalition": 1},
    "forged rows": {"none": 0, "1 of 16": 1, "4 of 16": 4, "all": ROWS},
    "own files' bytes": {"in the storage": 0, "nowhere": 1},
    "votes on own files": VOTE,
    "votes on others' files": VOTE,
    "votes so": {"with a majority": 1, "always": 0, "when all members are its own": 2, "in the minority": 3},
    "jurors on own files": VOTE,
    "jurors on others' files": VOTE,
    "disputes": {"nothing": 0, "honest work": 1, "own fraud": 2},
    "appeals": {"no": 0, "yes": 1},
    "false canary": {"none": 0, "accepted by most": 1, "not accepted by most": 2, "accepted by none": 3},
    "owner's service": {"relays": 0, "is silent": 1, "rotates its key": 2, "pauses the pool": 3},
}
"""By name and label what Market.sol's `Strategy` holds, in its order; the first label is the honest one."""
KNOWN = (
    {"owner": 1, "votes on others' files": VOTE["reject"], "jurors on others' files": VOTE["reject"]},
    {"owner": 1, "votes on others' files": VOTE["unavailable"], "votes so": 2},
    {"votes on others' files": VOTE["unavailable"]},
    {"owner": 1, "votes on own files": VOTE["reject"], "jurors on own files": VOTE["reject"], "false canary": 2},
    {"owner": 1, "jurors on own files": VOTE["reject"], "false canary": 1},
    {"votes on own files": VOTE["accept"], "jurors on own files": VOTE["accept"], "forged rows": ROWS},
    {"votes on own files": VOTE["unavailable"], "jurors on own files": VOTE["accept"], "forged rows": ROWS},
    {"owner": 1, "votes on own files": VOTE["accept"], "forged rows": ROWS, "own files' bytes": 1},
    {"votes on own files": VOTE["accept"], "votes on others' files": VOTE["accept"], "votes so": 0},
    {"jurors on others' files": VOTE["reject"], "disputes": 1},
    {"owner": 1, "votes on others' files": VOTE["each its own"], "votes so": 0},
    {"votes on own files": VOTE["each its own"], "forged rows": ROWS, "votes so": 0},
    {"jurors on own files": VOTE["each its own"], "votes on own files": VOTE["accept"], "forged rows": ROWS},
)
RULES = ["rate", "fee", "jury_fee", "min_stake", "leverage", "committee", "jury", "appeal_jury", "audit_rate"]
RULES += ["challenge_window"]
Plan = dict[str, int]


@dataclass(frozen=True)
class EconomyLimits:
    """Shares: of the seats that the coalition holds, of lanes that somebody re-checks, of files that are canaries."""

    seats: float = 1 / 3
    watched: float = 1 / 10
    canaries: float = 1 / 1_000


STATED = EconomyLimits()
BEYOND = {"nobody re-checks": replace(STATED, watched=0.0), "no canaries": replace(STATED, canaries=0.0)}


@dataclass
class Played:
    network: str
    plan: Plan
    known: bool = False
    lanes: list[tuple[int, int]] = field(default_factory=list)
    """The coalition's gain, the others' loss, in base units; of four lanes two are unwatched, the last has a canary."""

    @property
    def within(self) -> bool:
        return self.plan["seats"] / 100 <= STATED.seats

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
        mean, error = self.expected(limits)
        harm = self.expected(limits, 1)[0]
        return {"name": self.name(), "gain": round(mean, 4), "error": round(error, 4), "harm": round(harm, 4)}

    def name(self) -> str:
        plan = self.plan
        files = f"{plan['files']} of {plan['files'] + plan['others']} files of {plan['units']} units"
        parts = [f"{self.network}, {plan['seats']}% of the seats, {files}"]
        for name, options in CHOICES.items():
            label = next(label for label, value in options.items() if value == plan[name])
            if label != next(iter(options)):
                parts.append(f"{name}: {label}")
        return "; ".join(parts)


def draw_plan(source: random.Random, units: tuple[int, int], lanes: int, known: Plan | None = None) -> Plan:
    """Choose at random, three in four honestly, but for the `known` ones; `units`: of shipped and largest file."""
    files = source.choice((1, 3, 4, 16))
    plan = {"seed": source.getrandbits(40), "lanes": lanes, "seats": source.randint(5, 45), "files": files}
    plan |= {"others": source.choice((min(16 - files, round(files * 7 / 3)), 16 - files)), "rows": ROWS}
    plan["units"] = source.choice((*units, units[1] // 10))
    for name, options in CHOICES.items():
        honest, *others = options.values()
        plan[name] = honest if known is not None or source.random() < 0.75 else source.choice(others)
    plan |= known or {}
    if not plan["owner"]:  # no other service relays what it has not
        plan |= {"own files' bytes": 0}
    if not plan["owner"] or not plan["others"]:
        plan |= {"false canary": 0, "owner's service": 0}
    return plan


def vary(source: random.Random, parent: Plan, units: tuple[int, int]) -> Plan:
    """Return a plan with about a quarter of its choices drawn anew."""
    fresh = draw_plan(source, units, parent["lanes"])
    kept = {name: parent[name] for name in ("seats", "units", *CHOICES) if source.random() < 0.75}
    fresh |= kept
    return draw_plan(source, units, parent["lanes"], fresh | {"seed": source.getrandbits(40)})


def setting(network: str) -> tuple[tuple[Any, ...], tuple[int, ...], tuple[int, int]]:
    """Return the harness's Setting and Rules, of a shipped network and its pool's terms; units of that pool's largest
    file and of the largest that the contracts allow."""
    suite = NetworkConfig.load(network).suite
    text = tomllib.loads((FOLDER / "terms" / f"{network}.toml").read_text())
    terms = {name: parse_tokens(text[name]) if isinstance(text[name], str) else text[name] for name in RULES}
    most_units = (terms["committee"] // 2 + 1) * suite.min_bond // (16 * terms["rate"])
    fixed = (suite.min_window, suite.block_seconds, suite.unbonding, suite.bond, suite.min_bond, suite.epoch_blocks)
    return (*fixed, suite.penalties.as_tuple()), (*terms.values(), most_units), (text["max_units"], most_units)


def case_types() -> str:
    """Return the ABI type of a list of Economy.t.sol's `Case`: setting, rules, plan."""
    fixed, rules, plan = ((count * ",uint256")[1:] for count in (6, 11, 7 + len(CHOICES)))
    return f"(({fixed},(uint16,uint16{6 * ',uint256'})),({rules}),({plan}))[]"


def forge(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run forge with this benchmark's contracts for its only tests."""
    binary = next(ROOT.glob("node_modules/@foundry-rs/forge-*/bin/forge"))
    environment = os.environ | {"FOUNDRY_TEST": "contracts/test/economy"} | variables
    return subprocess.run([binary, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def play(batch: Sequence[Played]) -> None:
    """Add every plan's lanes, played by forge."""
    cases = [(*setting(one.network)[:2], tuple(one.plan.values())) for one in batch]
    cache = ROOT / "contracts" / "cache"
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="economy-") as folder:
        path = Path(folder) / "plans"
        path.write_bytes(encode([case_types()], [cases]))
        plans = f"./{path.relative_to(ROOT)}"
        done = forge("test", "--match-contract=EconomyTest", f"--gas-limit={1 << 60}", MUSTER_ECONOMY=plans)
        if done.returncode:
            raise RuntimeError(f"forge could not play the plans:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
        (lanes,) = decode(["int256[2][][]"], path.with_suffix(".out").read_bytes())
    for one, more in zip(batch, lanes, strict=True):
        one.lanes += more


def best(played: Sequence[Played], count: int, limits: EconomyLimits = STATED, within: bool = True) -> list[Played]:
    group = [one for one in played if one.within == within]
    return sorted(group, key=lambda one: one.least(limits), reverse=True)[:count]


def run(quick: bool, progress: Callable[[str], None], count: int = 24, jobs: int = 2) -> dict[str, Any]:
    """`count`: lanes per plan; `jobs`: processes of forge."""
    source, lanes, size = random.Random(7), 8 if quick else count, 10 if quick else 100
    sizes = {network: setting(network)[2] for network in NETWORKS}
    everyone: list[Played] = []
    forge("build")  # once, before several processes do

    def play_all(batch: Sequence[Played], what: str) -> None:
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(play, [batch[start : start + 20] for start in range(0, len(batch), 20)]))
        progress(f"{what}: {len(batch)} plans, {sum(len(one.lanes) for one in everyone)} lanes in all")

    for network, units in sizes.items():
        firsts = [*KNOWN * (2 if quick else 8), *[None] * size]
        everyone += [Played(network, draw_plan(source, units, lanes, first), first is not None) for first in firsts]
    play_all(everyone, "known and random")
    for _ in range(2):
        batch = []
        for network, units in sizes.items():
            group = [one for one in everyone if one.network == network]
            parents = best(group, 8) + best(group, 8, within=False) + best(group, 4, BEYOND["no canaries"])
            batch += [Played(network, vary(source, source.choice(parents).plan, units)) for _ in range(size)]
        everyone += batch
        play_all(batch, "variations")
    for _ in range(1 if quick else 3):
        doubtful = [
            one for one in everyone if one.within and (one.expected()[0] > 0 or (one.known and one.expected()[0] == 0))
        ]
        for one in doubtful:
            one.plan |= {"seed": source.getrandbits(40), "lanes": 4 * lanes}
        play_all(doubtful, "again, those that gained")
    profitable = [one.summary() for one in best(everyone, len(everyone)) if one.least() > 0]
    groups = {"more seats": (STATED, best(everyone, 5, within=False))}
    groups |= {name: (limits, best(everyone, 5, limits)) for name, limits in BEYOND.items()}
    return {
        "strategies": len(everyone),
        "lanes": sum(len(one.lanes) for one in everyone),
        "profitable": len(profitable),
        "worst": best(everyone, 1)[0].summary(),
        "limits": asdict(STATED),
        "found": profitable,
        "beyond": {
            name: [one.summary(limits) for one in group if one.least(limits) > 0]
            for name, (limits, group) in groups.items()
        },
    }
