"""A member that is told to keep a pace rests between rounds, and ends at once when it is told to."""

import threading
from contextlib import ExitStack

from protocol.waits import wait_for
from swarm.main import MemberDaemon
from swarm.state import STATUS
from tests.swarm.world import SwarmWorld, journal


def test_the_next_round_waits_for_its_time_and_a_stop_does_not(world: SwarmWorld) -> None:
    made = world.member(0)
    home = made.progress.home
    daemon = MemberDaemon(made, 3, 3600.0, ExitStack())
    thread = threading.Thread(target=daemon.run)
    thread.start()
    wait_for("the first round", (home / STATUS).is_file, 120)
    thread.join(2)
    daemon.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert [line["round"] for line in journal(made)] == [0]


def test_after_the_last_round_nothing_is_waited_for(world: SwarmWorld) -> None:
    made = world.member(0)
    assert MemberDaemon(made, 1, 3600.0, ExitStack()).run() == 0
    assert len(journal(made)) == 1
