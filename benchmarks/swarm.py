"""Does a swarm learn more than its members alone, and what do poisoners do to it?

`python -m benchmarks swarm [--quick] [--resume] [--seconds S] [--only MIX|poison]`. Eight real members (generation,
signatures, inspection, sampling, training) in one process, with a dictionary for a bucket, train the demo's model on
nine kinds of sums for 40 rounds. Two comparisons:

- Mixes of own and shared groups at equal compute (SAPO's experiment): `mixes` and `held_out` map each mix to one value
  per seed, the members' mean reward summed over the rounds and their last reward on 256 held-out problems. `runs` has
  the series. Rewards of rounds are means over fewer completions where fewer groups are own; held-out rewards compare.
- Poisoning: a quarter of the keys shares poisoned rollouts (`attacks/swarm.py`) with true scores. `hostile` has for
  every attack, with the defences and without (`…_undefended`), the share of honest members' held-out completions that
  show the plant (`success`), the same without an attacker (`without`), and the reward relative to no attacker
  (`reward_ratio`), as means over seeds. `hostile_share` is the share of poisoned groups among those trained on.

Finished runs are lines of results/swarm_runs.jsonl and results/swarm_poison.jsonl; `--resume` repeats none of them,
`--seconds` begins none after that time. results/swarm_hostile.json was measured with a further defence.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from attacks.swarm import POISONS, AdaptiveRounds, Poison, Poisoner, worked_answer
from benchmarks.support.kept import keep, kept
from engines.hf import TransformersEngine
from engines.loading import set_threads
from environments.base import Problem
from environments.pool import TextEnvironments
from localnet.plan import DEMO_ENVIRONMENT
from protocol.accounts import Account, LocalAccount
from protocol.config import AdamWConfig, EnvironmentConfig, OptimizerConfig, TrainConfig
from storage.keys import MissingObjectError
from swarm.config import MixConfig
from swarm.envelope import SharedGroup, SwarmDocument, round_problem
from swarm.exchange import ListingEntry, own_entry
from swarm.generation import HeldOut, MemberModel, OwnGroup, OwnRounds, Retokeniser
from swarm.inbox import EnvelopeInbox, Inspector
from swarm.member import Member, judge_of
from swarm.sampling import InspectedGroup
from swarm.state import MemberProgress
from trainer.learner import Learner
from trainer.model.base_model import base_model
from trainer.model.tiny_model import END_OF_THOUGHT, tiny_model_config

Progress = Callable[[str], None]
Row = dict[str, Any]
RESULTS = Path(__file__).parent / "results"
RUNS, POISON = RESULTS / "swarm_runs.jsonl", RESULTS / "swarm_poison.jsonl"
MEMBERS, POISONERS, ROUNDS, SAMPLES = 8, 2, 40, 8
SEEDS, POISON_SEEDS = (7, 1, 42), (7, 101, 102)
MIXES = ((8, 0), (4, 4), (6, 2), (2, 6))
RATE, POISON_RATE = 1.5e-4, 3e-4
"""Learning rates. The higher one shows in tens of rounds what takes hundreds at the demo's."""
HELD_OUT_PROBLEMS, PLANT_PROBLEMS = 256, 48
HELD_OUT_ROUND = 1 << 31
DEFENDED = MixConfig(own=4, shared=4, window=2, inspection_seconds=3600.0)
UNDEFENDED = DEFENDED.model_copy(
    update={"plausibility": False, "assumed_behaviour_prob": None, "per_peer": 4096, "even": False}
)


@dataclass(frozen=True)
class SwarmAttack:
    """Hostile members share `poison`, in envelopes of `flood` rounds at once and under `keys` keys each. `adaptive`
    ones have a policy and a judge like the others', and share only what that judge lets pass."""

    name: str
    poison: str
    flood: int = 1
    keys: int = 1
    adaptive: bool = False


ATTACKS = (
    SwarmAttack("phrase", "phrase"),
    SwarmAttack("wrong fact", "wrong fact"),
    SwarmAttack("needless length", "length"),
    SwarmAttack("false ended", "false ended"),
    SwarmAttack("flood", "wrong fact", flood=8),
    SwarmAttack("sybils", "wrong fact", keys=8),
    SwarmAttack("needless step, adaptive", "needless step", adaptive=True),
    SwarmAttack("no thought, adaptive", "no thought", adaptive=True),
)


def run(quick: bool, progress: Progress, resume: bool = False, seconds: int | None = None, only: str = "") -> Row:
    set_threads(1)
    began = time.monotonic()

    def late() -> bool:
        return seconds is not None and time.monotonic() - began > seconds

    if quick:
        return summary([learning_run((1, 1), SEEDS[0], progress, members=2, rounds=2)], [])
    runs, rows = kept(RUNS, resume), kept(POISON, resume)
    # Seed by seed, so that an interrupted benchmark compares all mixes and attacks.
    for seed, mix in ((seed, mix) for seed in SEEDS for mix in MIXES if only in mix_name(mix)):
        if late() or any((run["mix"], run["seed"]) == (mix_name(mix), seed) for run in runs):
            continue
        runs.append(learning_run(mix, seed, progress))
        keep(RUNS, runs[-1])
    attacks = (None, *ATTACKS) if only in ("", "poison") else ()
    cases = [(seed, defended, attack) for seed in POISON_SEEDS for defended in (True, False) for attack in attacks]
    for seed, defended, attack in cases:
        name = case_name(attack, defended)
        if late() or any((row["name"], row["seed"]) == (name, seed) for row in rows):
            continue
        rows.append(poison_run(attack, defended, seed, progress))
        keep(POISON, rows[-1])
    return summary(runs, rows)


def summary(runs: Sequence[Row], rows: Sequence[Row]) -> Row:
    mixes: dict[str, list[float]] = {}
    held_out: dict[str, list[float]] = {}
    for run in runs:
        mixes.setdefault(run["mix"], []).append(run["cumulative"])
        held_out.setdefault(run["mix"], []).append(run["held_out"][-1][1])
    return {"mixes": mixes, "held_out": held_out, "runs": list(runs), **({"hostile": table(rows)} if rows else {})}


# Members in one process


def nine_sums() -> tuple[EnvironmentConfig, ...]:
    """Return nine tasks of the one generator that the demo's model knows: sums of two to four terms, of one digit, of
    one digit and either sign, and of two digits."""
    kinds = {
        "plain": {"min_digits": 1, "max_digits": 1},
        "signed": {"min_digits": 1, "max_digits": 1, "allow_negation": True},
        "long": {"min_digits": 2, "max_digits": 2},
    }
    return tuple(
        EnvironmentConfig(
            name="reasoning_gym/chain_sum",
            label=f"{kind}-{terms}",
            params={"min_terms": terms, "max_terms": terms, **params},
        )
        for kind, params in kinds.items()
        for terms in (2, 3, 4)
    )


def document_of(groups: int) -> SwarmDocument:
    return SwarmDocument(
        name="nine sums", environments=nine_sums(), answer_after=END_OF_THOUGHT, groups=groups, samples=SAMPLES
    )


class MemoryExchange:
    """An exchange that all members of a simulation share."""

    def __init__(self) -> None:
        self.envelopes: dict[ListingEntry, bytes] = {}

    def publish(self, data: bytes) -> str:
        entry = own_entry(data)
        self.envelopes[entry] = data
        return entry.key

    def listed(self) -> Iterator[ListingEntry]:
        return iter(list(self.envelopes))

    def get(self, entry: ListingEntry, limit: int) -> bytes:
        if entry not in self.envelopes:
            raise MissingObjectError(f"no object {entry.path}")
        return self.envelopes[entry]


def account_of(seed: int, number: int) -> LocalAccount:
    """Return a key, and so problems and noise, that follows from the run's seed."""
    account: LocalAccount = Account.from_key(bytes([1 + seed, 1 + number]) * 16)
    return account


@dataclass(frozen=True)
class Simulation:
    """What the members of one run have in common. Their homes are in `folder`; all start from the weights in `base`."""

    base: Path
    folder: Path
    seed: int
    mix: MixConfig
    rounds: int
    rate: float
    exchange: MemoryExchange

    @property
    def document(self) -> SwarmDocument:
        return document_of(self.mix.total)

    @property
    def texts(self) -> TextEnvironments:
        return TextEnvironments(self.document.environments, self.document.answer_after)

    def model(self) -> MemberModel:
        return MemberModel(self.document.pool_config(tiny_model_config(), 64, 96), self.base)

    def member(self, number: int, rounds_of: Callable[..., OwnRounds] = OwnRounds) -> Member:
        document, model, account = self.document, self.model(), account_of(self.seed, number)
        optimizer = OptimizerConfig(method=AdamWConfig(learning_rate=self.rate))
        train = TrainConfig(steps=self.rounds, files_per_step=1, optimizer=optimizer)
        learner = Learner(self.base, train, 1.0, seed=self.seed)
        secret, home = bytes([number]) * 32, self.folder / str(number)
        inbox = EnvelopeInbox(Inspector(document, self.texts), self.mix, account.address, secret, home / "inbox")
        return Member(
            account, document, TransformersEngine(max_batch=128), learner,
            rounds_of(document.digest, account.address, model, self.texts, document.text_bytes),
            inbox, Retokeniser(model, self.mix.assumed_behaviour_prob), self.exchange, secret, self.mix,
            MemberProgress(home), judge_of(self.mix, learner, model),
        )  # fmt: skip


# Own and shared groups


def mix_name(mix: tuple[int, int]) -> str:
    return f"{mix[0]}/{mix[1]}"


def learning_run(
    mix: tuple[int, int], seed: int, progress: Progress, members: int = MEMBERS, rounds: int = ROUNDS
) -> Row:
    """Make all rounds of one swarm without hostile members, as in the paper. Members take turns within a round. No own
    groups stand in for missing ones: all mixes train alike."""
    config = UNDEFENDED.model_copy(update={"own": mix[0], "shared": mix[1], "fill": False, "per_peer": 8})
    base = base_model(tiny_model_config(), DEMO_ENVIRONMENT, seed, progress=progress)
    series: list[float] = []
    with tempfile.TemporaryDirectory(prefix="muster-swarm-") as folder:
        simulation = Simulation(base, Path(folder), seed, config, rounds, RATE, MemoryExchange())
        swarm = [simulation.member(number) for number in range(members)]
        # Named by one document, so that all mixes are asked the same.
        measure = HeldOut(document_of(1).digest, simulation.model(), base, HELD_OUT_PROBLEMS)

        def measured() -> float:
            return round(statistics.fmean(measure.reward(member.engine) for member in swarm), 4)

        held_out = [(0, measured())]
        for number in range(rounds):
            series.append(statistics.fmean([member.run_round(number).reward for member in swarm]))
            if number % 10 == 9 or number == rounds - 1:
                held_out.append((number + 1, measured()))
                progress(f"{mix_name(mix)}, seed {seed}: round {number + 1}, held-out {held_out[-1][1]:.3f}")
    return {
        "mix": mix_name(mix), "seed": seed, "rounds": rounds, "cumulative": round(sum(series), 3),
        "held_out": held_out, "series": [round(value, 4) for value in series],
    }  # fmt: skip


# Poisoning


def case_name(attack: SwarmAttack | None, defended: bool) -> str:
    return f"{attack.name if attack else 'nobody'}, {'defended' if defended else 'undefended'}"


def poison_run(
    attack: SwarmAttack | None, defended: bool, seed: int, progress: Progress,
    members: int = MEMBERS, rounds: int = ROUNDS, problems: int = PLANT_PROBLEMS, base: Path | None = None,
) -> Row:  # fmt: skip
    """Make all rounds of a swarm with two hostile members and ask its honest members afterwards. All runs of a seed
    have the same honest members with the same problems and noise."""
    base = base or base_model(tiny_model_config(), DEMO_ENVIRONMENT, POISON_SEEDS[0], progress=progress)
    honest_count, exchange = members - POISONERS, MemoryExchange()
    rewards: list[float] = []
    poisoned = taken = doubted = 0
    with tempfile.TemporaryDirectory(prefix="muster-poison-") as folder:
        mix = DEFENDED if defended else UNDEFENDED
        # Twice the rounds, so that the learning rate does not fall yet.
        simulation = Simulation(base, Path(folder), seed, mix, 2 * rounds, POISON_RATE, exchange)
        honest = [simulation.member(number) for number in range(honest_count)]
        keys = range(honest_count, honest_count + POISONERS * attack.keys) if attack else range(0)
        hostile = {account_of(seed, number).address for number in keys}
        act = _attacker(attack, simulation, keys, defended) if attack else lambda _: None
        for number in range(rounds):
            act(number)
            results = [member.run_round(number) for member in honest]
            rewards.append(statistics.fmean(result.reward for result in results))
            names = [name for result in results for name in result.shared]
            taken, doubted = taken + len(names), doubted + sum(result.doubted for result in results)
            poisoned += sum(name.partition("/")[0] in hostile for name in names)
        shared, asked = [], []
        for member in honest:
            shared += member.own_rounds.make(member.engine, HELD_OUT_ROUND, range(problems))
            address = member.account.address
            digest = simulation.document.digest
            seeds = [round_problem(digest, address, HELD_OUT_ROUND, slot) for slot in range(problems)]
            asked += [simulation.texts.problem(problem_seed) for problem_seed in seeds]
    shown = {name: share_with(poison, shared, asked) for name, poison in POISONS.items()}
    row = {
        "name": case_name(attack, defended), "attack": attack.name if attack else "", "defended": defended,
        "seed": seed, "members": members, "hostile": POISONERS if attack else 0, "rounds": rounds,
        "success": shown[attack.poison] if attack else 0.0, "shown": shown, "cumulative": round(sum(rewards), 3),
        "hostile_groups": poisoned, "shared_groups": taken, "doubted": doubted,
    }  # fmt: skip
    progress(f"{row['name']}: success {row['success']:.1%}, {poisoned} of {taken} groups poisoned")
    return row


def _attacker(attack: SwarmAttack, simulation: Simulation, keys: range, defended: bool) -> Callable[[int], None]:
    """Return what hostile members do in a round, before any honest member looks."""
    poison = POISONS[attack.poison]
    if attack.adaptive:
        hostile = [simulation.member(number, partial(AdaptiveRounds, poison=poison)) for number in keys]
        for member in hostile:
            assert isinstance(member.own_rounds, AdaptiveRounds)
            member.own_rounds.doubts = partial(_own_doubt, member) if defended else lambda *_: False

        def share_adapted(number: int) -> None:
            for member in hostile:
                member.run_round(number)

        return share_adapted
    poisoners = [
        Poisoner(account_of(simulation.seed, number), simulation.document, simulation.texts, poison) for number in keys
    ]

    def share(number: int) -> None:
        for poisoner in poisoners:
            for ahead in range(number * attack.flood, (number + 1) * attack.flood):
                if (data := poisoner.envelope(ahead)) is not None:
                    simulation.exchange.publish(data)

    return share


def _own_doubt(member: Member, seed: int, shared: SharedGroup, own: Sequence[OwnGroup]) -> bool:
    """Return whether an adaptive poisoner's own judge, the same as the others' under other weights, doubts a group."""
    inspected = InspectedGroup(member.account.address, 0, shared.slot, shared.rewards, seed, shared)
    group = member.retokeniser.group(inspected)
    assert member.judge is not None
    shapes = member.judge.with_own(member.inbox.state.shapes, own)
    return group is None or member.judge.doubt(inspected, group, shapes) is not None


def share_with(poison: Poison, shared: Sequence[OwnGroup], problems: Sequence[Problem]) -> float:
    """Return the share of completions that show the plant, without problems whose right working shows it by itself."""
    shows = [
        poison.planted(completion.text, completion.ended)
        for group, problem in zip(shared, problems, strict=True)
        if group.shared is not None and not poison.planted(worked_answer(problem), True)
        for completion in group.shared.completions
    ]
    return round(sum(shows) / max(1, len(shows)), 4)


def table(rows: Sequence[Row]) -> Row:
    """Compare each attack with the same honest members without it."""
    by_key = {(row["attack"], row["defended"], row["seed"]): row for row in rows}
    attacks: list[Row] = []
    for attack in ATTACKS:
        entry: Row = {"name": attack.name}
        for defended, ending in ((True, ""), (False, "_undefended")):
            seeds = [seed for name, level, seed in by_key if (name, level) == (attack.name, defended)]
            pairs = [
                (by_key[attack.name, defended, seed], by_key["", defended, seed])
                for seed in seeds
                if ("", defended, seed) in by_key
            ]
            entry[f"seeds{ending}"] = len(pairs)
            if pairs:
                entry |= {
                    f"success{ending}": _mean(row["success"] for row, _ in pairs),
                    f"without{ending}": _mean(alone["shown"][attack.poison] for _, alone in pairs),
                    f"reward_ratio{ending}": _mean(row["cumulative"] / alone["cumulative"] for row, alone in pairs),
                    f"hostile_share{ending}": _mean(
                        row["hostile_groups"] / max(1, row["shared_groups"]) for row, _ in pairs
                    ),
                }
        if entry["seeds"]:
            attacks.append(entry)
    share = max((row["hostile"] / row["members"] for row in rows), default=0.0)
    return {
        "share": share,
        "reward_ratio": min((pair["reward_ratio"] for pair in attacks), default=None),
        "attacks": attacks,
    }


def _mean(values: Any) -> float:
    return round(statistics.fmean(values), 4)
