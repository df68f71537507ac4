"""Whatever a member is doing when it is killed or stopped: no group is trained on twice, no round has two envelopes."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from engines.torch_process import torch_environment
from protocol.errors import IntegrityError, MusterError
from protocol.files import locked, write_atomic
from protocol.waits import wait_for
from storage.s3 import Bucket
from swarm import state
from swarm.config import MixConfig
from swarm.envelope import open_envelope
from swarm.exchange import BucketExchange
from swarm.main import MemberDaemon, run
from swarm.state import JOURNAL, STATUS, MemberProgress, read_journal
from tests.localnet.services.running import ServiceProcess, settings_of
from tests.storage.conftest import bucket, s3
from tests.swarm.world import DOCUMENT, SwarmWorld, journal, shared_names
from trainer.checkpoint import checkpoints

__all__ = ["bucket", "s3"]
FEW = MixConfig(own=3, shared=1)  # so few of what is on offer that much is left


def rounds(home: Path) -> list[int]:
    return [line["round"] for line in read_journal(home / JOURNAL)]


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
    lost = made.run_round(1)
    again = world.member(0, mix=FEW)
    assert again.progress.next == 1
    assert all(torch.equal(before[name], value) for name, value in again.learner.policy.model.state_dict().items())
    repeated = again.run_round(1)
    assert repeated.shared == lost.shared, "the same draw of the same offers"
    again.progress.finished(again.learner, again.inbox, repeated)
    assert shared_names(again)


def test_a_round_that_was_sent_is_not_sent_again_whatever_has_changed(world: SwarmWorld) -> None:
    """Two rounds or more are lost; the restarted member makes the same groups with other log-probs."""
    made, lost = world.member(0), 0
    while lost < 2 or (not world.envelopes and lost < 40):
        made.run_round(lost)
        lost += 1
    again = world.member(0, temperature=0.98)
    for number in range(lost):
        again.run_round(number)
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
        assert rounds(again.progress.home) == [0]
        again.advance()
        assert rounds(again.progress.home) == [0, 1]
        assert [line["round"] for line in map(json.loads, path.read_text().splitlines())] == [0, 1]
        for checkpoint in checkpoints(made.progress.home / "checkpoints")[1:]:
            shutil.rmtree(checkpoint)


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
    assert rounds(made.progress.home) == [0, 1]
    assert world.member(0).progress.next == 1
    assert rounds(made.progress.home) == [0], "it tells of weights that are lost"
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
    again.inbox.collect(world.exchange, 1)
    assert again.inbox.state.seen == heard


def test_two_processes_do_not_work_in_one_home(world: SwarmWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    config, path = world.config(0, rounds=1), world.root / "member.json"
    path.write_text(config.model_dump_json())
    monkeypatch.setattr("swarm.main._LOCK_SECONDS", 0.2)
    with locked(config.home / "member.lock", "the test", 1), pytest.raises(MusterError, match="the other process"):
        run(path)


@pytest.mark.slow
def test_a_process_that_is_killed_again_and_again(world: SwarmWorld, s3: ServiceProcess, bucket: Bucket) -> None:
    """kill -9 at random moments of real processes, three times."""
    neighbours(world, 2)
    for data in world.envelopes.values():
        BucketExchange(bucket).publish(data)
    config = world.config(0, rounds=4, s3=settings_of(s3))
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
    assert rounds(config.home) == list(range(4))
    assert shared_names(world.member(0))
    assert kills > 0


# Journal


def line(number: int, **more: Any) -> dict[str, Any]:
    return {"round": number, "shared": [], **more}


def test_a_round_costs_no_reading_of_those_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress, path = MemberProgress(tmp_path), tmp_path / JOURNAL
    path.write_bytes(b"".join(json.dumps(line(number)).encode() + b"\n" for number in range(5)) + b'{"cut o')
    progress._append([line(3), line(4), line(5)])
    assert rounds(tmp_path) == list(range(6)), "the first time, what a kill left is mended"
    monkeypatch.setattr(state, "read_journal", None)
    monkeypatch.setattr(Path, "read_bytes", None)
    for number in range(3):
        progress._append([line(5 + number), line(6 + number, text="x" * 100_000 * number)])
    monkeypatch.undo()
    assert rounds(tmp_path) == list(range(9))
    assert path.read_bytes().endswith(b"\n")


def test_a_cut_first_line_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    path.write_bytes(b'{"round": 0, "sh')
    MemberProgress(tmp_path)._append([line(0)])
    assert rounds(tmp_path) == [0]


def test_what_kills_left_of_policies_and_checkpoints_is_removed(tmp_path: Path) -> None:
    """Each is as large as the model."""
    left = [tmp_path / ".policy.0123456789ab.old", tmp_path / "checkpoints" / ".step-000001.0123456789ab"]
    kept = [tmp_path / "policy", tmp_path / "outbox"]
    progress = MemberProgress(tmp_path)
    for folder in (*left, *kept):
        folder.mkdir()
        (folder / "file").write_bytes(b"1")
    progress.resume(None, None)  # type: ignore[arg-type]
    assert [folder.exists() for folder in (*left, *kept)] == [False, False, True, True]


# Pace


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
