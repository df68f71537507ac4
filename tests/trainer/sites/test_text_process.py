"""A text run as processes: killed in mid-step, a site comes to the same bits as one that was not."""

import json
import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.site_faults import local_s3, signed_twice
from protocol.accounts import Account
from protocol.sites.run import SitesRun
from protocol.waits import wait_for
from storage.s3 import S3Settings
from tests.trainer.helpers import small_model
from tests.trainer.sites.processes import RunOfProcesses
from tests.trainer.sites.world import TRUSTED, make_run
from trainer.sites.config import TextConfig
from trainer.text.run_data import data_digest, text_corpus

SECRET = 9
Process = subprocess.Popen[bytes]
Kill = Callable[[RunOfProcesses, Process], Process]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "base")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Settings]:
    with local_s3(tmp_path_factory.mktemp("s3") / "data") as settings:
        yield settings


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path, dice = tmp_path_factory.mktemp("data") / "data.jsonl", random.Random(1)
    texts = (dice.choice("abcd") * dice.randint(10, 90) for _ in range(300))
    path.write_text("".join(json.dumps({"text": one}) + "\n" for one in texts))
    return {"files": [str(path)], "dtype": "float32", "batch_tokens": 1000, "sequence_tokens": 64}


def whole_site(of: RunOfProcesses, process: Process) -> Process:
    process.kill()
    process.wait()
    return of.start(0)


def rank(number: int) -> Kill:
    """One rank of the site, which starts all of them again itself."""

    def kill(_: RunOfProcesses, process: Process) -> Process:
        ranks = psutil.Process(process.pid).children(recursive=True)
        [one] = [one for one in ranks if one.environ().get("RANK") == str(number)]
        one.kill()
        return process

    return kill


def made(home: Path, s3: S3Settings, base: Path, text: dict[str, Any], name: str) -> RunOfProcesses:
    home.mkdir()
    config = TextConfig.model_validate(text)
    run: SitesRun = make_run(1, name, admission=TRUSTED, inner_steps=200, window_seconds=30, training_seconds=60)
    digest = data_digest(text_corpus(config, home), config, base)
    address = Account.from_key(bytes([SECRET]) * 32).address
    run = run.model_copy(update={"sites": (address,), "data": digest})
    return RunOfProcesses(home, s3, run, base, {"text": text}, (SECRET,), steps=3)


def in_middle(of: RunOfProcesses, step: int) -> bool:
    now = of.status(0)
    return bool(now["step"] == step and now["inner_steps"] > 5)


def final_digest(of: RunOfProcesses, kills: Sequence[Kill] = ()) -> str:
    """Of the state after the last outer step. `kills` come in the middle of the second outer step's inner steps and of
    those after it."""
    with of.kept() as keeper:
        process = of.start(0)
        for step, kill in enumerate(kills, 1):
            wait_for(f"the middle of outer step {step}", lambda step=step: in_middle(of, step), 120, poll=0.005)  # type: ignore[misc]
            process = kill(of, process)
        assert process.wait(180) == 0, of.log(0)[-3000:]
        assert keeper.state.step == 3
        assert signed_twice(keeper.exchange) == 0
        return keeper.state.digest.hex()


@pytest.mark.slow
def test_a_site_of_two_ranks_that_loses_one_comes_to_the_same_bits(
    s3: S3Settings, base: Path, text: dict[str, Any], tmp_path: Path
) -> None:
    two = text | {"parallel": {"ranks": 2}, "memory": {"row_tokens": 256}}
    killed = made(tmp_path / "killed", s3, base, two, "killed ranks")
    whole = made(tmp_path / "whole", s3, base, two, "whole ranks")
    assert final_digest(whole) == final_digest(killed, [rank(1), rank(0)])
    assert killed.log(0).count("all start again") == 2
    assert whole.log(0).count("all start again") == 0


@pytest.mark.slow
def test_a_site_that_is_killed_in_mid_step_comes_to_the_same_bits(
    s3: S3Settings, base: Path, text: dict[str, Any], tmp_path: Path
) -> None:
    killed = made(tmp_path / "killed", s3, base, text, "killed")
    assert final_digest(made(tmp_path / "whole", s3, base, text, "whole")) == final_digest(
        killed, [whole_site, whole_site]
    )
    assert killed.log(0).count("time-outs of killed") == 3


def test_a_site_with_other_documents_is_refused(
    s3: S3Settings, base: Path, text: dict[str, Any], tmp_path: Path
) -> None:
    other = made(tmp_path / "other", s3, base, text, "other")
    (tmp_path / "more.txt").write_text("more")
    other.work = {"text": text | {"files": [*text["files"], str(tmp_path / "more.txt")]}}
    process = other.start(0)
    assert process.wait(120) == 2
    assert "this site's documents and tokenizer are" in other.log(0)
    assert "Traceback" not in other.log(0)
    assert not (other.home / "site-0" / "run.sha256").exists(), "the run's document may be mended without a new home"
