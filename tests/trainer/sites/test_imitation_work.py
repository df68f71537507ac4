"""A real model on two sites, each learning from the conversations that are dealt to it, and as processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.site_faults import ROOT, local_s3
from protocol.files import write_atomic
from protocol.sites.outer import OuterState
from protocol.training import AdamWConfig, OptimizerConfig, ScheduleConfig
from protocol.waits import wait_for
from runtime.keystore import store
from tests.trainer.helpers import small_model
from tests.trainer.sites.world import KEEPER, SITES, TRUSTED, MemoryBucket, make_run
from trainer.model.sharding import Placement
from trainer.sites.config import ImitationConfig
from trainer.sites.exchange import SiteExchange
from trainer.sites.imitation import ImitationWork, imitation_learners
from trainer.sites.inner import Share
from trainer.sites.keeper import SitesKeeper
from trainer.sites.site import Site

RATES = OptimizerConfig(method=AdamWConfig(learning_rate=1e-2), schedule=ScheduleConfig(warmup_updates=0))
MEMBERS = tuple(str(one.address) for one in SITES[:2])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "base")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> ImitationConfig:
    path = tmp_path_factory.mktemp("data") / "data.jsonl"
    turns = [("x" * number, "yz" * (1 + number % 3)) for number in range(1, 41)]
    lines = [
        json.dumps({"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]})
        for asked, said in turns
    ]
    path.write_text("\n".join(lines))
    return ImitationConfig(data=path, chat_template=False, dtype="float32", batch=3, heldout=4, optimizer=RATES)


def work_of(config: ImitationConfig, base: Path) -> ImitationWork:
    return ImitationWork(config, base, imitation_learners(config, base, Placement()))


def test_each_conversation_of_an_epoch_is_one_sites(base: Path, config: ImitationConfig) -> None:
    learned: list[Any] = []
    for site in MEMBERS:
        work = work_of(config.model_copy(update={"batch": 1}), base)
        while work.place < 36:
            learned += [one.tokens for one in work._batch(Share(bytes(32), site, MEMBERS)) if work.place <= 36]
    assert len(learned) == len(set(learned)) == 36
    none = work_of(config, base)
    assert none.train(Share(bytes(32), str(SITES[5].address), MEMBERS), 0) == 0, "nothing is dealt to who is no member"


def test_two_sites_learn_and_one_goes_on_bit_for_bit(base: Path, config: ImitationConfig, tmp_path: Path) -> None:
    run = make_run(2, "imitation", admission=TRUSTED, inner_steps=5, training_seconds=1000, overlap=1)
    exchange = SiteExchange(MemoryBucket(), run)
    works = [work_of(config, base) for _ in range(2)]
    before = works[0].heldout_loss()
    keeper = SitesKeeper(exchange, KEEPER, OuterState.start(works[0].weights()), tmp_path / "keeper")
    keeper.start()
    sites = [Site(exchange, SITES[at], works[at], tmp_path / str(at)) for at in range(2)]
    for site in sites:
        site.start()
    while min(site.state.step for site in sites) < 2:
        keeper.turn()
        for site in sites:
            site.turn()
    assert sites[0].state.digest == sites[1].state.digest == keeper.state.digest
    assert works[0].heldout_loss() < 0.8 * before
    sites[0].finish()
    again = Site(exchange, SITES[0], work_of(config, base), tmp_path / "0")
    again.start()
    assert again.state.digest == sites[0].state.digest
    saving, share = works[0].save(tmp_path / "kept"), Share(bytes(32), MEMBERS[0], MEMBERS)
    tokens = works[0].train(share, 0)  # what comes after a save began is no part of it
    saving.finish()
    other = work_of(config, base)
    other.restore(tmp_path / "kept")
    assert other.train(share, 0) == tokens
    assert all(np.array_equal(value, works[0].weights()[name]) for name, value in other.weights().items())


@pytest.mark.slow
def test_as_processes_one_killed_and_one_leaving(base: Path, config: ImitationConfig, tmp_path: Path) -> None:
    """`muster site keep`, two of `muster site run`, `muster site status`."""
    password = tmp_path / "password"
    write_atomic(password, b"correct horse battery", 0o600)
    keys = [
        str(store(tmp_path / f"{name}.key.json", bytes([at + 9]) * 32, "correct horse battery", work_factor=2).address)
        for at, name in enumerate(("keeper", "0", "1"))
    ]
    run = make_run(2, "processes", admission=TRUSTED, inner_steps=4, window_seconds=10, training_seconds=30)
    run = run.model_copy(update={"keeper": keys[0], "sites": tuple(keys[1:])})
    (tmp_path / "run.json").write_text(run.model_dump_json())
    with local_s3(tmp_path / "s3") as s3:

        def start(name: str, command: str) -> subprocess.Popen[bytes]:
            values: dict[str, Any] = {
                "home": str(tmp_path / name), "run": str(tmp_path / "run.json"), "model": str(base),
                "s3": s3.model_dump(mode="json"),
                "key": {"keystore": str(tmp_path / f"{name}.key.json"), "password_file": str(password)},
            }  # fmt: skip
            if command == "run":
                values["imitation"] = config.model_dump(mode="json")
            (tmp_path / f"{name}.json").write_text(json.dumps(values))
            argv = [sys.executable, "-m", "cli.main", "site", command, "--config", str(tmp_path / f"{name}.json")]
            with (tmp_path / f"{name}.log").open("ab") as log:
                return subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=log)

        def step(name: str) -> int:
            path = tmp_path / name / "status.json"
            return int(json.loads(path.read_bytes())["step"]) if path.is_file() else -1

        running = [start("keeper", "keep"), start("0", "run"), start("1", "run")]
        try:
            wait_for("two outer steps", lambda: step("0") >= 2 and step("1") >= 2, 120)
            running[1].kill()
            running[1].wait()
            running[1] = start("0", "run")
            newest = step("keeper") + 2
            wait_for("two more", lambda: step("0") >= newest and step("1") >= newest, 120)
            os.kill(running[2].pid, signal.SIGTERM)
            assert running[2].wait(60) == 0
            newest = step("keeper") + 2
            wait_for("two more of one site alone", lambda: step("0") >= newest, 120)
            argv = [sys.executable, "-m", "cli.main", "site", "status", "--home", str(tmp_path / "keeper")]
            shown = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
            assert keys[1] in shown
            assert "outer step" in shown
        finally:
            for one in running:
                one.kill()
                one.wait()
