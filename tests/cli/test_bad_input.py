"""Bad input: every mistake gives one clear line that says what to do, an exit code other than 0, and loses nothing."""

import json
from pathlib import Path

import pytest
from filelock import FileLock

from cli.session import open_session
from tests.cli.muster import CLOSED, PASSED_ON, Key, Muster, make_key
from tests.cli.pool_files import write_pool_files
from tests.conftest import Deployed

# A wrong password, a missing key


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


# A chain that is not there, or another one


def test_another_chain_is_refused_before_a_password_is_asked(muster: Muster, key: Key, wrong_chain: str) -> None:
    muster.rpc = wrong_chain
    assert "serves chain 1, not 31337" in muster.refused("pool", "list")
    assert "serves chain 1, not 31337" in muster.refused("pool", "pause", "--pool", "1", "--keystore", key.path)
    assert "serves chain 1, not 31337" in muster.refused("deploy", "--network", "local", *key.options)
    done = muster.run("doctor")
    assert done.code == 1
    assert f"FAILED  rpc          {wrong_chain} serves chain 1, not 31337; name an RPC URL" in done.out


def test_a_fresh_chain_with_the_same_id_is_not_the_deployments(muster: Muster, tmp_path: Path) -> None:
    assert muster.deployment is not None
    document = json.loads((muster.deployment / "deployment.json").read_text())
    muster.deployment = tmp_path / "other.json"
    muster.deployment.write_text(json.dumps(document | {"genesis": "0x" + "ab" * 32}))
    assert "another chain with id 31337" in muster.refused("pool", "list")


def test_a_chain_or_service_that_does_not_answer_or_has_no_url_is_named(muster: Muster) -> None:
    muster.rpc = "localhost:8545"
    assert "is not an http(s) URL" in muster.refused("pool", "list")
    muster.rpc = CLOSED
    assert f"the chain does not answer at {CLOSED}" in muster.refused("pool", "list")
    assert f"the service {CLOSED}/v1/pool does not answer" in muster.refused("node", "up", "--pool", CLOSED)


# A corrupt cache, corrupt configurations


def test_a_damaged_cache_of_events_costs_time_only(muster: Muster) -> None:
    first = muster.ok("pool", "list", "--json").json
    (cache,) = muster.home.glob(".cache/muster/events/*.sqlite")
    cache.write_bytes(b"not a database at all" * 100)
    assert muster.ok("pool", "list", "--json").json["pools"] == first["pools"]


def test_beside_a_process_that_holds_the_events_a_command_reads_only_new_ones(
    home: Path, shared_suite: Deployed, caplog: pytest.LogCaptureFixture
) -> None:
    session = open_session(shared_suite.folder, shared_suite.chain.url)
    first = session.state()
    with FileLock(f"{session._cache()}.lock"), caplog.at_level("INFO"):
        again = session.state()
    assert "using a copy of the events that are known" in caplog.text
    assert "reading all events anew" not in caplog.text
    assert (again.pools, again.seats) == (first.pools, first.seats)


def test_a_damaged_deployment_file_is_named(muster: Muster, tmp_path: Path) -> None:
    assert muster.deployment is not None
    good = (muster.deployment / "deployment.json").read_text()
    broken = tmp_path / "deployment.json"
    muster.deployment = broken
    assert "deploy first, or name the right file" in muster.refused("pool", "list")
    broken.write_text(good[:300])
    assert f"{broken}: " in muster.refused("pool", "list")
    broken.write_text(good.replace('"chain_id": 31337', '"chain_id": "x"'))
    assert "`chain_id`" in muster.refused("pool", "list")


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


# Wrong usage
NAMED = "which the profile names that `muster init"


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("nod", "no such command 'nod'. Did you mean 'node'?; see `muster --help`"),
        ("node claim --pool 1", f"missing option '--node', {NAMED} operator` writes; see `muster node claim --help`"),
        ("validator status", f"missing option '--address', {NAMED} validator` writes; see `muster validator status"),
        ("verify node", "missing argument 'ADDRESS'; see `muster verify node --help`"),
        ("validator leave", "missing option '--seat'; see `muster validator leave --help`"),
        ("node claim --nod 1", "no such option: --nod (Possible options: --node); see `muster node claim --help`"),
        ("node claim --node", "option '--node' requires an argument; see `muster node claim --help`"),
        ("demo --steps many", "invalid value for '--steps': "),
        ("node up --config nothing", "invalid value for '--config': file 'nothing' does not exist; see "),
        ("keys show x", "got unexpected extra argument(s) (x); see `muster keys show --help`"),
        ("node status --node 0x12", "--node: '0x12' is not an address; "),
    ],
)
def test_wrong_usage_is_one_line(tmp_path: Path, order: str, said: str) -> None:
    done = Muster(tmp_path).run(*order.split())
    assert done.code == 2
    assert done.err.startswith(f"muster: {said}")
    assert len(done.err.splitlines()) == 1
    assert done.out == ""


def test_an_unknown_log_level_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_LOG", "loud")
    monkeypatch.setattr("tests.cli.muster.PASSED_ON", (*PASSED_ON, "MUSTER_LOG"))
    assert "MUSTER_LOG is LOUD; set it to one of DEBUG, " in Muster(tmp_path, installed=True).refused("pool", "list")
