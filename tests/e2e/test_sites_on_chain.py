"""Keeper, two sites and a validator as processes, on a real chain and a real bucket: what the keeper records follows
from what was published, a third site that signs two contributions is shown and slashed, each process is killed once."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.site_faults import local_s3, signed_twice
from chain.contracts.site_runs import SiteRuns
from protocol.accounts import Account, LocalAccount
from protocol.files import write_atomic
from protocol.sites.notes import SiteNote, seal_note
from protocol.sites.run import SitesRun
from runtime.keystore import store
from storage.bucket import Bucket
from storage.settings import S3Settings
from tests.conftest import GRAINS, Deployed
from tests.e2e.running import muster
from tests.trainer.helpers import small_model
from tests.trainer.sites.chain_world import on_this_chain
from tests.trainer.sites.world import TRUSTED, make_run
from trainer.sites.config import TextConfig
from trainer.sites.exchange import SiteExchange
from trainer.text.run_data import data_digest, text_corpus

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
PASSWORD = "correct horse battery"
KEYS: dict[str, LocalAccount] = {
    name: Account.from_key(bytes([number]) * 32)
    for number, name in enumerate(("keeper", "site-1", "site-2", "liar", "validator"), 101)
}
NUMBER, STAKE = 1, 40 * GRAINS


@dataclass
class SitesNetwork:
    """`home`: a folder with keys, documents, and one folder for each process."""

    home: Path
    deployed: Deployed
    s3: S3Settings
    base: Path
    run: SitesRun
    text: dict[str, Any]
    started: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def runs(self) -> SiteRuns:
        return self.deployed.suite().site_runs

    def key(self, name: str) -> dict[str, str]:
        path = self.home / f"{name}.key.json"
        if not path.exists():
            write_atomic(self.home / "password", PASSWORD.encode(), 0o600)
            store(path, bytes(KEYS[name].key), PASSWORD, work_factor=2)
        return {"keystore": str(path), "password_file": str(self.home / "password")}

    def prepare(self) -> None:
        """Tokens, gas, keys and configurations."""
        minting = self.deployed.suite(self.deployed.governance).token
        for account in KEYS.values():
            self.deployed.chain.fund(account.address)
            minting.mint(account.address, 1000 * GRAINS).send()
        self.deployed.deployment.save(self.home / "deployment.json")
        (self.home / "run.json").write_text(self.run.model_dump_json())
        where = {"deployment": str(self.home / "deployment.json"), "rpc": [self.deployed.chain.url]}
        for name in ("keeper", "site-1", "site-2"):
            values = {
                "home": str(self.home / name), "run": str(self.home / "run.json"), "model": str(self.base),
                "s3": self.s3.model_dump(mode="json"), "poll_seconds": 0.2, "key": self.key(name),
                "chain": {**where, "run": NUMBER, "refresh_seconds": 1.0},
            }  # fmt: skip
            more = {} if name == "keeper" else {"text": self.text}
            (self.home / f"{name}.json").write_text(json.dumps({**values, **more}))
        watching = {
            "home": str(self.home / "validator"), "pool": 0, "orchestrator": "", "cache": str(self.home / "cache"),
            "voters": [self.key("validator")], "runs": {str(NUMBER): str(self.home / "keeper.json")}, **where,
        }  # fmt: skip
        (self.home / "validator.json").write_text(json.dumps(watching))

    def command(self, *words: str, by: str = "") -> dict[str, Any]:
        """What a command says that somebody types, paying with the key `by`."""
        paying: tuple[str, ...] = ()
        if by:
            key, chain = self.key(by), self.deployed.chain.url
            paying = ("--deployment", str(self.home / "deployment.json"), "--rpc", chain, "--yes")
            paying += ("--keystore", key["keystore"], "--password-file", key["password_file"])
        done = muster(*words, *paying, "--json", timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(json.loads(done.stdout))

    def start(self, *names: str) -> None:
        words = {"keeper": ("site", "keep"), "validator": ("validator", "run")}
        for name in names:
            config = str(self.home / f"{name}.json")
            argv = [sys.executable, "-m", "cli.main", *words.get(name, ("site", "run")), "--config", config]
            with (self.home / f"{name}.log").open("ab") as log:
                self.started[name] = subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)

    def kill(self, *names: str) -> None:
        for name in names:
            self.started[name].kill()
            self.started[name].wait()

    def stop(self) -> None:
        for process in self.started.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self.started.items():
            assert process.wait(120) == 0, self.log(name)

    def log(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text()[-3000:]

    def until(self, what: str, reached: Callable[[], bool], seconds: float = 600) -> None:
        end = time.monotonic() + seconds
        while not reached():
            for name, process in self.started.items():
                assert process.poll() is None, f"{name} ended: {self.log(name)}"
            assert time.monotonic() < end, what + "".join(f"\n{name}: {self.log(name)}" for name in self.started)
            time.sleep(0.3)

    def steps(self) -> int:
        return self.runs.run_of(NUMBER).steps

    def lie(self) -> None:
        """The third site signs two contributions to one attempt."""
        for number, digest in enumerate(("aa" * 32, "bb" * 32)):
            note = SiteNote(
                run=self.run.digest, site=KEYS["liar"].address, number=number, what="sign", step=1, attempt=0,
                digest=digest,
            )  # fmt: skip
            exchange = SiteExchange(Bucket(self.s3), self.run)
            assert exchange.post(note.site, number, seal_note(note, self.run, KEYS["liar"]))


@pytest.fixture
def network(deployed: Deployed, tmp_path: Path) -> Iterator[SitesNetwork]:
    base, dice, data = small_model(tmp_path / "model" / "base"), random.Random(1), tmp_path / "data.jsonl"
    texts = (dice.choice("abcd") * dice.randint(10, 90) for _ in range(300))
    data.write_text("".join(json.dumps({"text": one}) + "\n" for one in texts))
    text = {"files": [str(data)], "dtype": "float32", "batch_tokens": 500, "sequence_tokens": 64}
    config = TextConfig.model_validate(text)
    run = on_this_chain(make_run(1, admission=TRUSTED, window_seconds=30, training_seconds=60), deployed)
    run = run.model_copy(
        update={
            "keeper": KEYS["keeper"].address,
            "sites": tuple(KEYS[name].address for name in ("site-1", "site-2", "liar")),
            "data": data_digest(text_corpus(config, tmp_path), config, base),
        }
    )
    home = tmp_path / "network"
    home.mkdir()
    with local_s3(tmp_path / "s3") as s3:
        made = SitesNetwork(home, deployed, s3, base, run, text)
        made.prepare()
        try:
            yield made
        finally:
            for process in made.started.values():
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


def test_keeper_sites_and_validator_through_kills(network: SitesNetwork) -> None:
    document = ("--document", str(network.home / "run.json"))
    terms = ("--stake", "40", "--keeper-stake", "200", "--delay", "3600", "--model", str(network.base))
    assert network.command("site", "open", *document, *terms, by="keeper")["run"] == NUMBER
    for name in ("site-1", "site-2", "liar"):
        network.command("site", "join", *document, "--run", str(NUMBER), by=name)
    everybody = ("keeper", "site-1", "site-2", "validator")
    network.start(*everybody)
    network.until("two recorded outer steps", lambda: network.steps() >= 2)

    network.lie()
    network.kill(*everybody)
    before = network.steps()
    network.start(*everybody)
    liar = KEYS["liar"].address
    network.until("the liar to be shown", lambda: network.runs.site_of(NUMBER, liar).ejected)
    network.until("two more outer steps", lambda: network.steps() >= before + 2)
    shown = network.home / "validator" / "runs" / str(NUMBER) / "contradictions" / liar
    network.until("the validator to find it too", shown.is_dir)
    network.stop()

    check_stakes(network)
    check_steps(network)


def check_stakes(network: SitesNetwork) -> None:
    """The liar lost half, and nobody else anything; one of those who watched was paid for it."""
    found = network.runs.sites_of(NUMBER, [KEYS[name].address for name in ("site-1", "site-2", "liar")])
    assert [one.stake for one in found] == [STAKE, STAKE, STAKE // 2]
    assert network.runs.run_of(NUMBER).stake == 200 * GRAINS
    token, locked = network.deployed.suite().token, {"keeper": 200 * GRAINS, "site-1": STAKE, "site-2": STAKE}
    gains = {
        name: token.balance_of(KEYS[name].address) + locked.get(name, 0) - 1000 * GRAINS
        for name in ("keeper", "site-1", "site-2", "validator")
    }
    assert sorted(gains.values()) == [0, 0, 0, STAKE // 20], gains


def check_steps(network: SitesNetwork) -> None:
    """Every recorded step follows, the sites found no other, and no site signed twice but the liar."""
    last = network.steps() - 1
    for step in (0, last):
        said = network.command("site", "verify", str(step), "--config", str(network.home / "site-1.json"))
        assert (said["run"], said["step"], said["follows"]) == (NUMBER, step, True)
    states = [network.runs.recorded(NUMBER, step) for step in range(last + 1)]
    assert len({one.record.state for one in states if one is not None}) == last + 1
    for name in ("site-1", "site-2"):
        status = json.loads((network.home / name / "status.json").read_bytes())
        assert status["chain"]["differs"] == {}, status
        assert status["chain"]["staked"]
        assert status["chain"]["compared"] > 0
    assert signed_twice(SiteExchange(Bucket(network.s3), network.run)) == 0, "the keeper took neither of the liar's"
