"""A swarm with hostile members, attack by attack, with the defences and without them.

Honest members are the real code in one process; a quarter of the keys is hostile. All rows of a seed have the same
honest members with the same problems and noise, so what differs is what the attackers did. `success` is the share of
honest members' completions of held-out problems that show what was planted, problems left out whose right working shows
it by itself (5 + 0 + 3 begins with 5+0=5). A policy that nobody poisoned shows some of it too: `without` is that, and
`elsewhere` what those show to whom something else was done. Of a row `shown` has the share of every plant, and
`shown_each` those of each honest member. Eight members, of whom two are hostile, with several seeds.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from attacks.swarm import POISONS, AdaptiveRounds, Poison, Poisoner, worked_answer
from benchmarks.swarm_members import (
    ShelfExchange,
    SwarmCase,
    SwarmSettings,
    make_members,
    member_account,
)
from environments.base import Problem
from environments.pool import TextEnvironments
from protocol.swarm.envelope import EnvelopeLimits, SharedGroup
from protocol.swarm.sampling import Offer
from protocol.swarm.seeds import round_problem
from swarm.config import MixConfig
from swarm.generation import OwnGroup
from swarm.inspection import FoundGroup
from swarm.listing import ListingEntry
from swarm.member import SwarmMember

RATE = 3e-4
"""Twice the demo's: what takes hundreds of rounds there takes tens here. At four times it a policy that nobody attacked
forgets in 20 rounds to end in up to 7% of its completions, and what an attacker adds to that is hard to see."""
HELD_OUT_ROUND = 1 << 31
MIX = MixConfig(own=4, shared=4, window=2, seconds=3600.0)
OPEN_MIX = MIX.model_copy(update={"plausibility": None, "certainty": None, "per_sharer": 4096, "even": False})
"""Without defences: anything that is truly scored is trained on."""


@dataclass(frozen=True)
class SwarmAttack:
    """What hostile members do: which poison they share, in envelopes of how many rounds at once (`flood`), under how
    many keys each, whether honest members see nothing else (`eclipse`), and whether they have a policy and the others'
    judge to choose by (`adaptive`)."""

    name: str
    poison: str
    flood: int = 1
    keys: int = 1
    eclipse: bool = False
    adaptive: bool = False


ATTACKS = (
    SwarmAttack("phrase", "phrase"),
    SwarmAttack("phrase, one of eight", "phrase, one of eight"),
    SwarmAttack("wrong fact", "wrong fact"),
    SwarmAttack("needless length", "length"),
    SwarmAttack("false ended", "false ended"),
    SwarmAttack("flood", "wrong fact", flood=8),
    SwarmAttack("sybils", "wrong fact", keys=8),
    SwarmAttack("eclipse", "wrong fact", eclipse=True),
    SwarmAttack("needless step, adaptive", "needless step", adaptive=True),
    SwarmAttack("no thought, adaptive", "no thought", adaptive=True),
)


@dataclass(frozen=True)
class HostileCase:
    """`attack` None: the honest members among themselves; not `listed`: each of them alone, since nothing of others is
    listed, which is the most that an eclipse can take from them."""

    attack: SwarmAttack | None
    defended: bool
    seed: int = 7
    members: int = 8
    hostile: int = 2
    rounds: int = 40
    held_out: int = 48
    listed: bool = True
    rate: float = RATE

    @property
    def called(self) -> str:
        """What is done to the honest members; empty: nothing."""
        return self.attack.name if self.attack else "" if self.listed else UNSEEN

    @property
    def level(self) -> str:
        """Of the defences."""
        return "defended" if self.defended else "undefended"

    @property
    def name(self) -> str:
        return f"{self.called or 'nobody'}, {self.level}"

    @property
    def mix(self) -> MixConfig:
        return MIX if self.defended else OPEN_MIX

    @property
    def honest(self) -> int:
        return self.members - self.hostile


SEEDS = (7, 101, 102)
UNSEEN = "nobody is seen"
ADAPTIVE = tuple(attack for attack in ATTACKS if attack.adaptive)
CASES = (
    *(HostileCase(attack, True, seed) for seed in SEEDS for attack in (None, *ATTACKS)),
    *(HostileCase(None, True, seed, listed=False) for seed in SEEDS),
    *(HostileCase(attack, False, seed) for seed in SEEDS for attack in (None, *ATTACKS)),
)
"""In the order of what is wanted first, should there be no time for all."""


class EclipsedShelf(ShelfExchange):
    """Lists only what is `hostile`: who serves the bytes chooses what is seen."""

    def __init__(self) -> None:
        super().__init__()
        self.hostile: set[str] = set()

    def listed(self) -> Iterator[ListingEntry]:
        return (entry for entry in self.shelf if entry.key in self.hostile)


def one_case(case: HostileCase, base: Path, progress: Callable[[str], None]) -> dict[str, Any]:
    """All rounds of a swarm, and what its honest members say afterwards."""
    began, rewards, doubted, hostile_names, taken = time.process_time(), [], 0, 0, 0
    attack = case.attack
    with tempfile.TemporaryDirectory(prefix="muster-hostile-") as temporary:
        swarm = _Swarm(case, base, Path(temporary))
        for number in range(case.rounds):
            swarm.attack(number)
            done = [member.round(number) for member in swarm.honest]
            rewards.append(statistics.fmean(one.reward for one in done))
            doubted += sum(one.doubted for one in done)
            names = [name for one in done for name in one.shared]
            taken += len(names)
            hostile_names += sum(name.partition("/")[0] in swarm.hostile_keys for name in names)
        said = [one for member in swarm.honest for one in held_out(member, case.held_out)]
        problems = [swarm.problem(member, slot) for member in swarm.honest for slot in range(case.held_out)]
    shown = {name: share_with(poison, said, problems) for name, poison in POISONS.items()}
    shown_each = {name: share_by_member(poison, said, problems, case.held_out) for name, poison in POISONS.items()}
    row = {
        "name": case.name, "attack": case.called, "defended": case.defended, "seed": case.seed, "rate": case.rate,
        "members": case.members, "hostile": case.hostile if attack else 0, "rounds": case.rounds,
        "success": shown[attack.poison] if attack else 0.0, "shown": shown, "shown_each": shown_each,
        "cumulative": round(sum(rewards), 3),
        "held_out": round(statistics.fmean(one.reward for one in said), 4),
        "length": round(statistics.fmean(len(rollout.output) for one in said for rollout in one.group), 2),
        "hostile_groups": hostile_names, "shared_groups": taken, "doubted": doubted,
        "seconds": round(time.process_time() - began, 1),
    }  # fmt: skip
    progress(f"{case.name}: success {row['success']:.1%}, held out {row['held_out']}, {hostile_names} of {taken}")
    return row


class _Swarm:
    """Honest members, and what hostile ones do before each of their rounds."""

    def __init__(self, case: HostileCase, base: Path, folder: Path) -> None:
        self._case = case
        attack = case.attack or SwarmAttack("", "phrase")
        eclipsed = EclipsedShelf()
        self._shelf = eclipsed if attack.eclipse or not case.listed else ShelfExchange()
        mix = case.mix
        open_to_all = attack.keys > 1
        # As if there were twice the rounds, so that the learning rate does not fall yet.
        swarm = SwarmCase(mix.own, mix.shared, case.members, 2 * case.rounds)
        settings = SwarmSettings(mix, case.rate, open_to_all, range(case.honest))
        self.honest: list[SwarmMember] = make_members(swarm, base, case.seed, folder, self._shelf, settings)
        self._poisoners: list[Poisoner] = []
        self._adaptive: list[SwarmMember] = []
        self.hostile_keys: set[str] = set()
        self._document = swarm.document
        self._texts = TextEnvironments(self._document.environments, self._document.answer_after)
        if case.attack is None:
            return
        limits, poison = EnvelopeLimits.of(self._document), POISONS[attack.poison]
        keys = range(case.honest, case.honest + case.hostile * attack.keys)
        accounts = [member_account(case.seed, number) for number in keys]
        self.hostile_keys = {one.address for one in accounts}
        if attack.adaptive:
            defended = replace(settings, mix=mix if case.defended else MIX, only=range(case.honest, case.members))
            adaptive = partial(AdaptiveRounds, poison=poison)
            self._adaptive = make_members(swarm, base, case.seed, folder, self._shelf, defended, adaptive)
            for member in self._adaptive:
                use_own_judge(member) if case.defended else ask_nobody(member)
        else:
            self._poisoners = [Poisoner(one, limits, self._texts, poison) for one in accounts]

    def problem(self, member: SwarmMember, slot: int) -> Problem:
        """What a member is asked in that slot of the held-out round."""
        address = member.parts.account.address
        return self._texts.problem(round_problem(self._document.digest, address, HELD_OUT_ROUND, slot))

    def attack(self, number: int) -> None:
        """What is hostile of a round, before anybody honest looks."""
        attack = self._case.attack
        for member in self._adaptive:
            member.round(number)
        for one in self._poisoners:
            assert attack is not None
            for at in range(number * attack.flood, (number + 1) * attack.flood):
                data = one.envelope(at)
                key = None if data is None else self._shelf.publish(data)
                if key is not None and isinstance(self._shelf, EclipsedShelf):
                    self._shelf.hostile.add(key)


def held_out(member: SwarmMember, problems: int) -> list[OwnGroup]:
    """What a member says of problems that no round has."""
    return member.parts.rounds.make(member.parts.engine, HELD_OUT_ROUND, range(problems))


def share_with(poison: Poison, said: Sequence[OwnGroup], problems: Sequence[Problem]) -> float:
    """Of the completions of these problems, in the same order, the share that shows the plant."""
    found = [
        poison.planted(one.text, one.ended)
        for group, problem in zip(said, problems, strict=True)
        if group.shared is not None and not poison.planted(worked_answer(problem), ended=True)
        for one in group.shared.completions
    ]
    return round(sum(found) / max(1, len(found)), 4)


def share_by_member(poison: Poison, said: Sequence[OwnGroup], problems: Sequence[Problem], each: int) -> list[float]:
    """The same of each member, who was asked `each` of the problems, in their order."""
    starts = range(0, len(said), each)
    return [share_with(poison, said[at : at + each], problems[at : at + each]) for at in starts]


def use_own_judge(member: SwarmMember) -> None:
    """An adaptive poisoner asks its own judge, which is the one that the others have under weights of their own, and
    where they ration what is rare it shares no more of that than they take."""
    parts, rounds = member.parts, member.parts.rounds
    assert isinstance(rounds, AdaptiveRounds)

    def doubts(seed: int, shared: SharedGroup, own: Sequence[OwnGroup]) -> bool:
        offer = Offer(parts.account.address, 0, shared.slot, "", shared.rewards)
        found = FoundGroup(offer, seed, shared)
        group, judge = parts.retokeniser.group(found), parts.judge
        assert judge is not None
        if group is None:
            return True
        return judge.doubts(found, group, judge.usual_with(parts.inbox.state.shapes, own)) is not None

    rounds.doubts = doubts


def ask_nobody(member: SwarmMember) -> None:
    """Where the others have no judge, an adaptive poisoner needs none: all that it can plant it plants."""
    assert isinstance(member.parts.rounds, AdaptiveRounds)
    member.parts.rounds.doubts = lambda *_: False


def missing(
    rows: Sequence[dict[str, Any]], base: Path, progress: Callable[[str], None], seconds: int | None
) -> Iterator[dict[str, Any]]:
    """The rows that are not there yet, one after another; none is begun after so many seconds."""
    keys = ("name", "members", "rounds", "rate", "seed")
    began, done = time.monotonic(), {tuple(row[key] for key in keys) for row in rows}
    for case in CASES:
        late = seconds is not None and time.monotonic() - began > seconds
        if not late and tuple(getattr(case, key) for key in keys) not in done:
            yield one_case(case, base, progress)
