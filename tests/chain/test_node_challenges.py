"""A node challenge on a real chain, by the facade and the projected state: upheld, refuted, lapsed, refused."""

import pytest

from chain.contracts import MOST_FILES
from chain.errors import ContractError
from chain.indexer.records import ChallengeOutcome, NodeChallenge, Submission, Terms
from chain.indexer.state import State
from chain.suite import Suite
from protocol.accounts import LocalAccount
from protocol.verdict import Code
from tests.chain.comparison import compare
from tests.chain.game import FEE, Game, work
from tests.conftest import TOKEN

EVIDENCE = bytes(range(32))


def jury_fee(terms: Terms, files: int) -> int:
    """As Juries.sol: the jury's fee for the first of `files` files, a committee's for every further one."""
    return terms.juryFee + (files - 1) * terms.fee


def open_challenges(state: State) -> list[NodeChallenge]:
    return [challenge for challenge in state.challenges.values() if challenge.outcome is ChallengeOutcome.OPEN]


def history(game: Game, node: LocalAccount) -> list[Submission]:
    """Three files of a node, accepted for good."""
    step = game.publish()
    files = game.submit_lane(step, *((node, work(f"{node.address} {number}")) for number in range(3)))
    game.vote(files[0].lane, dict.fromkeys((file.place for file in files), Code.ACCEPT))
    game.deployed.chain.later(61)
    return [game.again(file) for file in files]


def accuser(game: Game) -> Suite:
    return game.deployed.suite(game.deployed.rich())


def end(game: Game, suite: Suite, number: int) -> None:
    """End a challenge whose first jury has a verdict, against which nobody appeals."""
    suite.node_challenges.conclude(number).send()
    trial = game.state.trials[game.state.challenges[number].trial]
    assert not trial.proceeds(trial.appeal_until - 1)
    game.deployed.chain.later(trial.appeal_until + 1 - suite.client.now())
    assert trial.proceeds(suite.client.now())
    suite.node_challenges.conclude(number).send()


def test_an_upheld_challenge_takes_the_stake_and_ejects(game: Game) -> None:
    _, node = game.node()
    files, suite = history(game, node), accuser(game)
    assert suite.node_challenges.read("MAX_FILES") == MOST_FILES
    bond, before = suite.juries.deposit_of(game.pool, len(files)), suite.token.balance_of(suite.client.address)
    number = suite.node_challenges.open(files, EVIDENCE).send()
    state = compare(game)
    challenge, sequences = state.challenges[number], tuple(file.sequence for file in files)
    assert (challenge.node, challenge.sequences, challenge.evidence) == (node.address, sequences, EVIDENCE)
    assert challenge.outcome is ChallengeOutcome.OPEN
    assert state.nodes[node.address].frozen == 1
    assert open_challenges(state) == [challenge]
    assert suite.token.balance_of(suite.client.address) == before - bond

    fee = jury_fee(state.pools[game.pool].terms, 3)
    assert fee == 2 * FEE + 2 * FEE, "the jury's fee, and a committee's for each file but the first"
    game.try_case(challenge.trial, Code.REJECT_WEIGHTS)
    end(game, suite, number)
    state = compare(game)
    challenge, account = state.challenges[number], state.accounts[game.pool, node.address]
    assert (challenge.outcome, challenge.code, challenge.back) == (ChallengeOutcome.UPHELD, Code.REJECT_WEIGHTS, bond)
    assert challenge.slashed == account.slashed == 100 * TOKEN
    assert account.ejected
    assert not account.member
    assert (account.eject_challenge, account.eject_sequence) == (number, files[-1].sequence)
    assert state.nodes[node.address].stake == 0
    assert suite.token.balance_of(suite.client.address) == before + min(bond, 100 * TOKEN // 20)
    assert [one.kind for one in state.slashes] == ["node"]
    on_chain = suite.node_challenges.read("challengeOf", number)
    assert (on_chain["concluded"], on_chain["code"]) == (True, Code.REJECT_WEIGHTS)
    assert [suite.juries.close(challenge.trial, juror).send() for juror in range(5)] == [fee] * 5


def test_a_false_accusation_costs_the_bond(game: Game) -> None:
    operator, node = game.node()
    files, suite = history(game, node), accuser(game)
    before, had = suite.token.balance_of(suite.client.address), suite.token.balance_of(operator.address)
    number = suite.node_challenges.open(files, EVIDENCE).send()
    game.try_case(game.state.challenges[number].trial, Code.ACCEPT)
    end(game, suite, number)
    state = compare(game)
    assert (state.challenges[number].outcome, state.challenges[number].back) == (ChallengeOutcome.REFUTED, 0)
    bond = state.challenges[number].bond
    assert suite.token.balance_of(suite.client.address) == before - bond
    assert suite.token.balance_of(operator.address) - had == bond - 5 * jury_fee(state.pools[game.pool].terms, 3)
    assert state.nodes[node.address].frozen == 0
    assert not state.accounts[game.pool, node.address].ejected
    with pytest.raises(ContractError, match="a jury acquitted this node, which nobody can challenge before"):
        suite.node_challenges.open(files, EVIDENCE).send()


def test_an_appeal_overturns_a_blind_conviction(game: Game) -> None:
    _, node = game.node()
    files, suite = history(game, node), accuser(game)
    number = suite.node_challenges.open(files, EVIDENCE).send()
    game.try_case(game.state.challenges[number].trial, Code.REJECT_WEIGHTS)
    suite.node_challenges.conclude(number).send()
    first = game.state.trials[game.state.challenges[number].trial]
    defendant, had = accuser(game), 0
    had = defendant.token.balance_of(defendant.client.address)
    second = defendant.juries.appeal(first.trial).send()
    state = compare(game)
    assert state.challenges[number].trials == [first.trial, second]
    assert (state.trials[first.trial].next, state.trials[first.trial].appellant) == (second, defendant.client.address)
    game.try_case(second, Code.ACCEPT)
    suite.node_challenges.conclude(number).send()
    state = compare(game)
    assert state.challenges[number].outcome is ChallengeOutcome.REFUTED
    assert state.nodes[node.address].stake == 100 * TOKEN
    assert defendant.token.balance_of(defendant.client.address) == had
    assert {one.kind for one in state.slashes} == {"seat"}
    assert {int(one.who) for one in state.slashes} == set(state.trials[first.trial].seats)


def test_a_node_that_computes_otherwise_leaves_with_its_stake(game: Game) -> None:
    _, node = game.node()
    files, suite = history(game, node), accuser(game)
    before = suite.token.balance_of(suite.client.address)
    number = suite.node_challenges.open(files, EVIDENCE).send()
    game.try_case(game.state.challenges[number].trial, Code.MALFORMED)
    end(game, suite, number)
    state = compare(game)
    account = state.accounts[game.pool, node.address]
    assert state.challenges[number].outcome is ChallengeOutcome.DIFFERENT
    assert account.eject_reason == f"different, node challenge {number}"
    assert (account.ejected, account.member, account.slashed) == (True, False, 0)
    assert (state.nodes[node.address].stake, state.nodes[node.address].pool) == (100 * TOKEN, 0)
    assert suite.token.balance_of(suite.client.address) == before
    assert not state.slashes


def test_a_jury_that_says_nothing_is_replaced_and_then_the_challenge_lapses(game: Game) -> None:
    _, node = game.node()
    files, suite = history(game, node), accuser(game)
    number = suite.node_challenges.open(files[:1], EVIDENCE).send()
    with pytest.raises(ContractError, match="a jury has not decided yet"):
        suite.node_challenges.conclude(number).send()
    for _ in range(2):
        challenge = game.state.challenges[number]
        game.draw_jury(challenge.trial)
        game.deployed.chain.later(31)
        suite.node_challenges.conclude(number).send()
    state = compare(game)
    challenge = state.challenges[number]
    assert len(challenge.trials) == 2
    assert state.challenge_of(challenge.trials[0]) is state.challenge_of(challenge.trials[1]) is challenge
    assert (challenge.outcome, challenge.back) == (ChallengeOutcome.LAPSED, challenge.bond)
    assert state.nodes[node.address].stake == 100 * TOKEN


def test_jurors_of_several_files_have_the_time_of_as_many(game: Game) -> None:
    _, node = game.node()
    files, suite = history(game, node), accuser(game)
    numbers = [suite.node_challenges.open(files[:count], EVIDENCE).send() for count in (1, 2)]
    for number, window in zip(numbers, (30, 30 + game.state.pools[game.pool].terms.commitWindow), strict=True):
        trial = game.state.challenges[number].trial
        game.draw_jury(trial)
        seen, drawn = suite.juries.read("caseOf", trial), game.state.trials[trial]
        assert drawn.commit_until == seen["time"] + seen["commitWindow"]
        assert drawn.reveal_until == drawn.commit_until + seen["revealWindow"]
        assert drawn.commit_until - drawn.drawn_time == window


def test_files_that_can_still_be_disputed_are_refused(game: Game) -> None:
    _, node = game.node()
    step = game.publish()
    file = game.submit(node, step, work("young"))
    game.vote(file.lane, {file.place: Code.ACCEPT})
    with pytest.raises(ContractError, match=f"file {file.sequence} is not accepted for good"):
        accuser(game).node_challenges.open([game.again(file)], EVIDENCE).send()


def test_several_open_challenges_of_one_node_each_end_for_themselves(game: Game) -> None:
    """The first that is upheld takes the stake and ejects; one upheld later finds nothing left, and its bond pays the
    jury; a false one costs its bond whatever the others came to; and the stake is held until the last one ends."""
    operator, node = game.node()
    files, suite = history(game, node), accuser(game)
    runs = (files[:1], files[1:], files)
    guilty, false, late = numbers = [suite.node_challenges.open(run, EVIDENCE).send() for run in runs]
    state = compare(game)
    assert open_challenges(state) == [state.challenges[number] for number in numbers]
    assert state.nodes[node.address].frozen == 3
    trials = [state.challenges[number].trial for number in numbers]
    assert len({state.trials[trial].trial for trial in trials}) == 3

    for number, code in zip(numbers, (Code.REJECT_WEIGHTS, Code.ACCEPT, Code.REJECT_SAMPLING), strict=True):
        game.try_case(state.challenges[number].trial, code)
    had = game.suite.token.balance_of(operator.address)
    end(game, suite, guilty)
    state = compare(game)
    assert (state.challenges[guilty].outcome, state.challenges[guilty].slashed) == (
        ChallengeOutcome.UPHELD,
        100 * TOKEN,
    )
    assert state.accounts[game.pool, node.address].ejected
    assert (state.nodes[node.address].stake, state.nodes[node.address].frozen) == (0, 2)
    with pytest.raises(ContractError):
        suite.node_challenges.open(files[:2], EVIDENCE).send()

    end(game, suite, false)
    state = compare(game)
    assert (state.challenges[false].outcome, state.challenges[false].back) == (ChallengeOutcome.REFUTED, 0)
    assert game.suite.token.balance_of(operator.address) > had
    assert state.accounts[game.pool, node.address].ejected, "another challenge's end does not bring it back"
    assert state.nodes[node.address].frozen == 1

    end(game, suite, late)
    state = compare(game)
    challenge, account = state.challenges[late], state.accounts[game.pool, node.address]
    assert (challenge.outcome, challenge.slashed) == (ChallengeOutcome.UPHELD, 0)
    assert challenge.back == challenge.bond - 5 * jury_fee(state.pools[game.pool].terms, 3)
    assert (account.eject_challenge, account.eject_code, account.slashed) == (guilty, Code.REJECT_WEIGHTS, 100 * TOKEN)
    assert state.nodes[node.address].frozen == 0
    assert [one.amount for one in state.slashes] == [100 * TOKEN]
