"""What a run's report says of the rules is read from the chain: played on the real contracts."""

from pathlib import Path

from chain.judging import Canary, Dispute
from chain.records import Seat
from localnet.safeguards import broken_safeguards, safeguards
from orchestrator.dashboard.results import Safeguards
from protocol.verdict import Code
from tests.chain.game import SEATS, Game, begin, work
from tests.conftest import GRAINS, Deployed


def silent_first_committee(game: Game) -> list[int]:
    """One of three members votes, the windows pass, the lane is settled; the seats that kept silent."""
    game.mine_to(game.state.lanes[game.pool, 0].round.seed_block + 1)
    place = game.pool, 0, 0
    committee = game.suite.court.committee_of(place)
    assert committee is not None
    speaker = game.voters[committee.seats[0]]
    codes, salt = int(Code.ACCEPT), b"\x07" * 32
    hidden = speaker.court.ballot_hash(place, speaker.client.address, codes, bytes(32), salt)
    speaker.court.commit(place, 0, hidden).send()
    game.deployed.chain.later(31)
    speaker.court.reveal(place, 0, codes, bytes(32), salt).send()
    game.suite.court.settle(place, game.state.files_of(game.state.lanes[game.pool, 0])).send()
    return list(committee.seats[1:])


def test_attested_late_and_silent_are_told_by_the_chain(deployed: Deployed, tmp_path: Path) -> None:
    game = begin(deployed, tmp_path)
    (_, honest), (_, absent) = game.node(), game.node()
    game.publish()
    game.submit(honest, 0, work("a"))
    late = game.submit(absent, 0, work("b"))
    assert (late.lane, late.place) == (0, 1)
    game.attest(0, 0b01)
    silent = silent_first_committee(game)
    assert safeguards(game.state, game.pool).silent == [], "no other committee has decided yet"
    game.vote(0, {0: Code.ACCEPT}, round=1)
    before = safeguards(game.state, game.pool)
    assert (before.attested, before.late, before.late_fines) == (1, [1], 0)
    assert "the file that was never uploaded is not void and fined" in list(broken_safeguards(before))
    game.suite.pools.finalize(game.state.submissions[game.pool, 1]).send()
    found = safeguards(game.state, game.pool)
    values = game.suite.params.values()
    assert found.late_fines == values["malformedPenalty"] == GRAINS
    assert (found.opted_in, found.needed) == (SEATS, SEATS)
    (one,) = found.silent
    assert (one.lane, sorted(one.absent), one.fined) == (0, sorted(silent), 2 * values["withheldPenalty"])
    assert list(broken_safeguards(found)) == []


def test_only_the_accused_seats_own_dispute_counts_as_dodging(deployed: Deployed, tmp_path: Path) -> None:
    game = begin(deployed, tmp_path)
    _, node = game.node()
    game.publish()
    file = game.submit(node, 0, work("a"))
    state, place = game.state, (game.pool, file.sequence)
    state.seats[7] = Seat(7, "0xlazy", "0xvoter", 100, 0)
    canary = state.canaries[place] = Canary(*place, 0, 3, (7,), 5, 9, concluded=True, upheld=True, slashed={7: 20})
    assert safeguards(state, game.pool).dodged == []
    state.disputes[place] = Dispute(*place, "0xsomebody", 1, 5, 9)
    assert safeguards(state, game.pool).dodged == []
    state.disputes[place] = Dispute(*place, "0xlazy", 1, 5, 9)
    (one,) = safeguards(state, game.pool).dodged
    assert (one.submission, one.seat, one.slashed) == (file.sequence, 7, 20)
    canary.upheld = False
    assert safeguards(state, game.pool).dodged == []


def test_a_seat_pays_once_in_a_lane_whichever_canary_it_dodged(deployed: Deployed, tmp_path: Path) -> None:
    game = begin(deployed, tmp_path)
    state = game.state
    state.seats[7] = Seat(7, "0xlazy", "0xvoter", 100, 0)

    def canary(sequence: int, slashed: int) -> None:
        place = game.pool, sequence
        paid = {7: slashed} if slashed else {}
        state.canaries[place] = Canary(*place, 0, 3, (7,), 5, 9, concluded=True, upheld=True, slashed=paid)

    def said() -> list[str]:
        found = Safeguards(attested=1, late=[0], late_fines=1, opted_in=11, needed=11, silent=[], dodged=[])
        dodged = safeguards(state, game.pool).dodged
        return list(broken_safeguards(found.model_copy(update={"dodged": dodged})))

    canary(38, 0)
    state.disputes[game.pool, 38] = Dispute(game.pool, 38, "0xlazy", 1, 5, 9)
    canary(31, 20)
    canary(48, 20)
    assert said() == ["seat 7 dodged canary 38"], "what it paid in the lanes beside counts for those"
    canary(34, 20)  # of the same lane, and not disputed
    assert said() == []
    (one,) = safeguards(state, game.pool).dodged
    assert (one.submission, one.slashed) == (38, 20)
