"""The configuration of a process from the profile."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.profile import find_profile, load_profile, profile_path, profile_text
from cli.run.process import UpProcess, profile_config, write_config
from cli.run.up import open_up_profile
from orchestrator.config import OrchestratorConfig
from protocol.encoding import load_document
from protocol.errors import ConfigError
from runtime.keystore import address_of, ensure_key
from tests.cli.muster import CLOSED, Muster, s3_settings
from tests.cli.pool_files import CONFIG, StubService
from tests.conftest import Deployed
from trainer.config import TrainerConfig
from validator.config import ValidatorConfig
from worker.config import WorkerConfig

BF16 = CONFIG.model_copy(update={"model": CONFIG.model.model_copy(update={"dtype": "bfloat16"})})


@pytest.mark.usefixtures("home")
def test_workers_and_validators_compute_in_the_pools_dtype(
    service: StubService,
    pool: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cli.run.process.fetch_pool_config", lambda url, digest: BF16)
    for role in ("operator", "validator"):
        open_up_profile(role, service.url, None)
    worker = load_document(profile_config("worker"), WorkerConfig)
    assert (worker.pool, worker.orchestrator, worker.engine.dtype) == (pool, service.url, "bfloat16")
    assert worker.node.keystore == profile_path("operator").parent / "keys" / "node.json"
    validator = load_document(profile_config("validator"), ValidatorConfig)
    assert (len(validator.voters), validator.engine.dtype) == (1, "bfloat16")
    assert validator.home != worker.home
    # An isolated worker can write to its home and cache: it must not reach its configuration, log or key there, nor
    # the weights that a validator judges with.
    profile = find_profile("operator")
    assert profile is not None
    log = UpProcess("worker", profile, profile_config("worker")).log_path
    for path in (profile_config("worker"), log, worker.node.keystore):
        assert not path.is_relative_to(worker.home)
        assert not path.is_relative_to(worker.cache)
    assert not validator.cache.is_relative_to(worker.cache)


@pytest.mark.usefixtures("home", "pool")
def test_what_the_profile_says_of_a_process_goes_before(service: StubService) -> None:
    open_up_profile("operator", service.url, None)
    path = profile_path("operator")
    path.write_text(path.read_text() + "poll_seconds = 5\n")
    assert load_document(profile_config("worker"), WorkerConfig).poll_seconds == 5
    path.write_text(path.read_text().replace('password_file = "keys/node.password"\n', ""))
    assert load_document(profile_config("worker"), WorkerConfig).node.password_file is None
    with pytest.raises(ConfigError, match="has no password file"):
        write_config(open_up_profile("operator", None, None), "worker", unattended=True)


def owner_profile(folder: Path, suite: Deployed, **changes: Any) -> Path:
    """An owner's profile, with the files that it names."""
    fields: dict[str, Any] = {
        "deployment": suite.folder / "deployment.json", "rpc": suite.chain.url, "pool": 1,
        "service": "https://pool.example", "home": folder / "data", "cache": folder / "cache",
        "pool_config": "pool.json", "s3": "s3.json",
    }  # fmt: skip
    path = profile_path("owner")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(profile_text("owner", **fields | changes) + "port = 8799\n")
    (path.parent / "pool.json").write_bytes(CONFIG.canonical())
    (path.parent / "s3.json").write_text(json.dumps(s3_settings(folder, CLOSED)))
    return path


def test_an_owner_runs_service_and_trainer_from_one_profile(home: Path, shared_suite: Deployed) -> None:
    profile = load_profile(owner_profile(home, shared_suite))
    ensure_key(profile.key.keystore, profile.key.password_file)
    served = load_document(profile_config("orchestrator"), OrchestratorConfig)
    assert (served.port, served.public_url) == (8799, "https://pool.example")
    assert served.owner == address_of(profile.key.keystore)
    assert served.key.keystore.name == "service.json"
    trainer = load_document(profile_config("trainer"), TrainerConfig)
    assert (trainer.key.keystore.name, trainer.s3.bucket, trainer.engine.dtype) == ("owner.json", "muster", "float32")
    assert trainer.home != served.home


def test_what_the_profile_lacks_is_named(home: Path, shared_suite: Deployed) -> None:
    owner_profile(home, shared_suite, s3=None)
    with pytest.raises(ConfigError, match="the profile names no `s3`"):
        profile_config("trainer")


def test_without_file_and_profile_it_says_what_to_do(tmp_path: Path) -> None:
    said = Muster(tmp_path).refused("pool", "train")
    assert "pass --config FILE, or: muster init owner" in said
