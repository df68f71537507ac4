"""A member with real weights: it shares, draws what others shared, trains on it, and goes on alone."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from protocol.config import AlgorithmConfig, DppoConfig
from protocol.errors import ConfigError
from storage.keys import check_content
from swarm import plausibility
from swarm.config import MixConfig
from swarm.envelope import open_envelope, seal
from swarm.inbox import RECENT_ROUNDS, Inspector
from swarm.member import Member, draw_secret
from swarm.plausibility import PlausibilityJudge
from swarm.sampling import InspectedGroup, usual_use
from swarm.state import STATUS
from tests.swarm.world import DOCUMENT, TEXTS, TRAIN, SwarmWorld, journal, shared_names
from trainer.checkpoint import checkpoints
from trainer.data.batch import Group


def test_two_members_learn_from_one_another(world: SwarmWorld) -> None:
    pair = [world.member(0), world.member(1)]
    for _ in range(40):
        for made in pair:
            made.advance()
        if all(shared_names(made) for made in pair):
            break
    for key, data in world.envelopes.items():
        check_content(key.key, data)
        envelope = open_envelope(data, DOCUMENT)
        assert all(len(set(group.rewards)) > 1 for group in envelope.groups), "groups without advantage teach nobody"
    for made, other in zip(pair, pair[::-1], strict=True):
        assert shared_names(made), "nothing was drawn"
        assert all(name.startswith(f"{other.account.address}/") for name in shared_names(made))
        as_much = {line["own"] + len(line["shared"]) for line in journal(made)}
        assert as_much == {world.mix.total}, "alone it trains as much"


def test_shared_groups_change_the_weights(world: SwarmWorld) -> None:
    """The same member with and without what another one shared."""
    world.share(world.member(1))
    mix = MixConfig(own=3, shared=3, fill=False, plausibility=False)
    together = world.member(0, mix=mix, home=world.root / "together")
    alone = world.member(0, mix=MixConfig(own=3, shared=0), home=world.root / "alone")
    for made in (together, alone):
        made.advance()
    assert shared_names(together)
    first, second = (made.learner.policy.model.state_dict() for made in (together, alone))
    assert any(not torch.equal(first[name], second[name]) for name in first)


def test_it_goes_on_alone_and_sends_later(world: SwarmWorld) -> None:
    made, world.exchange.away = world.member(0), True
    waiting: list[int] = []
    while len(waiting) < 2 and made.progress.next < 40:
        made.advance()
        waiting = [int(path.stem) for path in sorted((made.progress.home / "outbox").glob("[0-9]*.json"))]
    rounds = made.progress.next
    assert all(line["alone"] for line in journal(made))
    assert len(waiting) == made.status(rounds)["unsent"] == 2
    world.exchange.away = False
    made.advance()
    assert not made.alone
    assert set(waiting) <= {open_envelope(data, DOCUMENT).round for data in world.envelopes.values()}
    assert made.status(rounds + 1)["unsent"] == 0


def test_a_liar_is_found_out_and_not_drawn_again(world: SwarmWorld) -> None:
    liar, made = world.member(1), world.member(0)
    (entry,) = world.share(liar)
    envelope = open_envelope(world.exchange.envelopes.pop(entry), DOCUMENT)
    first = envelope.groups[0]
    lies = [one.model_copy(update={"reward": 1.0 - one.reward}) for one in first.completions]
    false = envelope.model_copy(update={"groups": [first.model_copy(update={"completions": lies})]})
    world.exchange.publish(seal(false, world.account(1)))
    made.advance()
    address = world.account(1).address
    assert made.inbox.state.records[address].breaches == 1
    world.share(liar)
    made.advance()
    assert made.inbox.state.records[address].true > 0, "its later groups are true"
    assert not shared_names(made), "and not drawn"


def test_strangers_are_not_read(world: SwarmWorld) -> None:
    world.share(world.member(1))
    made = world.member(0, members=(world.account(2).address,))
    made.advance()
    assert made.inbox.state.records == {}
    assert made.inbox.groups == {}


def test_status_and_checkpoints_are_kept(world: SwarmWorld) -> None:
    made = world.member(0)
    for _ in range(3):
        made.advance()
        made.progress.show(made.status(made.progress.next))
    assert [path.name for path in checkpoints(made.progress.home / "checkpoints")] == ["step-000002", "step-000003"]
    assert json.loads((made.progress.home / STATUS).read_bytes())["round"] == 3


def test_a_round_that_no_envelope_could_hold_is_refused(world: SwarmWorld) -> None:
    with pytest.raises(ConfigError, match="envelopes hold 6"):
        world.member(0, mix=MixConfig(own=4, shared=3))


# Rounds are signed once


def check_signed_once(world: SwarmWorld, name: int) -> None:
    """Of the envelopes of a member that anybody can find, each is of another round."""
    all_of = [open_envelope(data, DOCUMENT) for data in world.envelopes.values()]
    rounds = [one.round for one in all_of if one.member == world.account(name).address]
    assert rounds
    assert len(rounds) == len(set(rounds)), "a round was signed twice: whoever shows both takes half of the stake"


def test_a_copy_of_a_home_signs_nothing_that_the_exchange_has(world: SwarmWorld) -> None:
    made = world.member(0)
    made.advance()
    backup = shutil.copytree(made.progress.home, world.root / "backup")
    world.share(made, 2)
    restored = world.member(0, home=backup, temperature=0.98)
    assert restored.progress.next == 1
    while restored.progress.next < made.progress.next:
        restored.advance()
    check_signed_once(world, 0)


def test_a_new_home_of_an_old_key_signs_nothing_that_the_exchange_has(world: SwarmWorld) -> None:
    """Also where the member reads named others only, and where it first learns of it with an envelope to send."""
    made = world.member(0)
    world.share(made, 2)
    anew = world.member(0, home=world.root / "anew", temperature=0.98, members=(world.account(1).address,))
    world.exchange.away = True
    anew.advance()
    world.exchange.away = False
    while anew.progress.next < made.progress.next:
        anew.advance()
    check_signed_once(world, 0)
    assert not anew.status(made.progress.next)["unsent"]


# How far a stranger's text moves a policy: real weights, without the judge


def groups_in(made: Member, envelope: bytes) -> list[tuple[InspectedGroup, Group]]:
    """What of an envelope the member would train on."""
    found = Inspector(DOCUMENT, TEXTS).inspect(open_envelope(envelope, DOCUMENT)).groups
    groups = [(one, made.retokeniser.group(one)) for one in found]
    return [(one, group) for one, group in groups if group is not None]


def surprise(made: Member, envelope: bytes) -> float:
    """Of the unlikeliest token of the first plant of an envelope, in nats."""
    found, group = groups_in(made, envelope)[0]
    return PlausibilityJudge(made.learner, 0, 48).shapes(found, group)[0].worst


@pytest.mark.parametrize(("assumed_behaviour_prob", "learns"), [(None, True), (1.0, False)])
def test_what_the_policy_never_says_it_does_not_learn(
    world: SwarmWorld, assumed_behaviour_prob: float | None, learns: bool
) -> None:
    *envelopes, last = world.poison(1, 7)
    made = world.member(
        0, mix=MixConfig(own=1, shared=5, plausibility=False, assumed_behaviour_prob=assumed_behaviour_prob)
    )
    before = surprise(made, last)
    for envelope in [*envelopes] * 3:
        made.learner.train_step([group for _, group in groups_in(made, envelope)])
    fallen = before - surprise(made, last)
    assert before > 3
    assert fallen > 0.7 if learns else fallen < 0.1, fallen


def test_a_peer_has_no_more_than_its_part_of_a_round(world: SwarmWorld) -> None:
    for name in (1, 2, 3):
        world.poison(name, 3 if name == 1 else 1)
    made = world.member(0, mix=MixConfig(own=2, shared=4, plausibility=False))
    made.advance()
    peers = [name.partition("/")[0] for name in shared_names(made)]
    assert sorted(map(peers.count, set(peers))) == [1, 1, 1]


def test_who_was_drawn_more_often_than_others_lately_waits_until_they_were(world: SwarmWorld) -> None:
    for name in (1, 2, 3):
        world.poison(name)
    mix = MixConfig(own=2, shared=3, plausibility=False, window=16)
    made = world.member(0, mix=mix)
    greedy, *others = (world.account(name).address for name in (1, 2, 3))
    made.inbox.state.trained = [[greedy, *others], [greedy], [greedy]]
    made.advance()
    again = world.member(0, mix=mix)
    assert again.inbox.state.trained == made.inbox.state.trained
    again.advance()
    assert [set(peers) for peers in again.inbox.state.trained[3:]] == [set(others), set(others)]
    again.advance()
    assert greedy in again.inbox.state.trained[-1]


def test_who_was_doubted_lately_keeps_nobody_waiting_and_is_remembered(
    world: SwarmWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a restart too; and for as many rounds as it is compared by, so that nobody lives on an old record."""
    for name in (1, 2):
        world.poison(name)
    mix = MixConfig(own=2, shared=2, window=RECENT_ROUNDS + 2)
    doubting = world.member(0, mix=mix)
    with monkeypatch.context() as strict:
        for limit, value in {"TOKEN_SLACK": 0.0, "SLACK": 0.0, "ODD": 0.99, "BRIEF": 0, "LEAST": 1}.items():
            strict.setattr(plausibility, limit, value)
        doubting.advance()
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
    (own,) = made.own_rounds.make(made.engine, 0, range(1))
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


def test_a_damaged_secret_is_replaced_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "secret"
    first = draw_secret(path)
    assert draw_secret(path) == first
    assert not caplog.records
    path.write_bytes(first[:31])
    second = draw_secret(path)
    assert len(second) == 32
    assert second != first
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} is damaged: a new secret replaces it, so the next draws differ"
    ]
