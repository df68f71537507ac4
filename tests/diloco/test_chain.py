"""Outer steps on a real chain: each is recorded once, whatever is killed, and `muster diloco verify` makes a recorded
one again from the chain and the bucket, without a key, and names what was recorded otherwise."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from benchmarks.diloco_faults import LetterTask
from chain.contracts import WEIGHT_ONE, DilocoRuns, StepRecord
from cli.main import app
from diloco.chain import StepRecorder
from diloco.outer import OuterState
from protocol.errors import UnreachableError
from tests.conftest import Deployed
from tests.diloco.world import COORDINATOR, NAMES, DilocoWorld, make_run


class RecordedWorld:
    """Three workers that made two outer steps, and a contract to record them in."""

    def __init__(self, deployed: Deployed, home: Path) -> None:
        self.deployed, self.home, self.first = deployed, home, OuterState.start(LetterTask().weights())
        self.run = make_run(3, training_seconds=1000, window_seconds=1000)
        self.world = DilocoWorld(self.run, home).begin(0, 1, 2, step=2)
        deployed.chain.fund(COORDINATOR.address)
        self.runs: DilocoRuns = deployed.suite(COORDINATOR).diloco_runs

    def open(self) -> int:
        return self.runs.open(bytes.fromhex(self.run.digest), self.first.digest).send()

    def recorder(self, number: int) -> StepRecorder:
        return StepRecorder(lambda: self.runs, number, self.world.coordinator.transport, self.first)

    def verify(self, number: int, step: int) -> Result:
        """As somebody does who has the run's document, its model and the bucket."""
        self.deployed.deployment.save(self.home / "deployment.json")
        (self.home / "run.json").write_text(self.run.model_dump_json())
        config: dict[str, Any] = {
            "home": "verifier", "run": str(self.home / "run.json"), "model": "model", "key": {"keystore": "none.json"},
            "s3": {"endpoint": "http://127.0.0.1:1", "bucket": "bucket", "credentials": "none.json"},
            "chain": {
                "deployment": str(self.home / "deployment.json"), "rpc": [self.deployed.chain.url], "run": number,
            },
        }  # fmt: skip
        path = self.home / "verifier.json"
        path.write_text(json.dumps(config))
        return CliRunner().invoke(app, ["diloco", "verify", str(step), "--config", str(path), "--json"])


@pytest.fixture
def world(shared_suite: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedWorld:
    made = RecordedWorld(shared_suite, tmp_path)
    monkeypatch.setattr("diloco.chain.Bucket", lambda settings: made.world.bucket)
    monkeypatch.setattr("diloco.main.load_first_state", lambda model: made.first)
    return made


def test_every_step_is_recorded_once_and_follows_from_what_was_published(
    world: RecordedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, client = world.open(), world.runs.client
    send, sent = client.send, list[Any]()

    def lost(*given: Any, **named: Any) -> Any:
        sent.append(send(*given, **named))
        raise UnreachableError("the answer did not come")

    with monkeypatch.context() as patch:
        patch.setattr(client, "send", lost)
        with pytest.raises(UnreachableError):
            world.recorder(number).record_missing()
    assert world.runs.run_of(number)["steps"] == 1
    world.recorder(number).record_missing()  # after a kill: nothing but log, bucket and chain is left
    world.recorder(number).record_missing()
    assert (len(sent), world.runs.run_of(number)["steps"]) == (1, 2)
    for step in (0, 1):
        result = world.verify(number, step)
        assert result.exit_code == 0, result.exception
        shown = json.loads(result.stdout)
        assert (shown["faults"], shown["follows"]) == ([], True)
        assert [one["worker"] for one in shown["contributions"]] == sorted(NAMES[:3], key=lambda one: int(one, 16))
        assert all(0 < one["weight"] <= WEIGHT_ONE // 3 for one in shown["contributions"])
    assert shown["state"] == world.world.coordinator.state.digest.hex()


def same(record: StepRecord) -> StepRecord:
    return record


def heavier(record: StepRecord) -> StepRecord:
    first, *rest = record.contributions
    return replace(record, contributions=(replace(first, weight=first.weight + 1), *rest))


Change = Callable[[StepRecord], StepRecord]
FORGED: dict[str, tuple[Change, Change, str]] = {
    "another state": (same, lambda made: replace(made, state="ab" * 32), "recorded is abababababababab"),
    "another weight": (same, heavier, "with weight"),
    "a contribution less": (
        same, lambda made: replace(made, contributions=made.contributions[1:]), "recorded is nothing"
    ),
    "another entry": (same, lambda made: replace(made, entry="cd" * 32), "has another entry"),
    "an entry that ends no step": (
        same, lambda made: replace(made, number=made.number - 1), "does not commit outer step 1"
    ),
    "a state before it that no step led to": (
        lambda made: replace(made, state="ab" * 32), same, "recorded before it is abababababababab"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_step_is_named(name: str, world: RecordedWorld) -> None:
    honest, number = world.open(), world.open()
    world.recorder(honest).record_missing()
    first, second, word = FORGED[name]
    for step, change in enumerate((first, second)):
        record = world.runs.recorded(honest, step)
        assert record is not None
        world.runs.record(number, change(record)).send()
    assert (world.verify(number, 0).exit_code == 0) == (first is same)
    result = world.verify(number, 1)
    assert result.exit_code == 1
    shown = json.loads(result.stdout)
    assert not shown["follows"]
    assert [word in fault for fault in shown["faults"]] == [True]
