"""What coalitions earn by breaking the rules, played on the contracts themselves (contracts/test/economy).

A strategy is a random point among a coalition's choices: its share of the seats, whether the owner belongs to it, how
its node works, how its seats vote in committees and juries, what it disputes, which canaries it opens. Every lane is
played with and without a watcher who re-checks what was accepted, and with a canary of the honest owner; `expected`
mixes these by the rates at which they happen. Gains are tokens per lane beyond honest play, with the work spared.

Keys: `strategies`, `lanes`; `profitable`: how many strategies gain (by three standard errors) within THRESHOLDS;
`worst`: the one that gains most within them; `beyond`: the best strategies outside each of the thresholds.
"""

import math
import os
import random
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from eth_abi.abi import decode, encode

from chain.network import NetworkConfig
from demo.pool import pool_config, pool_terms
from protocol.amounts import GRAINS

ROOT = Path(__file__).parent.parent
NETWORKS = ("local", "base-sepolia")
TRUTH, SILENCE, ACCEPT, REJECT, MALFORMED, UNAVAILABLE = 12, 0, 1, 3, 10, 11
VOTES = {TRUTH: "truth", SILENCE: "nothing", ACCEPT: "accept", REJECT: "reject", MALFORMED: "malformed"}
VOTES[UNAVAILABLE] = "unavailable"
DISPUTES = ("", "disputes honest files", "disputes its own fraud")
CANARIES = ("", "opens a false canary on an accepted file", "on a file not accepted", "on one that nobody accepted")
WHEN = ("", " with a majority", " when all members are its own", " in the minority")
SERVICES = ("", "the service attests only its own files", "after a rotation of its key", "the pool pauses")
TYPES = "((uint256,uint256,uint256,uint256,uint256,uint256,(uint16,uint16,{0},{0},{0},{0},{0},{0})),({1}),({2}))[]"


@dataclass(frozen=True)
class Thresholds:
    """Within these no strategy may gain (docs/contracts.md). `watched`: share of lanes whose accepted files somebody
    re-checks; `canaries`: share of files that the owner planted."""

    seats: float = 1 / 3
    watched: float = 1 / 10
    canaries: float = 1 / 1_000


@dataclass(frozen=True)
class Strategy:
    """`Strategy` of contracts/test/economy/Market.sol, in its order; votes are codes, or TRUTH."""

    seed: int
    lanes: int
    seats: int
    owner: bool
    files: int
    others: int
    units: int
    rows: int
    forged: int
    held: bool
    own_vote: int
    other_vote: int
    when: int
    own_jury: int
    other_jury: int
    dispute: int
    appeal: bool
    canary: int
    service: int

    def __str__(self) -> str:
        parts = [f"{self.seats}% of the seats" + ", owner" * self.owner]
        work = f"{self.forged}/{self.rows} rows forged" if self.forged else "honest"
        parts.append(f"{self.files} files of {self.units} units, {work}" + ", uploaded late or never" * self.held)
        parts.append(
            f"votes {VOTES[self.own_vote]} on own and {VOTES[self.other_vote]} on others' files{WHEN[self.when]}"
        )
        parts.append(f"as jurors {VOTES[self.own_jury]} and {VOTES[self.other_jury]}")
        parts += [DISPUTES[self.dispute], "appeals" * self.appeal, CANARIES[self.canary], SERVICES[self.service]]
        return "; ".join(part for part in parts if part)


@dataclass
class Played:
    network: str
    strategy: Strategy
    gains: list[tuple[int, int]] = field(default_factory=list)
    """Gain of the coalition and harm to the others, in grains, lane by lane; every fourth pair as in `strata`."""

    def strata(self, column: int) -> list[list[float]]:
        """Lanes that nobody watches, that somebody watches, and with an honest canary."""
        values = [pair[column] / GRAINS for pair in self.gains]
        if self.strategy.owner or not self.strategy.others:
            watched = values[2::4] + values[3::4]
            return [values[0::4] + values[1::4], watched, watched]
        return [values[0::4] + values[1::4], values[2::4], values[3::4]]

    def expected(self, limits: Thresholds, column: int = 0) -> tuple[float, float]:
        """Mean per lane and its standard error."""
        canary = min(1.0, limits.canaries * (self.strategy.files + self.strategy.others))
        weights = ((1 - canary) * (1 - limits.watched), (1 - canary) * limits.watched, canary)
        strata = self.strata(column)
        error = sum(w * w * variance(values) / len(values) for w, values in zip(weights, strata, strict=True))
        return sum(w * fmean(values) for w, values in zip(weights, strata, strict=True)), math.sqrt(error)

    @property
    def within(self) -> bool:
        return self.strategy.seats / 100 <= STATED.seats

    def gains_surely(self, limits: Thresholds) -> bool:
        mean, error = self.expected(limits)
        return mean - 3 * error > 1e-9

    def told(self, limits: Thresholds) -> dict[str, Any]:
        """For the result; `harm` is what everybody else loses."""
        mean, error = self.expected(limits)
        harm = self.expected(limits, 1)[0]
        name = f"{self.network}: {self.strategy}"
        return {"name": name, "gain": round(mean, 4), "error": round(error, 4), "harm": round(harm, 4)}


STATED = Thresholds()
UNWATCHED = replace(STATED, watched=0.0)
NO_CANARIES = replace(STATED, canaries=0.0)


def draw_strategy(source: random.Random, most_units: int, lanes: int) -> Strategy:
    """One of the coalition's plans, most of whose choices are honest; `most_units` are those of the largest file that a
    pool may allow."""

    def pick(honest: int, *other: int) -> int:
        return source.choice(other) if source.random() < 0.4 else honest

    owner = source.random() < 0.5
    files = source.choice((1, 3, 4, 16))
    beside = owner and files < 16
    return Strategy(
        seed=source.getrandbits(40),
        lanes=lanes,
        seats=source.randint(5, 45),
        owner=owner,
        files=files,
        others=min(16 - files, round(files * 7 / 3)),
        units=source.choice((8_192, most_units // 10, most_units)),
        rows=16,
        forged=pick(0, 1, 4, 16),
        held=bool(pick(0, 1)),
        own_vote=pick(TRUTH, ACCEPT, UNAVAILABLE),
        other_vote=pick(TRUTH, ACCEPT, REJECT, MALFORMED, UNAVAILABLE, SILENCE),
        when=pick(1, 0, 2, 3),
        own_jury=pick(TRUTH, ACCEPT, UNAVAILABLE),
        other_jury=pick(TRUTH, REJECT, UNAVAILABLE, SILENCE),
        dispute=pick(0, 1, 2),
        appeal=bool(pick(0, 1)),
        canary=pick(0, 1, 2, 3) if beside else 0,
        service=pick(0, 1, 2, 3) if beside else 0,
    )


def vary(source: random.Random, parent: Strategy, most_units: int) -> Strategy:
    """A plan with about a quarter of its choices made anew."""
    fresh = draw_strategy(source, most_units, parent.lanes)
    if fresh.owner != parent.owner or fresh.files != parent.files:
        fresh = replace(fresh, owner=parent.owner, files=parent.files, others=parent.others, canary=0, service=0)
    kept = {one.name: getattr(parent, one.name) for one in fields(Strategy) if source.random() < 0.75}
    return replace(fresh, **(kept | {"seed": fresh.seed}))


def setting(network: str, audit_rate: int = 65536) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """What the harness calls Setting and Rules: a shipped network's suite, and its pool whose files may be the largest
    that the contracts allow."""
    suite = NetworkConfig.load(network).suite
    terms = pool_terms(pool_config(7, 1))
    if network != "local":
        terms = replace(terms, fee=2 * terms.fee, juryFee=GRAINS // 2, jury=7, appealJury=15, challengeWindow=86_400)
    most_units = (terms.committee // 2 + 1) * suite.min_bond // terms.rate
    fixed = (suite.min_window, suite.block_seconds, suite.unbonding, suite.bond, suite.min_bond, suite.epoch_blocks)
    rules = (terms.rate, terms.fee, terms.juryFee, terms.minStake, terms.leverage, most_units, terms.committee)
    rules += (terms.jury, terms.appealJury, audit_rate, terms.challengeWindow)
    return (*fixed, suite.penalties.as_tuple()), rules


def play(batch: Sequence[Played]) -> None:
    """Adds every strategy's lanes, played by forge."""
    cases = [(*setting(one.network), tuple(map(int, astuple(one.strategy)))) for one in batch]
    columns = ["uint256"] * len(cases[0][1]), ["uint256"] * len(astuple(batch[0].strategy))
    types = TYPES.format("uint256", ",".join(columns[0]), ",".join(columns[1]))
    cache = ROOT / "contracts" / "cache"
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="economy-") as folder:
        path = Path(folder) / "strategies"
        path.write_bytes(encode([types], [cases]))
        command = ["node_modules/.bin/forge", "test", "--gas-limit", str(1 << 60)]
        environment = os.environ | {
            "MUSTER_ECONOMY": f"./{path.relative_to(ROOT)}",
            "FOUNDRY_TEST": "contracts/test/economy",
        }
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        answer = path.with_suffix(".out")
        if not answer.exists():
            raise RuntimeError(f"forge could not play the strategies:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
        (gains,) = decode(["int256[2][][]"], answer.read_bytes())
    for one, lanes in zip(batch, gains, strict=True):
        one.gains += lanes


def search(source: random.Random, size: int, lanes: int, jobs: int, progress: Callable[[str], None]) -> list[Played]:
    """A random generation of strategies, then two that vary what earned most within or beyond the thresholds."""
    most = {network: setting(network)[1][5] for network in NETWORKS}
    everyone: list[Played] = []
    for generation in range(3):
        batch = []
        for number in range(size):
            network = NETWORKS[number % len(NETWORKS)]
            if generation and number % 3:
                parent = source.choice(best([one for one in everyone if one.network == network], size // 10))
                batch.append(Played(network, vary(source, parent.strategy, most[network])))
            else:
                batch.append(Played(network, draw_strategy(source, most[network], lanes)))
        play_all(batch, jobs)
        everyone += batch
        progress(f"generation {generation + 1} of 3, {sum(len(one.gains) for one in everyone)} lanes played")
    doubtful = [one for one in everyone if one.within and sum(one.expected(STATED)) > 0 and any(one.expected(STATED))]
    for _ in range(4):
        progress(f"{len(doubtful)} strategies within the thresholds play {lanes} lanes more")
        for one in doubtful:
            one.strategy = replace(one.strategy, seed=source.getrandbits(40))
        play_all(doubtful, jobs)
    return everyone


def best(played: Sequence[Played], count: int) -> list[Played]:
    """The best within the thresholds, and beyond each of them."""
    out: list[Played] = []
    for limits, within in ((STATED, True), (STATED, False), (UNWATCHED, True), (NO_CANARIES, True)):
        group = [one for one in played if one.within == within]
        out += sorted(group, key=lambda one: one.expected(limits), reverse=True)[:count]
    return out


def top(played: Sequence[Played], limits: Thresholds, within: bool = True) -> list[Played]:
    """The five that gain most, of those that gain."""
    sure = [one for one in played if one.within == within and one.gains_surely(limits)]
    return sorted(sure, key=lambda one: one.expected(limits), reverse=True)[:5]


def play_all(batch: Sequence[Played], jobs: int) -> None:
    parts = [batch[start : start + 20] for start in range(0, len(batch), 20)]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(play, parts))


def run(quick: bool, progress: Callable[[str], None], count: int = 24, jobs: int = 2) -> dict[str, Any]:
    """`count`: lanes per strategy."""
    played = search(random.Random(7), 12 if quick else 160, 8 if quick else count, jobs, progress)
    within = [one for one in played if one.within]
    profitable = [one for one in within if one.gains_surely(STATED)]
    worst = max(within, key=lambda one: one.expected(STATED))
    outside = {
        "more seats": [one.told(STATED) for one in top(played, STATED, within=False)],
        "nobody watches": [one.told(UNWATCHED) for one in top(played, UNWATCHED)],
        "no canaries": [one.told(NO_CANARIES) for one in top(played, NO_CANARIES)],
    }
    return {
        "strategies": len(played),
        "lanes": sum(len(one.gains) for one in played),
        "profitable": len(profitable),
        "worst": worst.told(STATED),
        "found": [one.told(STATED) for one in profitable],
        "beyond": outside,
        "thresholds": asdict(STATED),
    }
