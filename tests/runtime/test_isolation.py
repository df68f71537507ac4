"""What an isolated worker sees and uses, and that it is started so."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from queue import Queue
from tempfile import TemporaryFile
from typing import Any
from unittest.mock import MagicMock

import pytest

from protocol.errors import ConfigError
from runtime import entry, keystore, signer
from runtime.isolation import INSIDE, _bring_images, absolute, enter, isolation_policy
from runtime.signer import SOCKET
from sandbox.bubblewrap import python_mounts
from sandbox.launch import Choice, IsolatedProcess, Launch
from sandbox.policy import MIB, Mode, Mount, NetworkAccess
from sandbox.pool import make
from trainer.config import TrainerConfig
from worker.config import WorkerConfig
from worker.main import signing_rules


@pytest.fixture(autouse=True)
def _own_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


PATHS = {"home": "home", "cache": "cache", "deployment": "deployment.json"}
PUBLIC = {"rpc": ["https://rpc.example"], "orchestrator": "https://pool.example"}


def config(**changes: Any) -> WorkerConfig:
    values = {
        "home": "/srv/worker",
        "cache": "/srv/weights",
        "deployment": "/etc/muster/deployment.json",
        "node": {"keystore": "/etc/muster/node.json", "password_file": "/etc/muster/node.password"},
        "pool": 1,
    }
    return WorkerConfig.model_validate(values | PUBLIC | changes)


def test_it_writes_to_its_home_and_cache_and_reads_no_key() -> None:
    assert isolation_policy(config(), Mode.PODMAN).mounts == (
        Mount.same(Path("/srv/worker"), writable=True),
        Mount.same(Path("/srv/weights"), writable=True),
        Mount.same(Path("/etc/muster/deployment.json")),
    )


def test_in_bubblewrap_it_also_reads_python_and_muster_but_no_home() -> None:
    mounts = isolation_policy(config(), Mode.BUBBLEWRAP).mounts[3:]
    assert mounts == python_mounts()
    assert not any(mount.writable for mount in mounts)
    targets = {mount.target for mount in mounts}
    assert any(Path(sys.prefix).is_relative_to(target) or target == Path("/usr") for target in targets)
    assert Path.home() not in targets
    assert Path("/") not in targets


@pytest.mark.parametrize(
    ("changes", "network"),
    [
        ({}, NetworkAccess.OUTBOUND),
        ({"rpc": ["http://127.0.0.1:8545"]}, NetworkAccess.HOST),
        ({"orchestrator": "http://localhost:80"}, NetworkAccess.HOST),
        ({"mirrors": ["http://[::1]/x"]}, NetworkAccess.HOST),
        ({"mirrors": ["http://10.0.0.1/x"]}, NetworkAccess.OUTBOUND),
        ({"allow_private_sources": True}, NetworkAccess.HOST),
    ],
)
def test_it_has_the_hosts_network_only_where_it_needs_this_machine(
    changes: dict[str, Any], network: NetworkAccess
) -> None:
    assert isolation_policy(config(**changes), Mode.PODMAN).network is network


def test_its_variables_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY"):
        monkeypatch.setenv(name, "of somebody else")
    monkeypatch.setenv("LD_PRELOAD", "/of/the/host.so")
    made = isolation_policy(config(), Mode.PODMAN).environment
    assert made[INSIDE] == "1"
    assert made[SOCKET] == "/srv/worker/signer.sock"
    assert made["XDG_CACHE_HOME"] == "/srv/worker/.cache"
    assert "LD_PRELOAD" not in made, "an image has its own libraries"
    assert "of somebody else" not in made.values()
    s3 = {"endpoint": "https://s3.example", "bucket": "pool", "credentials": "/etc/muster/s3.json"}
    owner = config().model_dump(exclude={"node"}) | {"key": {"keystore": "/etc/muster/owner.json"}, "s3": s3}
    for metrics, reports in (({"wandb": "runs"}, True), ({}, False)):
        trainer = TrainerConfig.model_validate(owner | {"metrics": metrics})
        assert ("WANDB_API_KEY" in isolation_policy(trainer, Mode.PODMAN).environment) is reports


def test_it_keeps_what_its_user_chose_of_gpus_network_and_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = ("CUDA_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME", "HTTPS_PROXY", "no_proxy", "MUSTER_MAX_GAS_PRICE")
    authority = tmp_path / "authority.pem"
    authority.write_text("")
    for name in (*kept, "CUDA_INJECTION64_PATH"):
        monkeypatch.setenv(name, f"{name}'s")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    policy = isolation_policy(config(engine={"device": "cuda"}), Mode.BUBBLEWRAP)
    assert {name: policy.environment[name] for name in kept} == {name: f"{name}'s" for name in kept}
    assert Mount.same(authority) in policy.mounts
    assert "CUDA_INJECTION64_PATH" not in policy.environment


def test_limits_and_gpu_follow_the_configuration() -> None:
    plain = isolation_policy(config(), Mode.PODMAN)
    assert (plain.memory, plain.gpu, plain.user) == (None, False, None)
    given = config(isolation_memory=2048 * MIB, engine={"device": "cuda:0"})
    assert isolation_policy(given, Mode.PODMAN).memory == 2048 * MIB
    assert isolation_policy(given, Mode.PODMAN).scratch == 512 * MIB
    assert isolation_policy(given, Mode.PODMAN).gpu


def test_a_path_that_no_mount_can_have_is_named() -> None:
    with pytest.raises(ConfigError, match=r"/srv/a:b.*choose another path"):
        isolation_policy(config(cache="/srv/a:b"), Mode.PODMAN)


def test_a_key_in_a_folder_that_the_worker_reads_is_refused() -> None:
    inside = {"keystore": "/srv/worker/keys/node.json"}
    with pytest.raises(ConfigError, match=r"/srv/worker/keys/node\.json is in /srv/worker.*move the file"):
        isolation_policy(config(node=inside), Mode.BUBBLEWRAP)
    assert isolation_policy(config(node=inside), Mode.PLAIN).folder == Path("/srv/worker"), "it hides nothing anyway"


def test_a_configuration_that_the_worker_could_rewrite_is_refused() -> None:
    """It could turn its own isolation off for the next start."""
    refused = r"worker\.json is in /srv/worker, which the isolated process can read"
    with pytest.raises(ConfigError, match=refused):
        isolation_policy(config(), Mode.BUBBLEWRAP, Path("/srv/worker/worker.json"))
    assert isolation_policy(config(), Mode.BUBBLEWRAP, Path("/srv/worker.json")).mounts


def test_images_are_copied_through_no_link_of_an_earlier_worker(tmp_path: Path) -> None:
    given = config(home=str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "home" / ".cache").symlink_to(tmp_path / "elsewhere")
    make("python")
    _bring_images(given)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_paths_start_where_the_worker_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = config(home="home", cache="cache", deployment="d.json", node={"keystore": "k.json", "password_file": "p"})
    made = absolute(given)
    paths = (made.home, made.cache, made.deployment, made.node.keystore, made.node.password_file)
    assert paths == tuple(tmp_path / name for name in ("home", "cache", "d.json", "k.json", "p"))
    assert absolute(config(node={"keystore": "k.json"})).node.password_file is None


def test_none_is_this_very_process_and_a_container_that_is_asked_for_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "worker.json"
    path.write_text(config(isolation="none").model_dump_json())
    enter(path, WorkerConfig, "worker", signing_rules)
    path.write_text(config(isolation="container").model_dump_json())
    with pytest.raises(ConfigError, match=r"podman: .*; docker: .*; install podman"):
        enter(path, WorkerConfig, "worker", signing_rules)


def on_disk(folder: Path, password: str = "three plain words") -> dict[str, Any]:
    """The paths of a worker's configuration whose key is in `folder`, with this word in its password file."""
    (folder / "node.password").write_text(f"{password}\n")
    (folder / "node.password").chmod(0o600)
    (folder / "deployment.json").write_text("{}")
    keystore.create(folder / "node.json", "three plain words", work_factor=keystore.LIGHT_SCRYPT_N)
    paths = {name: str(folder / path) for name, path in PATHS.items()}
    node = {"keystore": str(folder / "node.json"), "password_file": str(folder / "node.password")}
    return {**paths, "node": node}


def test_an_isolated_worker_ends_with_its_signer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without signatures it would work in vain."""
    ended = Queue[int]()
    monkeypatch.setattr("runtime.entry.os._exit", ended.put)
    monkeypatch.setattr(entry._Death, "follow", staticmethod(lambda message: None))
    monkeypatch.setattr(signer._Server, "serve_forever", lambda self: 1 / 0)
    monkeypatch.setattr("runtime.isolation.choose", lambda *_: Choice(Mode.BUBBLEWRAP))
    monkeypatch.setattr("runtime.isolation.launch.run", lambda *_: ended.get(timeout=20))
    monkeypatch.setattr("runtime.isolation.Deployment", MagicMock())
    monkeypatch.setattr(signer._Server, "shutdown", lambda self: None)
    path = tmp_path / "worker.json"
    path.write_text(config(**on_disk(tmp_path)).model_dump_json())
    with pytest.raises(SystemExit) as left:
        enter(path, WorkerConfig, "worker", signing_rules)
    assert left.value.code == entry.Exit.STALLED


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="there is no bwrap on the PATH: apt-get install bubblewrap")
def test_a_worker_in_bubblewrap_says_what_protects_it(tmp_path: Path) -> None:
    """The key is opened outside, before anything is started."""
    given = config(**on_disk(tmp_path, "three other words"), isolation="bubblewrap")
    path = tmp_path / "worker.json"
    path.write_text(given.model_dump_json())
    argv = [sys.executable, "-P", "-m", "worker.main", "--config", str(path)]
    env = {name: value for name, value in os.environ.items() if name != INSIDE}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=200, check=False)
    said = done.stderr.splitlines()
    assert done.returncode == 2, done.stderr
    assert any(line.endswith("isolation: bubblewrap") for line in said)
    assert any("isolation: protected: files outside its mounts" in line for line in said)
    assert said[-1].startswith(f"muster: wrong password for {tmp_path / 'node.json'}")
    assert inside_with_images(absolute(given)) == "True True"


_RUNS_A_PROGRAM = """
from sandbox.image import is_made
from sandbox.pool import SandboxPool
from sandbox.wasi import SandboxLimits, SandboxProgram
done = SandboxPool("python", 1).run(SandboxProgram("print(7)"), SandboxLimits())
print(is_made("python"), done.stdout == b"7\\n")
"""


def inside_with_images(given: WorkerConfig) -> str:
    """Whether an isolated process has the sandbox's images, and runs a program in one; this user has them."""
    make("python")
    _bring_images(given)
    policy, argv = isolation_policy(given, Mode.BUBBLEWRAP), (sys.executable, "-P", "-c", _RUNS_A_PROGRAM)
    with TemporaryFile() as said:
        with IsolatedProcess(Launch(Mode.BUBBLEWRAP, policy, argv, ""), subprocess.DEVNULL, said, None) as process:
            assert process.wait() == 0
        said.seek(0)
        return said.read().decode().strip()
