"""The projected state beside the contracts' own views, record by record."""

from collections.abc import Iterator

from chain.indexer.records import ChallengeOutcome, Lane, Status
from chain.indexer.reducers import STATUSES, ZERO
from chain.indexer.state import State
from protocol.verdict import LANE, code_at
from tests.chain.game import Game


def compare_pools(game: Game, state: State) -> None:
    """Pools, their services and their lanes."""
    court, epoch = game.suite.court, game.suite.seats.epoch_blocks()
    for number, pool in state.pools.items():
        view = game.suite.pools.pool_of(number)
        seen = tuple(view[name] for name in ("owner", "status", "steps"))
        assert (pool.owner, STATUSES.index(pool.status), len(pool.steps)) == seen
        assert pool.terms == court.terms_of(number)
        service, previous, until = court.read("serviceOf", number)
        assert (pool.service or ZERO, pool.previous_service or ZERO, pool.previous_until) == (service, previous, until)
    for key, lane in state.lanes.items():
        for round_ in lane.rounds:
            word = court.read("roundOf", *key, round_.round)  # contracts/src/libraries/LaneSlot.sol
            time, codes, seats = word >> 144 & 0xFFFFFFFF, word >> 176 & (1 << 64) - 1, word >> 64 & (1 << 80) - 1
            drawn = tuple(seat for shift in range(0, 80, 16) if (seat := seats >> shift & 0xFFFF))
            assert (round_.settled, round_.seats, bool(round_.closed)) == (
                bool(word >> 255),
                drawn,
                bool(word >> 254 & 1),
            )
            if round_.settled:
                assert (round_.codes, round_.settled_time) == (codes, time)
            elif round_.round == 0:
                assert [place for place in range(LANE) if code_at(codes, place)] == list(places(lane))
                # A seed block that nobody drew with moves on by whole epochs.
                moved = 0 if round_.drawn else time - round_.seed_block
                assert moved >= 0
                assert moved % epoch == 0


def places(lane: Lane) -> Iterator[int]:
    return (sequence % LANE for sequence in lane.sequences)


def compare(game: Game) -> State:
    """Every record of the state equals the contract's view."""
    state, suite = game.state, game.suite
    for (pool, address), account in state.accounts.items():
        view = suite.pools.account_of(pool, address)
        assert (account.counter, account.units_pending) == (view["counter"], view["pending"]), address
        assert (account.units_earned, account.units_spent) == (view["earned"], view["spent"]), address
        assert (account.ejected, account.removed) == (view["slashed"], view["removed"])
        assert (account.frozen, account.barrier) == (view["frozen"], view["barrier"])
        assert account.limit == view["limit"]
    for key, sub in state.submissions.items():
        word = suite.pools.read("wordOf", *key)
        if not word and sub.lane_words:  # its lane's hash stands for it: the chain takes these words for the lane's
            suite.client.estimate(suite.pools.unpacking([sub])[0])
            word = sub.lane_words[sub.place]
        if not word:
            assert sub.status is Status.PENDING or sub.finalized, key
            continue
        assert (sub.code, bool(sub.disputed)) == (word >> 240 & 255, word >> 248 & 15 == 3), key
        amount, cumulative = word >> 160 & (1 << 48) - 1, word >> 252 & 1
        assert (amount if cumulative else 0, 0 if cumulative else amount) == (
            sub.cumulative,
            0 if sub.cumulative else sub.units,
        ), key
        assert word >> 208 & 0xFFFFFFFF == sub.final_time, key
    compare_pools(game, state)
    for number, seat in state.seats.items():
        on_chain = suite.seats.seat_of(number)
        assert (seat.owner, seat.voter, seat.bond) == tuple(on_chain[name] for name in ("owner", "voter", "bond"))
        word = suite.seats.read("membershipsOf", number)  # contracts/src/libraries/Memberships.sol
        assert set(seat.groups) == {group for shift in range(0, 240, 48) if (group := word >> shift & 0xFFFFFFFF)}
        assert seat.fees == suite.pools.read("feesOf", number)
    for address, node in state.nodes.items():
        at_stakes = suite.stakes.node_of(address)
        for name in ("operator", "stake", "pool", "frozen"):
            assert getattr(node, name) == at_stakes[name]
        assert node.release_at == at_stakes["releaseAt"]
        assert (node.sponsor or ZERO, node.loan) == suite.stakes.read("loanOf", address)
    for number, challenge in state.challenges.items():
        held = suite.node_challenges.read("challengeOf", number)
        for name in ("code", "bond", "pool", "node", "accuser"):
            assert getattr(challenge, name) == held[name]
        assert (challenge.outcome is not ChallengeOutcome.OPEN) == held["concluded"]
        assert challenge.trials[0] == held["trial"]
    for number, trial in state.trials.items():
        case = suite.juries.read("caseOf", number)
        assert (trial.next, trial.appeal_until, trial.settled) == (case["next"], case["appealUntil"], case["concluded"])
    for address, balance in state.balances.items():
        assert balance == suite.token.balance_of(address), address
    escrow = sum(pool.escrow for pool in state.pools.values()) + sum(seat.fees for seat in state.seats.values())
    assert escrow == suite.token.balance_of(suite.pools.address)
    return state
