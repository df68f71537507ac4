"""Whatever a member is doing when it is killed: no group is trained on twice, and no round has two envelopes."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from engines.runtime import torch_environment
from protocol.errors import IntegrityError, MusterError
from protocol.files import locked, write_atomic
from swarm.config import MixConfig
from swarm.envelope import open_envelope
from swarm.exchange import FolderExchange
from swarm.main import run
from swarm.member import Member
from swarm.state import JOURNAL, STATUS
from tests.swarm.world import DOCUMENT, SwarmWorld, journal, shared_names
from trainer.checkpoint import checkpoints

FEW = MixConfig(own=3, shared=1)  # so few of what is on offer that much is left


def rounds(made: Member) -> list[int]:
    return [line["round"] for line in journal(made)]


def changed(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0


def neighbours(world: SwarmWorld, envelopes: int) -> None:
    """Two others who have shared so much each."""
    for name in (1, 2):
        world.share(world.member(name), envelopes)


def test_a_round_that_was_not_written_down_is_made_again(world: SwarmWorld) -> None:
    neighbours(world, 4)
    made = world.member(0, mix=FEW)
    made.advance()
    before = {name: value.clone() for name, value in made.learner.policy.model.state_dict().items()}
    lost = made.round(1)
    again = world.member(0, mix=FEW)
    assert again.progress.next == 1
    assert all(torch.equal(before[name], value) for name, value in again.learner.policy.model.state_dict().items())
    repeated = again.round(1)
    assert repeated.shared == lost.shared, "the same draw of the same offers"
    again.progress.finished(again.learner, again.inbox, repeated)
    assert shared_names(again)


def test_a_round_that_was_sent_is_not_sent_again_whatever_has_changed(world: SwarmWorld) -> None:
    """Two rounds or more are lost; the restarted member makes the same groups with other log-probs."""
    made, lost = world.member(0), 0
    while lost < 2 or (not world.envelopes and lost < 40):
        made.round(lost)
        lost += 1
    again = world.member(0, temperature=0.98)
    for number in range(lost):
        again.round(number)
    rounds = [open_envelope(data, DOCUMENT).round for data in world.envelopes.values()]
    assert rounds
    assert len(rounds) == len(set(rounds))


def test_a_kill_between_checkpoint_and_journal_loses_no_line(world: SwarmWorld) -> None:
    made = world.member(0)
    made.advance()
    path = made.progress.home / JOURNAL
    whole = path.read_bytes()
    for left in (b"", whole[: len(whole) // 2]):
        path.write_bytes(left)
        again = world.member(0)
        assert rounds(again) == [0]
        again.advance()
        assert rounds(again) == [0, 1]
        assert [line["round"] for line in map(json.loads, path.read_text().splitlines())] == [0, 1]
        for path in checkpoints(made.progress.home / "checkpoints")[1:]:
            shutil.rmtree(path)


def test_what_was_drawn_before_a_restart_is_not_drawn_after_it(world: SwarmWorld) -> None:
    neighbours(world, 2)
    made = world.member(0, mix=FEW)
    made.advance()
    drawn = shared_names(made)
    assert drawn
    again = world.member(0)
    offered = {one.name for one in again.inbox.unused()}
    assert offered
    assert not offered.intersection(drawn)
    assert offered == set(made.inbox.groups) - made.inbox.state.used, "the others are there, without the exchange"


def test_a_damaged_checkpoint_is_passed_over_and_all_damaged_ones_stop_it(world: SwarmWorld) -> None:
    made = world.member(0)
    for _ in range(2):
        made.advance()
    first, second = checkpoints(made.progress.home / "checkpoints")
    state = second / "state.json"
    write_atomic(state, state.read_bytes().replace(b'"next":2', b'"next":9'))
    assert rounds(made) == [0, 1]
    assert world.member(0).progress.next == 1
    assert rounds(made) == [0], "it tells of weights that are lost"
    write_atomic(first / "state.json", b"{}")
    with pytest.raises(IntegrityError, match="is intact"):
        world.member(0)


def test_what_a_damaged_checkpoint_knew_of_others_is_found_again(world: SwarmWorld) -> None:
    """Or a liar would be trusted again once its envelope is noted as known and its breach is not."""
    made = world.member(0)
    made.advance()
    neighbours(world, 1)
    made.advance()
    heard = made.inbox.state.seen
    assert heard
    (checkpoints(made.progress.home / "checkpoints")[-1] / "state.json").write_bytes(b"{}")
    again = world.member(0)
    assert not again.inbox.state.seen
    again.inbox.collect(FolderExchange(world.exchange), 1)
    assert again.inbox.state.seen == heard


def test_two_processes_do_not_work_in_one_home(world: SwarmWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    config, path = world.config(0, rounds=1), world.root / "member.json"
    path.write_text(config.model_dump_json())
    monkeypatch.setattr("swarm.main._LOCK_SECONDS", 0.2)
    with locked(config.home / "member.lock", "the test", 1), pytest.raises(MusterError, match="the other process"):
        run(path)


@pytest.mark.slow
def test_a_process_that_is_killed_again_and_again(world: SwarmWorld) -> None:
    """kill -9 at random moments of real processes, three times."""
    neighbours(world, 2)
    config = world.config(0, rounds=4)
    path = world.root / "member.json"
    path.write_text(config.model_dump_json())
    command = [sys.executable, "-c", f"from pathlib import Path; from swarm.main import run; run(Path({str(path)!r}))"]
    environment, rng, kills = os.environ | torch_environment(), random.Random(1), 0
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        process = subprocess.Popen(command, env=environment)
        began = changed(config.home / STATUS)
        while process.poll() is None and (kills == 3 or changed(config.home / STATUS) <= began):
            time.sleep(0.02)
        time.sleep(rng.random())
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        if process.wait() == 0:
            break
    made = world.member(0)
    assert rounds(made) == list(range(4))
    assert shared_names(made)
    assert kills > 0
