"""A member with real weights: it shares, draws what others shared, trains on it, and goes on alone."""

import json
from typing import Any

import pytest
import torch

from protocol.errors import ConfigError
from storage.keys import check_content
from swarm.config import MixConfig
from swarm.envelope import EnvelopeLimits, open_envelope, seal
from swarm.exchange import FolderExchange
from swarm.state import JOURNAL, STATUS, read_journal
from tests.swarm.world import DOCUMENT, SwarmWorld, one_round
from trainer.checkpoint import checkpoints

LIMITS = EnvelopeLimits.of(DOCUMENT)


def test_two_members_learn_from_one_another(world: SwarmWorld) -> None:
    pair = [world.member(0), world.member(1)]
    shared: list[list[dict[str, Any]]] = [[], []]
    for _ in range(40):
        for made in pair:
            one_round(made)
        shared = [read_journal(made.progress.home / JOURNAL) for made in pair]
        if all(any(line["shared"] for line in journal) for journal in shared):
            break
    for key, data in world.envelopes.items():
        check_content(f"envelopes/{key.name}", data)
        envelope = open_envelope(data, LIMITS)
        assert all(len(set(group.rewards)) > 1 for group in envelope.groups), "groups without advantage teach nobody"
    for number, journal in enumerate(shared):
        other = world.account(1 - number).address
        names = [name for line in journal for name in line["shared"]]
        assert names, "nothing was drawn"
        assert all(name.startswith(f"{other}/") for name in names)
        assert len(set(names)) == len(names), "a group was trained on twice"
        assert all(line["own"] + len(line["shared"]) == world.mix.total for line in journal), "alone it trains as much"


def test_shared_groups_change_the_weights(world: SwarmWorld) -> None:
    """The same member with and without what another one shared."""
    world.share(world.member(1))
    mix = MixConfig(own=3, shared=3, fill=False, plausibility=None)
    together = world.member(0, mix=mix, home=world.root / "together")
    alone = world.member(0, mix=MixConfig(own=3, shared=0), home=world.root / "alone")
    for made in (together, alone):
        one_round(made)
    assert read_journal(world.root / "together" / JOURNAL)[0]["shared"]
    first, second = (made.learner.policy.model.state_dict() for made in (together, alone))
    assert any(not torch.equal(first[name], second[name]) for name in first)


def test_it_goes_on_alone_and_sends_later(world: SwarmWorld) -> None:
    made, away = world.member(0), world.root / "away"
    world.exchange.rename(away)
    waiting: list[int] = []
    while len(waiting) < 2 and made.progress.next < 40:
        one_round(made)
        waiting = [int(path.stem) for path in sorted((made.progress.home / "outbox").glob("[0-9]*.json"))]
    rounds = made.progress.next
    assert all(line["alone"] for line in read_journal(made.progress.home / JOURNAL))
    assert len(waiting) == made.member.status(rounds)["unsent"] == 2
    away.rename(world.exchange)
    one_round(made)
    assert not made.member.alone
    assert set(waiting) <= {open_envelope(data, LIMITS).round for data in world.envelopes.values()}
    assert made.member.status(rounds + 1)["unsent"] == 0


def test_a_liar_is_found_out_and_not_drawn_again(world: SwarmWorld) -> None:
    liar, made = world.member(1), world.member(0)
    (path,) = world.share(liar)
    envelope = open_envelope(path.read_bytes(), LIMITS)
    path.unlink()
    first = envelope.groups[0]
    lies = [one.model_copy(update={"reward": 1.0 - one.reward}) for one in first.completions]
    false = envelope.model_copy(update={"groups": [first.model_copy(update={"completions": lies})]})
    FolderExchange(world.exchange).publish(seal(false, world.account(1)))
    one_round(made)
    address = world.account(1).address
    assert made.inbox.state.records[address].breaches == 1
    world.share(liar)
    one_round(made)
    assert made.inbox.state.records[address].true > 0, "its later groups are true"
    assert not any(line["shared"] for line in read_journal(made.progress.home / JOURNAL)), "and not drawn"


def test_two_envelopes_of_one_round_are_a_breach(world: SwarmWorld) -> None:
    other, made = world.member(1), world.member(0)
    (path,) = world.share(other)
    envelope = open_envelope(path.read_bytes(), LIMITS)
    silent = [one.model_copy(update={"logprob": None}) for one in envelope.groups[0].completions]
    groups = [envelope.groups[0].model_copy(update={"completions": silent}), *envelope.groups[1:]]
    second = envelope.model_copy(update={"groups": groups})
    FolderExchange(world.exchange).publish(seal(second, world.account(1)))
    one_round(made)
    assert made.inbox.state.records[world.account(1).address].breaches == 1


def test_strangers_are_not_read(world: SwarmWorld) -> None:
    world.share(world.member(1))
    made = world.member(0, members=(world.account(2).address,))
    one_round(made)
    assert made.inbox.state.records == {}
    assert made.inbox.groups == {}


def test_status_and_checkpoints_are_kept(world: SwarmWorld) -> None:
    made = world.member(0)
    for _ in range(3):
        one_round(made)
        made.progress.show(made.member.status(made.progress.next))
    assert [path.name for path in checkpoints(made.progress.home / "checkpoints")] == ["step-000002", "step-000003"]
    assert json.loads((made.progress.home / STATUS).read_bytes())["round"] == 3


def test_a_round_that_no_envelope_could_hold_is_refused(world: SwarmWorld) -> None:
    with pytest.raises(ConfigError, match="holds 6"):
        world.member(0, mix=MixConfig(own=4, shared=3))
