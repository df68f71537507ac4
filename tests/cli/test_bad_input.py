"""Bad input: every mistake gives one clear line that names the mend, an exit code other than 0, and loses nothing."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from demo.pool import pool_config
from storage.weights.cache import WeightCache
from storage.weights.manifest import Manifest
from tests.cli.muster import PASSED_ON, Key, Muster, make_key
from tests.cli.world import write_pool_files
from tests.conftest import Deployed, free_port

ROOT = Path(__file__).parents[2]
CLOSED = "http://127.0.0.1:1"


@pytest.fixture
def muster(tmp_path: Path, shared_suite: Deployed) -> Muster:
    """With a good deployment and a good RPC."""
    return Muster(tmp_path, shared_suite.folder, shared_suite.chain.url)


@pytest.fixture
def key(tmp_path: Path) -> Key:
    return make_key(tmp_path, "key")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A folder for PATH with every prerequisite except Node.js."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("git", "npm", "cc"):
        found = shutil.which(tool)
        if found is None:
            pytest.skip(f"{tool} is not installed")
        (folder / tool).symlink_to(found)
    return folder


# ---- A missing prerequisite


def test_setup_names_a_missing_program(bare_path: Path) -> None:
    argv = [sys.executable, str(ROOT / "tools" / "setup.py")]
    done = subprocess.run(argv, env={"PATH": str(bare_path)}, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == "setup: `node` is not on the PATH; install Node.js 20 or newer"
    assert done.stdout == ""


def test_doctor_names_a_missing_program(tmp_path: Path, bare_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(bare_path))
    done = Muster(tmp_path).run("doctor", "--data", tmp_path)
    assert done.code == 1
    assert "FAILED  node         `node` is not on the PATH; install Node.js 20 or newer" in done.out.splitlines()
    assert "Traceback" not in done.err


# ---- A port in use


def test_a_service_names_its_taken_port(tmp_path: Path, taken: int) -> None:
    data = tmp_path / "chain"
    argv = [sys.executable, "-m", "demo.services.chain", "--data", str(data), "--port", str(taken)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert f"port {taken} for the chain is in use; stop what uses it" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_demo_names_its_taken_port_before_it_makes_anything(tmp_path: Path, taken: int) -> None:
    said = Muster(tmp_path).refused("demo", "--runs", tmp_path / "runs", "--http-port", taken)
    assert f"port {taken}" in said
    assert "in use" in said
    assert not list((tmp_path / "runs").glob("*")) or not any((tmp_path / "runs").glob("*/keys"))


def test_doctor_names_a_taken_port(tmp_path: Path, taken: int) -> None:
    done = Muster(tmp_path).run("doctor", "--data", tmp_path, "--port", taken, "--port", free_port())
    assert done.code == 1
    assert f"FAILED  ports        in use: {taken}; stop what uses them" in done.out


# ---- A wrong password, a missing key


def test_a_wrong_password_loses_nothing(muster: Muster, key: Key, tmp_path: Path) -> None:
    before = key.path.read_bytes()
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong\n")
    wrong.chmod(0o600)
    order = ("pool", "pause", "--pool", "1", "--keystore", key.path, "--password-file")
    assert "wrong password for" in muster.refused(*order, wrong)
    wrong.chmod(0o644)
    assert f"chmod 600 {wrong}" in muster.refused(*order, wrong)
    assert "cannot read the password file" in muster.refused(*order, tmp_path / "nothing")
    assert key.path.read_bytes() == before


def test_a_damaged_key_file_is_named(muster: Muster, key: Key, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_bytes(key.path.read_bytes()[:-40])
    said = muster.refused("keys", "balance", "--keystore", broken)
    assert f"{broken} is not a version 3 key file" in said


# ---- A chain that is not there, or another one


class WrongChain(BaseHTTPRequestHandler):
    """An RPC of chain 1."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        one = isinstance(asked, dict)
        answers = [{"jsonrpc": "2.0", "id": a["id"], "result": "0x1"} for a in ([asked] if one else asked)]
        body = json.dumps(answers[0] if one else answers).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def wrong_chain() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), WrongChain)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_another_chain_is_refused_before_a_password_is_asked(muster: Muster, key: Key, wrong_chain: str) -> None:
    muster.rpc = wrong_chain
    assert "serves chain 1, not 31337" in muster.refused("status")
    assert "serves chain 1, not 31337" in muster.refused("pool", "pause", "--pool", "1", "--keystore", key.path)
    assert "serves chain 1, not 31337" in muster.refused("deploy", "--network", "local", *key.options)
    done = muster.run("doctor", "--data", muster.home)
    assert done.code == 1
    assert f"FAILED  rpc          {wrong_chain} is chain 1, expected 31337; name the RPC of the right chain" in done.out


def test_a_fresh_chain_with_the_same_id_is_not_the_deployments(muster: Muster, tmp_path: Path) -> None:
    assert muster.deployment is not None
    document = json.loads((muster.deployment / "deployment.json").read_text())
    muster.deployment = tmp_path / "other.json"
    muster.deployment.write_text(json.dumps(document | {"genesis": "0x" + "ab" * 32}))
    assert "another chain with id 31337" in muster.refused("status")


def test_what_is_no_rpc_url_is_refused(muster: Muster) -> None:
    muster.rpc = "localhost:8545"
    assert "is not an http(s) URL" in muster.refused("status")


def test_an_unreachable_orchestrator_is_named(tmp_path: Path) -> None:
    said = Muster(tmp_path).refused("status", "--orchestrator", CLOSED)
    assert f"the orchestrator {CLOSED}/v1/status does not answer" in said


# ---- Corrupt caches


def cached_weights(folder: Path) -> Path:
    """A cache with one complete version; returns its only file."""
    data = os.urandom(5000)
    digest = hashlib.sha256(data).hexdigest()
    part = {"name": "model.safetensors", "size": 5000, "sha256": digest, "shards": [{"sha256": digest, "size": 5000}]}
    fields = {"chain_id": 1, "pools": "0x" + "11" * 20, "pool": 1, "step": 0, "parent": "", "dtype": "float32"}
    manifest = Manifest.model_validate({**fields, "files": [part]})
    draft = folder / ".draft-x"
    draft.mkdir(parents=True)
    (draft / "model.safetensors").write_bytes(data)
    return WeightCache(folder).install(manifest, draft) / "model.safetensors"


def test_doctor_finds_a_damaged_cache_of_weights(tmp_path: Path) -> None:
    file = cached_weights(tmp_path / "weights")
    order = ("doctor", "--data", tmp_path, "--cache", tmp_path / "weights", "--json")
    found = {f["check"]: f for f in Muster(tmp_path).run(*order).json}
    assert found["cache"]["state"] == "ok"
    data = bytearray(file.read_bytes())
    data[2500] ^= 1
    file.write_bytes(data)
    done = Muster(tmp_path).run(*order)
    found = {f["check"]: f for f in done.json}
    assert done.code == 1
    assert found["cache"]["state"] == "failed"
    assert file.parent.name[:12] in found["cache"]["detail"]
    assert "fetched again" in found["cache"]["mend"]
    assert file.read_bytes() == data


def test_a_damaged_cache_of_events_costs_time_only(muster: Muster) -> None:
    first = muster.ok("status", "--json").json
    (cache,) = muster.home.glob(".cache/muster/events/*.sqlite")
    cache.write_bytes(b"not a database at all" * 100)
    assert muster.ok("status", "--json").json["nodes"] == first["nodes"]


# ---- Corrupt configurations


def test_a_damaged_deployment_file_is_named(muster: Muster, tmp_path: Path) -> None:
    assert muster.deployment is not None
    good = (muster.deployment / "deployment.json").read_text()
    broken = tmp_path / "deployment.json"
    muster.deployment = broken
    assert "deploy first, or name the right file" in muster.refused("status")
    broken.write_text(good[:300])
    assert f"{broken}: " in muster.refused("status")
    broken.write_text(good.replace('"chain_id": 31337', '"chain_id": "x"'))
    assert "`chain_id`" in muster.refused("status")


def test_a_pool_is_not_created_from_bad_files(muster: Muster, key: Key, tmp_path: Path) -> None:
    config, terms = write_pool_files(tmp_path)
    order = ("pool", "create", *key.options, "--config", config, "--terms", terms, "--yes", "--budget")
    assert "--budget '1e3' is not a number of tokens" in muster.refused(*order, "1e3")
    terms.write_text(terms.read_text().replace("committee = 3", "committee = 300"))
    assert "`committee`" in muster.refused(*order, "1")
    terms.write_text(terms.read_text().replace("committee = 300", "committee = 4"))
    assert "BadTerms" in muster.refused(*order, "1")
    config.write_text('{"name": "x"}')
    assert "`model`" in muster.refused(*order, "1")
    config.write_text("{")
    assert "is not JSON" in muster.refused(*order, "1")


def test_an_address_with_a_typing_error_is_refused(muster: Muster, key: Key) -> None:
    digits = key.address[2:]
    typo = "0x" + (digits.swapcase() if not digits.isdigit() else digits)
    assert "wrong checksum" in muster.refused("node", "status", "--node", typo)
    assert "is not an address" in muster.refused("node", "status", "--node", "0x12")


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_sent(muster: Muster, tmp_path: Path) -> None:
    rich = make_key(tmp_path, "deployer")
    bare = Muster(tmp_path, rpc=muster.rpc)
    (tmp_path / "file").write_text("")
    order = ("deploy", "--network", "local", *rich.options, "--yes", "--out", tmp_path / "file" / "folder")
    assert "choose another --out" in bare.refused(*order)


# ---- The processes


def s3_settings(folder: Path, endpoint: str) -> dict[str, str]:
    credentials = folder / "credentials.json"
    credentials.write_text('{"access_key": "a", "secret_key": "b"}')
    credentials.chmod(0o600)
    return {"endpoint": endpoint, "bucket": "muster", "credentials": str(credentials)}


def process_configs(folder: Path, suite: Deployed, key: Key) -> dict[str, dict[str, Any]]:
    """A configuration per role that is right except that there is no pool 999 and no S3."""
    config = folder / "pool.json"
    config.write_bytes(pool_config(1, 1).canonical())
    reference = {"keystore": str(key.path), "password_file": str(key.password_file)}
    common: dict[str, Any] = {
        "deployment": str(suite.folder / "deployment.json"),
        "rpc": [suite.chain.url],
        "pool": 999,
    }
    stranger = common | {"orchestrator": CLOSED, "cache": str(folder / "cache")}
    owner = {"key": reference, "s3": s3_settings(folder, CLOSED)}
    served = common | owner | {"pool_config": str(config), "port": free_port()}
    return {
        "worker": stranger | {"home": str(folder / "worker"), "node": reference},
        "validator": stranger | {"home": str(folder / "validator"), "voters": [reference]},
        "orchestrator": served | {"home": str(folder / "orchestrator")},
        "trainer": stranger | owner | {"home": str(folder / "trainer"), "base": str(folder / "base")},
    }


@pytest.fixture
def configs(tmp_path: Path, shared_suite: Deployed, key: Key) -> dict[str, dict[str, Any]]:
    return process_configs(tmp_path, shared_suite, key)


def run_roles(muster: Muster, configs: dict[str, Any]) -> dict[str, str]:
    """Start roles with these configurations, two at a time; what each said when it refused."""

    def one(role: str) -> str:
        path = muster.home / f"{role}-config.json"
        path.write_text(json.dumps(configs[role]) if isinstance(configs[role], dict) else configs[role])
        return muster.refused(role, "run", "--config", path, timeout=150.0)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(configs, pool.map(one, configs), strict=True))


def test_roles_name_what_is_wrong_with_their_configuration(muster: Muster, configs: dict[str, dict[str, Any]]) -> None:
    del configs["validator"]["voters"]
    configs["orchestrator"]["port"] = 70000
    configs["trainer"]["stepz"] = 3
    said = run_roles(muster, configs | {"worker": '{"home": '})
    assert "is not JSON" in said["worker"]
    assert "`voters`" in said["validator"]
    assert "`port`" in said["orchestrator"]
    assert "`stepz`" in said["trainer"]


def test_a_home_that_cannot_be_made_is_named(muster: Muster, configs: dict[str, dict[str, Any]]) -> None:
    said = run_roles(muster, {role: config | {"home": "/proc/nowhere"} for role, config in configs.items()})
    for role, words in said.items():
        assert "cannot make /proc/nowhere" in words, role
        assert words.endswith("check `home`"), role
    assert "cannot use /proc/nowhere" in muster.refused("demo", "--runs", "/proc/nowhere")


def test_roles_refuse_a_wrong_password(muster: Muster, configs: dict[str, dict[str, Any]], key: Key) -> None:
    before = key.path.read_bytes()
    key.password_file.write_text("wrong\n")
    chosen = {role: configs[role] for role in ("worker", "orchestrator", "trainer")}
    for role, said in run_roles(muster, chosen).items():
        assert "wrong password for" in said, role
    assert key.path.read_bytes() == before


def test_roles_refuse_another_chain(muster: Muster, configs: dict[str, dict[str, Any]], wrong_chain: str) -> None:
    chosen = {role: configs[role] | {"rpc": [wrong_chain]} for role in ("worker", "orchestrator")}
    for role, said in run_roles(muster, chosen).items():
        assert "serves chain 1, not 31337" in said, role


def test_commands_and_roles_name_an_unreachable_chain(muster: Muster, configs: dict[str, dict[str, Any]]) -> None:
    chosen = {role: configs[role] | {"rpc": [CLOSED]} for role in ("validator", "orchestrator")}
    for role, said in run_roles(muster, chosen).items():
        assert f"the chain does not answer at {CLOSED}" in said, role
    muster.rpc = CLOSED
    assert f"the chain does not answer at {CLOSED}" in muster.refused("status")


def test_the_orchestrator_names_a_taken_port_and_a_missing_pool(
    muster: Muster, configs: dict[str, dict[str, Any]], taken: int
) -> None:
    said = run_roles(muster, {"orchestrator": configs["orchestrator"] | {"port": taken}})
    assert f"127.0.0.1:{taken}" in said["orchestrator"]
    said = run_roles(muster, {"orchestrator": configs["orchestrator"]})
    assert "there is no pool 999 on this chain; create it: muster pool create" in said["orchestrator"]


def test_doctor_names_an_unreachable_bucket(tmp_path: Path) -> None:
    settings = tmp_path / "s3.json"
    settings.write_text(json.dumps(s3_settings(tmp_path, CLOSED)))
    done = Muster(tmp_path).run("doctor", "--data", tmp_path, "--s3", settings)
    assert done.code == 1
    assert f"FAILED  s3           S3 at {CLOSED} does not answer" in done.out
    assert "Traceback" not in done.err


# ---- Wrong usage


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("nod", "no such command 'nod'. Did you mean 'node'?; see `muster --help`"),
        ("node stake --amount 1", "missing option '--node'; see `muster node stake --help`"),
        ("node stake --nod 1", "no such option: --nod (Possible options: --node); see `muster node stake --help`"),
        ("node stake --node", "option '--node' requires an argument; see `muster node stake --help`"),
        ("demo --steps many", "invalid value for '--steps': "),
        ("worker run --config nothing", "invalid value for '--config': file 'nothing' does not exist; see "),
        ("keys balance x", "got unexpected extra argument(s) (x); see `muster keys balance --help`"),
        ("node status --node 0x12", "--node: '0x12' is not an address; "),
    ],
)
def test_wrong_usage_is_one_line(tmp_path: Path, order: str, said: str) -> None:
    done = Muster(tmp_path).run(*order.split())
    assert done.code == 2
    assert done.err.startswith(f"muster: {said}")
    assert len(done.err.splitlines()) == 1
    assert done.out == ""


def test_a_noun_alone_shows_its_help(tmp_path: Path) -> None:
    done = Muster(tmp_path).run("node")
    assert done.code == 2
    assert "withdraw" in done.out
    assert done.err == ""


def test_an_unknown_log_level_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_LOG", "loud")
    monkeypatch.setattr("tests.cli.muster.PASSED_ON", (*PASSED_ON, "MUSTER_LOG"))
    assert "MUSTER_LOG is LOUD; set it to one of DEBUG, " in Muster(tmp_path).refused("status")
