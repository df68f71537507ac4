"""Whoever accepts keeps the bytes: an owner who serves a file to its committee and then to nobody, on a real chain with
validators that keep, announce and serve over HTTP, and with some that do not."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from chain.indexer.records import Panel, Submission
from chain.transactions import Call, PendingTransaction, Price, Sender
from protocol.verdict import Code
from storage.keys import MissingObjectError, object_key
from storage.transfers import HttpObjects, download
from tests.chain.game import Game, begin, work
from tests.conftest import Deployed
from tests.storage.mirror import NEAR, drip, mirror, send
from tests.validator.daemon_world import ValidatorWorld, turns
from validator.daemon import Validator
from validator.retention import RetentionService, Serving, must_retain

WINDOW = 250  # seconds of every window: enough for a slow machine


@dataclass
class HidingOwner:
    """A pool whose owner serves `text` while it pleases, the committee's process and the one of all other seats."""

    game: Game
    file: Submission
    served: dict[str, bytes]
    committee: ValidatorWorld
    others: ValidatorWorld
    members: list[str]
    disputer: str = ""

    @property
    def now(self) -> Submission:
        return self.game.state.submissions[self.game.pool, 0]

    @property
    def lost(self) -> int:
        return sum(seat.penalised for seat in self.game.state.seats.values())

    @property
    def mirrors(self) -> tuple[str, ...]:
        return self.game.state.mirrors_of(self.now)

    def accept(self, outcome: Code = Code.ACCEPT) -> Validator:
        """The committee fetches and accepts, or says otherwise; then the owner serves the file no more."""
        validator = self.committee.start(*self.members)
        turns(validator, lambda: self.game.state.lanes[self.game.pool, 0].round.settled)
        assert self.now.code == outcome
        self.served.clear()
        return validator

    def dispute(self) -> int:
        """By a stranger; returns what it pays for it, before anything comes back."""
        disputer = self.game.deployed.rich()
        self.game.deployed.suite(disputer).appeals.dispute(self.now).send()
        self.disputer = disputer.address
        return self.balance

    @property
    def balance(self) -> int:
        return self.game.suite.token.balance_of(self.disputer)

    def judge(self, *processes: Validator) -> None:
        """Until juries of the other seats have found what they can."""
        voters = [suite.client.address for suite in self.game.voters.values()]
        jurors = self.others.start(*(voter for voter in voters if voter not in self.members))

        def each() -> bool:
            newest = max(self.game.state.trials.values(), key=lambda trial: trial.trial)
            self.game.mine_to(newest.seed_block + 1)
            for process in processes:
                process.turn()
            return self.game.state.disputes[self.game.pool, 0].resolved

        turns(jurors, each)

    def restart_and_stand(self) -> None:
        """A dispute while the committee's process is down; its next one shows the bytes, and no seat loses anything."""
        self.committee.stop()
        self.dispute()
        assert self.mirrors == ()
        again = self.committee.start(*self.members)
        turns(again, lambda: self.mirrors)
        self.judge(again)
        assert (self.now.code, self.lost) == (Code.ACCEPT, 0)


@pytest.fixture
def owner(deployed: Deployed, tmp_path: Path) -> Iterator[HidingOwner]:
    windows = ("commitWindow", "revealWindow", "juryCommitWindow", "juryRevealWindow", "challengeWindow")
    game = begin(deployed, tmp_path, **dict.fromkeys(windows, WINDOW))
    _, node = game.node()
    game.publish()
    file = game.submit(node, 0, work("a"))
    served = {object_key("rollouts", file.sha256): b"a"}

    def answer(handler: BaseHTTPRequestHandler) -> None:
        data = served.get(handler.path[1:])
        send(handler, 404 if data is None else 200, data or b"")

    worlds = [ValidatorWorld(game, tmp_path / name) for name in ("committee", "others")]
    members = list(worlds[0].drawable())
    with mirror(answer) as service:
        for world in worlds:
            world.folder.mkdir()
            world.objects, world.patience = HttpObjects([service], timeout=5.0, allow_private=True), 60.0
        try:
            yield HidingOwner(game, file, served, worlds[0], worlds[1], members)
        finally:
            for world in worlds:
                world.stop()
                world.objects.close()


def test_with_the_bytes_shown_the_acceptance_stands_and_the_disputer_pays(owner: HidingOwner) -> None:
    members = owner.accept()
    members.turn()
    key = object_key("rollouts", owner.file.sha256)
    assert owner.committee.serve is not None
    url = f"{owner.committee.serve.public_url}/{key}"
    assert not owner.mirrors, "nothing is said while nobody disputes"
    with pytest.raises(MissingObjectError):
        download(url, key, 100, NEAR)
    paid = owner.dispute()
    turns(members, lambda: owner.mirrors)
    assert list(owner.mirrors) == [url]
    assert download(url, key, 100, NEAR) == b"a"
    owner.judge(members)
    assert owner.now.code == Code.ACCEPT
    assert owner.others.judge.data == [b"a"], "judged once, from the bytes that the seats showed"
    assert owner.lost == 0
    assert owner.balance == paid, "its deposit is lost"
    assert len(owner.mirrors) == 1, "announced once, for all seats of the process"


def test_whoever_dies_after_a_vote_shows_it_and_its_evidence(
    owner: HidingOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a vote is sent, all that it stands on is on disk: no death changes it, nor costs a seat anything. Both
    processes are started anew from their disks with their votes under way."""
    game, sent, missing, launch = owner.game, list[str](), list[str](), Sender._launch

    def checked(sender: Sender, call: Call, gas: int, price: Price) -> PendingTransaction:
        body, _, kind = call.label.partition(".")
        if kind in ("commit", "vote"):
            folder = (owner.committee if body == "Court" else owner.others).folder
            ballots = [json.loads(path.read_bytes()) for path in folder.glob("ballots/*.json")]
            said = [
                one for one in ballots if one["commitment" if kind == "commit" else "verdict_hash"] in call.data.hex()
            ]
            kept = [*folder.glob("files/*.parquet")] or body == "Juries"
            if not (said and kept and list(folder.glob(f"verdicts/*/{said[0]['verdict_hash']}.json"))):
                missing.append(call.label)
            sent.append(call.label)
        return launch(sender, call, gas, price)

    monkeypatch.setattr(Sender, "_launch", checked)

    def die_and_reveal(world: ValidatorWorld, voters: list[str], panel: Callable[[], Panel]) -> None:
        """Die once two have committed; the process that follows reveals what those committed to."""
        turns(world.start(*voters[:2]), lambda: len(panel().commits) == 2)
        world.stop()
        commits = dict(panel().commits)
        turns(world.start(*voters), lambda: panel().all_revealed)
        assert {member: panel().commits[member] for member in commits} == commits
        assert all(commits.values())

    die_and_reveal(owner.committee, owner.members, lambda: game.state.lanes[game.pool, 0].round)
    committee = owner.committee.running[-1][0]
    turns(committee, lambda: game.state.lanes[game.pool, 0].round.settled)
    owner.served.clear()
    owner.dispute()
    turns(committee, lambda: owner.mirrors)
    (trial,) = game.state.trials
    game.mine_to(game.state.trials[trial].seed_block + 1)
    jury = game.suite.juries.committee_of((trial,))
    assert jury is not None
    die_and_reveal(owner.others, list(jury.voters), lambda: game.state.trials[trial])
    assert (owner.now.code, owner.lost, missing) == (Code.ACCEPT, 0, [])
    assert {"Court.commit", "Juries.commit"} <= set(sent)


def test_without_a_place_to_show_them_no_jury_confirms_the_votes(
    owner: HidingOwner, caplog: pytest.LogCaptureFixture
) -> None:
    owner.committee.serve, owner.others.patience = None, 1.0
    members = owner.accept()
    paid = owner.dispute()
    turns(members, lambda: "WE CANNOT SHOW IT" in caplog.text)
    owner.judge(members)
    assert (owner.now.code, owner.lost) == (Code.ACCEPT, 0), "nobody is fined for bytes that the service attested"
    assert owner.balance > paid, "what is left of the deposit"


def test_a_new_voting_key_finds_what_the_old_one_accepted(owner: HidingOwner) -> None:
    """Between the change on chain and the restart with the new key, no seat of the process is its own."""
    game = owner.game
    process = owner.accept()
    for seat, suite in game.voters.items():
        if suite.client.address in owner.members:
            key = game.deployed.rich()
            game.validator.seats.set_voter(seat, key.address).send()
            game.voters[seat] = game.deployed.suite(key)
            owner.members[owner.members.index(suite.client.address)] = key.address
    assert {game.state.seats[seat].voter for seat in game.voters} >= set(owner.members)
    for _ in range(2):
        process._retention.sweep(game.state, game.suite.client.now())
    owner.restart_and_stand()


class HangingBucket(Serving):
    """A bucket that never answers, until the test is over."""

    def __init__(self) -> None:
        super().__init__("https://hangs.example")
        self.asked, self.over = threading.Event(), threading.Event()

    def show(self, sha256: bytes, data: bytes) -> None:
        self.asked.set()
        self.over.wait()

    def close(self) -> None:
        self.over.set()


def test_a_bucket_that_hangs_keeps_no_seat_from_voting(owner: HidingOwner) -> None:
    """One process with all seats, jurors among them, and one thread for its votes."""
    owner.committee.serve, owner.committee.threads = None, 1
    owner.committee.serving = bucket = HangingBucket()
    owner.members.extend(
        suite.client.address for suite in owner.game.voters.values() if suite.client.address not in owner.members
    )
    process = owner.accept()
    owner.dispute()
    try:
        turns(process, bucket.asked.is_set)
        (trial,) = owner.game.state.trials
        owner.game.mine_to(owner.game.state.trials[trial].seed_block + 1)
        turns(process, lambda: owner.game.state.trials[trial].all_revealed)
        assert owner.mirrors == ()
    finally:
        bucket.close()


def test_hostile_announcements_keep_no_juror_from_the_bytes(owner: HidingOwner) -> None:
    """A seat of the committee that turned hostile, a stranger and the node, each with what a juror should not wait for
    or go to; the honest seats' word is heard."""
    game, drips = owner.game, list[str]()
    owner.accept()
    owner.dispute()
    hostile = next(suite for suite in game.voters.values() if suite.client.address == owner.members[0])
    owner.committee.stop()
    honest = owner.committee.start(*owner.members[1:])

    def slow_answer(handler: BaseHTTPRequestHandler) -> None:
        drips.append(handler.path)
        drip(handler)

    with mirror(slow_answer) as slow:
        for number in range(4):
            hostile.court.announce_mirror(game.pool, 0, f"{slow}/{number}").send()
            game.suite.court.announce_mirror(game.pool, 0, f"{slow}/stranger/{number}").send()
        hostile.court.announce_mirror(game.pool, 1, f"{slow}/another-file").send()
        turns(honest, lambda: len(owner.mirrors) == 2)
        owner.judge(honest)
    assert (owner.now.code, owner.lost) == (Code.ACCEPT, 0)
    assert set(drips) <= {"/3"}, "one URL of a seat, its newest, and none of a stranger's"


def test_what_is_kept_goes_once_its_outcome_stands_and_not_before(owner: HidingOwner) -> None:
    owner.accept()
    files = owner.committee.running[-1][1].retained
    place, game = (owner.game.pool, 0), owner.game
    service: RetentionService = owner.committee.running[-1][0]._retention

    def sweep_twice() -> bool:
        for _ in range(2):
            service.sweep(game.state, game.suite.client.now())
        return files.has(place, owner.file.sha256)

    def wanted(now: int, sha256: bytes = owner.file.sha256) -> bool:
        return must_retain(game.state, place, sha256, now)

    assert sweep_twice()
    final = owner.now.final_time
    assert [wanted(final - 1), wanted(final), wanted(0, b"x" * 32)] == [True, False, False]
    owner.dispute()
    game.deployed.chain.later(WINDOW + 1)
    assert sweep_twice(), "a dispute keeps it, whatever the clock says"
    owner.judge(owner.committee.running[-1][0])
    assert not sweep_twice()


def test_what_there_is_no_room_for_is_unavailable_and_costs_its_seats_nothing(
    owner: HidingOwner, caplog: pytest.LogCaptureFixture
) -> None:
    """An owner who fills its part of the store, hides the next file and disputes it gains nothing."""
    owner.committee.room, owner.others.patience = 0, 1.0
    owner.accept(Code.UNAVAILABLE)
    assert "file 0 of pool" in caplog.text
    assert "IS NOT RETAINED" in caplog.text
    paid = owner.dispute()
    owner.judge()
    assert owner.now.code == Code.UNAVAILABLE
    assert owner.lost == 0
    deposit = owner.game.state.disputes[owner.game.pool, 0].deposit
    assert paid < owner.balance < paid + deposit, "the disputer pays the jurors who came"
