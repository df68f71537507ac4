"""What a stranger shares moves a policy by as much as the policy itself would say it, and one peer no more than its
part of a round: real weights, without the judge."""

import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from attacks.swarm import POISONS, Poisoner
from protocol.training import AlgorithmConfig, DppoConfig
from swarm.config import MixConfig, PlausibilityConfig
from swarm.envelope import EnvelopeLimits
from swarm.exchange import FolderExchange
from swarm.inbox import RECENT_ROUNDS
from swarm.inspection import InspectedGroup, Inspector
from swarm.member import AssembledMember, load_swarm
from swarm.plausibility import PlausibilityJudge
from swarm.sampling import usual_use
from swarm.state import JOURNAL, read_journal
from tests.swarm.world import DOCUMENT, TRAIN, SwarmWorld, one_round
from trainer.batch import Group

LIMITS = EnvelopeLimits.of(DOCUMENT)
ROUNDS = 6


def poison(world: SwarmWorld, name: int, rounds: range) -> list[bytes]:
    """A poisoner's envelopes of these rounds, in the exchange."""
    _, texts = load_swarm(world.config(name))
    made = Poisoner(world.account(name), LIMITS, texts, POISONS["wrong fact"])
    envelopes = [data for number in rounds if (data := made.envelope(number)) is not None]
    for data in envelopes:
        FolderExchange(world.exchange).publish(data)
    return envelopes


def groups_in(world: SwarmWorld, made: AssembledMember, envelope: bytes) -> list[tuple[InspectedGroup, Group]]:
    """What of an envelope the member would train on."""
    found = Inspector(LIMITS, load_swarm(world.config(0))[1]).inspect(envelope).groups
    groups = [(one, made.member.parts.retokeniser.group(one)) for one in found]
    return [(one, group) for one, group in groups if group is not None]


def surprise(world: SwarmWorld, made: AssembledMember, envelope: bytes) -> float:
    """Of the unlikeliest token of the first plant of an envelope, in nats."""
    found, group = groups_in(world, made, envelope)[0]
    return PlausibilityJudge(PlausibilityConfig(), made.learner, 0, 48).shapes(found, group)[0].worst


@pytest.mark.parametrize(("assumed_behaviour_prob", "learns"), [(None, True), (1.0, False)])
def test_what_the_policy_never_says_it_does_not_learn(
    world: SwarmWorld, assumed_behaviour_prob: float | None, learns: bool
) -> None:
    *envelopes, last = poison(world, 1, range(ROUNDS + 1))
    made = world.member(
        0, mix=MixConfig(own=1, shared=5, plausibility=None, assumed_behaviour_prob=assumed_behaviour_prob)
    )
    before = surprise(world, made, last)
    for envelope in [*envelopes] * 3:
        made.learner.train_step([group for _, group in groups_in(world, made, envelope)])
    fallen = before - surprise(world, made, last)
    assert before > 3
    assert fallen > 0.7 if learns else fallen < 0.1, fallen


def test_a_peer_has_no_more_than_its_part_of_a_round(world: SwarmWorld) -> None:
    for name in (1, 2, 3):
        poison(world, name, range(3) if name == 1 else range(1))
    mix = MixConfig(own=2, shared=4, plausibility=None)
    made = world.member(0, mix=mix)
    one_round(made)
    (line,) = read_journal(made.progress.home / JOURNAL)
    peers = [name.partition("/")[0] for name in line["shared"]]
    assert sorted(map(peers.count, set(peers))) == [1, 1, 1]


def test_who_was_drawn_more_often_than_others_lately_waits_until_they_were(world: SwarmWorld) -> None:
    for name in (1, 2, 3):
        poison(world, name, range(1))
    mix = MixConfig(own=2, shared=3, plausibility=None, window=16)
    made = world.member(0, mix=mix)
    greedy, *others = (world.account(name).address for name in (1, 2, 3))
    made.inbox.state.trained = [[greedy, *others], [greedy], [greedy]]
    one_round(made)
    again = world.member(0, mix=mix)
    assert again.inbox.state.trained == made.inbox.state.trained
    one_round(again)
    assert [set(peers) for peers in again.inbox.state.trained[3:]] == [set(others), set(others)]
    one_round(again)
    assert greedy in again.inbox.state.trained[-1]


def test_who_was_doubted_lately_keeps_nobody_waiting_and_is_remembered(world: SwarmWorld) -> None:
    """Over a restart too; and for as many rounds as it is compared by, so that nobody lives on an old record."""
    for name in (1, 2):
        poison(world, name, range(1))
    mix = MixConfig(own=2, shared=2, window=RECENT_ROUNDS + 2)
    strict = PlausibilityConfig(token_slack=0.0, slack=0.0, odd=0.99, brief=0, least=1)
    doubting = world.member(0, mix=mix.model_copy(update={"plausibility": strict}))
    one_round(doubting)
    peers = {world.account(name).address for name in (1, 2)}
    assert doubting.inbox.recent_use().keys() == peers
    assert all(one.trained == 0 < one.doubted for one in doubting.inbox.recent_use().values())
    again = world.member(0, mix=mix)
    assert again.inbox.recent_use() == doubting.inbox.recent_use()
    assert usual_use(again.inbox.recent_use()) is None
    for _ in range(RECENT_ROUNDS):
        again.inbox.use([], [], [])
    assert not again.inbox.recent_use()


def test_own_texts_weigh_what_they_did(world: SwarmWorld) -> None:
    """Their chances are those of the engine, which the learner's are."""
    made = world.member(0)
    (own,) = made.member.parts.rounds.make(made.member.parts.engine, 0, range(1))
    assert [one.logprobs for one in own.group] == list(own.logprobs)
    assert all(math.isfinite(value) for one in own.group for value in one.logprobs)


def test_a_loss_without_weights_is_refused(world: SwarmWorld, tmp_path: Path) -> None:
    without = TRAIN.model_copy(update={"algorithm": AlgorithmConfig(importance_cap=0.0)})
    with pytest.raises(ValidationError, match="assumed_behaviour_prob"):
        world.config(0, train=without)
    other = TRAIN.model_copy(update={"algorithm": AlgorithmConfig(loss=DppoConfig())})
    with pytest.raises(ValidationError, match="assumed_behaviour_prob"):
        world.config(0, train=other)
    world.config(0, train=other, mix=MixConfig(assumed_behaviour_prob=None))
