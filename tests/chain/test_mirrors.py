"""Whose word on where a file is the projected state believes: anybody may announce anything on a real chain."""

from pathlib import Path

from chain.indexer.records import MAX_MIRROR, MOST_NODE_MIRRORS
from protocol.verdict import Code
from tests.chain.comparison import compare
from tests.chain.game import begin, work
from tests.conftest import Deployed


def test_a_files_node_and_the_seats_that_had_it_are_believed_and_nobody_else(
    deployed: Deployed, tmp_path: Path
) -> None:
    game = begin(deployed, tmp_path)
    _, node = game.node()
    _, other = game.node()
    step = game.publish()
    had, lacked = game.submit(node, step, work("had")), game.submit(node, step, work("lacked"))
    game.attest(0)
    game.mine_to(game.state.lanes[game.pool, 0].round.seed_block + 1)
    committee = game.suite.court.committee_of((game.pool, 0, 0))
    assert committee is not None
    members = [game.voters[seat] for seat in committee.seats]
    outsider = next(suite for seat, suite in game.voters.items() if seat not in committee.seats)
    members[0].pools.announce_mirror(game.pool, 0, "https://before-its-vote.example").send()
    game.vote(0, {0: Code.ACCEPT, 1: Code.UNAVAILABLE})
    for sequence in (0, 1, 7):
        members[0].pools.announce_mirror(game.pool, sequence, "https://old.example").send()
        for speaker in (*members, outsider, game.suite, deployed.suite(other)):
            url = f"https://{speaker.client.address}.example"
            speaker.pools.announce_mirror(game.pool, sequence, url).send()
    members[1].pools.announce_mirror(game.pool, 0, "https://" + "x" * MAX_MIRROR).send()
    for number in range(MOST_NODE_MIRRORS + 2):
        deployed.suite(node).pools.announce_mirror(game.pool, 1, f"https://node.example/{number}").send()
    state = compare(game)
    assert state.mirrors_of(had) == tuple(f"https://{member.client.address}.example" for member in members)
    assert state.mirrors_of(lacked) == tuple(f"https://node.example/{number}" for number in range(MOST_NODE_MIRRORS))
    assert set(state.mirrors) == {(game.pool, 0), (game.pool, 1)}
