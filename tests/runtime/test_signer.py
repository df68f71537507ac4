"""What an isolated role may have signed: by the signer's real socket, against a real chain and a real isolation;
and what somebody who has taken over its engine gets from the process that holds the key."""

import json
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import Any, cast

import pytest

import trainer.main
import validator.main
from chain.deployment import Deployment
from chain.transactions import Call
from protocol import signing
from protocol.accounts import Account, LocalAccount
from protocol.api.work import UNSIGNED, Evaluation, SubmissionRequest, announce, sign_evaluation
from protocol.errors import UnreachableError
from protocol.http import signing as requests
from protocol.http.signing import AuthScope, parse_headers, sign_request, verify_request
from protocol.identity import PoolId
from runtime import keystore, signer
from runtime.isolation import isolation_policy
from runtime.signer import SOCKET, RemoteAccount, SignatureRefused, SignerServer, accounts_of, derived_secret
from sandbox.launch import IsolatedProcess, Launch
from sandbox.policy import Mode, Mount
from tests.chain.game import Game, begin, work
from tests.conftest import Deployed
from tests.runtime.test_isolation import PATHS, on_disk
from trainer.config import CANARY_SECRET, TrainerConfig
from validator.config import ValidatorConfig
from worker.config import WorkerConfig
from worker.main import signing_rules

ROOT = Path(__file__).resolve().parents[2]
SERVICE, PUBLIC = "https://pool.example/one", "https://peer.example"
POOLS, COURT = "0x" + "11" * 20, "0x" + "22" * 20


class Suite:
    """A deployment's addresses, without a chain."""

    chain_id = 31337

    def address(self, contract: str) -> str:
        return signing.checked_address({"Pools": POOLS, "Court": COURT}[contract])


def common(folder: Path, pool: int) -> dict[str, Any]:
    paths = {name: str(folder / path) for name, path in PATHS.items()}
    return paths | {"pool": pool, "rpc": ["https://rpc.example"], "orchestrator": SERVICE}


def configured(folder: Path, pool: int = 1) -> WorkerConfig:
    node = {"keystore": str(folder / "node.json"), "password_file": str(folder / "node.password")}
    return WorkerConfig.model_validate({**common(folder, pool), "node": node, "serve_weights": {"public_url": PUBLIC}})


def remote(made: Any, account: LocalAccount) -> LocalAccount:
    return cast(LocalAccount, RemoteAccount(str(made.server.path), str(account.address)))


class Signing:
    """A signer of a node's key for pool 1, and the account that stands for it elsewhere."""

    def __init__(self, account: LocalAccount, config: WorkerConfig, deployment: Any, **limits: int) -> None:
        config.home.mkdir()
        rules = replace(signing_rules(config, deployment, []), **cast(Any, limits))
        self.server, self.key = SignerServer(config.home, [account], rules), account
        self.remote = remote(self, account)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Signing]:
    made = Signing(Account.create(), configured(tmp_path), Suite())
    with made.server:
        yield made


SCOPE = AuthScope.of(SERVICE, Suite.chain_id, POOLS)


@pytest.mark.parametrize("path", ["/one/v1/leases", "/one/v1/heartbeats", "/one/v1/uploads?x=1"])
def test_requests_to_the_pools_service_are_signed(made: Signing, path: str) -> None:
    now = time.time()
    headers = sign_request(made.remote, SCOPE, "POST", path, b"{}", now)
    given = parse_headers((name.lower(), value) for name, value in headers.items())
    assert verify_request(SCOPE, "POST", path, b"{}", given, now) == made.key.address


@pytest.mark.parametrize(
    ("scope", "path", "late"),
    [
        (SCOPE, "/one/v1/steps", 0),
        (SCOPE, "/v1/leases", 0),
        (SCOPE, "/one/v1/leases/../steps", 0),
        (SCOPE, "/one/v1/leases", 3600),
        (AuthScope.of("https://other.example", Suite.chain_id, POOLS), "/v1/leases", 0),
        (AuthScope.of(SERVICE, 1, POOLS), "/one/v1/leases", 0),
        (AuthScope.of(SERVICE, Suite.chain_id, COURT), "/one/v1/leases", 0),
    ],
)
def test_no_other_request_is(made: Signing, scope: AuthScope, path: str, late: float) -> None:
    with pytest.raises(SignatureRefused):
        sign_request(made.remote, scope, "POST", path, b"{}", time.time() + late)


def test_it_announces_its_own_weights_only(made: Signing) -> None:
    pool, now = PoolId(Suite.chain_id, signing.checked_address(POOLS), 1), int(time.time())
    announce(made.remote, pool, PUBLIC, now + 60, None).check(pool, now)
    with pytest.raises(SignatureRefused):
        announce(made.remote, pool, "https://elsewhere.example", now + 60, None)
    with pytest.raises(SignatureRefused):
        announce(made.remote, PoolId(pool.chain_id, pool.pools, 2), PUBLIC, now + 60, None)


def test_it_signs_submissions_of_its_own_node_and_pool_only(made: Signing) -> None:
    pool = PoolId(Suite.chain_id, signing.checked_address(POOLS), 1)
    file = SubmissionRequest(
        step=0, counter=0, units=1, rows=1, root="00" * 32, sha256="11" * 32, size=1, signature=UNSIGNED
    )
    file.signed(made.remote, pool).check(pool, str(made.key.address))
    with pytest.raises(SignatureRefused):
        file.signed(made.remote, PoolId(pool.chain_id, pool.pools, 2))
    with pytest.raises(SignatureRefused):
        signing.sign(made.remote, file.digest(pool, signing.checked_address(COURT)))


def test_neither_digests_nor_other_messages_are_signed(made: Signing) -> None:
    with pytest.raises(SignatureRefused):
        signing.sign(made.remote, secrets.token_bytes(32))
    consent = signing.Domain("muster-stakes", "1", Suite.chain_id, signing.checked_address(POOLS))
    with pytest.raises(SignatureRefused):
        signing.sign(made.remote, signing.digest(consent, "Consent(address operator,uint256 expiry)", POOLS, 9))


def transaction(**changes: Any) -> dict[str, Any]:
    fields = {"type": 2, "chainId": Suite.chain_id, "nonce": 0, "value": 0, "data": b"", "gas": 100_000}
    return fields | {"maxFeePerGas": 10**9, "maxPriorityFeePerGas": 1} | changes


@pytest.mark.parametrize(
    "changes",
    [
        {"to": POOLS}, {"to": POOLS, "data": b"\x01\x02\x03\x04" + bytes(64)}, {}, {"value": 1}, {"chainId": 1},
        {"gas": 10**9}, {"maxFeePerGas": 10**18}, {"accessList": []}, {"nonce": "x"}, {"gas": True, "data": "0x"},
        {"nonce": 1 << 64}, {"data": 0}, {"value": False}, {"type": 4, "authorizationList": []},
    ],
)  # fmt: skip
def test_no_transaction_of_another_kind_is_signed(made: Signing, changes: dict[str, Any]) -> None:
    with pytest.raises(SignatureRefused):
        made.remote.sign_transaction(transaction(**changes))


def test_a_gap_of_nonces_can_be_filled(made: Signing) -> None:
    signed = made.remote.sign_transaction(transaction(to=made.key.address))
    assert Account.recover_transaction(signed.raw_transaction) == made.key.address


# Somebody who has taken over the engine speaks to the socket


def connected(made: Signing) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(60)
    connection.connect(str(made.server.path))
    return connection


def addresses(server: SignerServer) -> list[str]:
    """Those that an isolated process would be told."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SOCKET, str(server.path))
        return [str(account.address) for account in accounts_of(cast(WorkerConfig, None))]


def said(made: Signing, sent: bytes) -> dict[str, Any]:
    with connected(made) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        answer: dict[str, Any] = json.loads(connection.makefile("rb").readline())
        return answer


MALFORMED: dict[str, bytes] = {
    "nothing": b"",
    "an empty line": b"\n",
    "a list": b"[]\n",
    "half a message": b'{"domain": [1], "struct": "", "values": []}\n',
    "no JSON": b"x" * 100,
    "deeper than any parser should go": b"[" * 200_000 + b"\n",
    "a number of a hundred thousand digits": b'{"address": ' + b"9" * 100_000 + b"}\n",
    "more than a frame": b'{"address": true, "x": "' + b"y" * (2 << 20) + b'"}\n',
    "bytes that are a length": b'{"transaction": {"data": 100000000000}}\n',
}


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED)
def test_garbage_is_answered_and_ends_nothing(made: Signing, sent: bytes) -> None:
    try:
        assert "refused" in said(made, sent)
    except (BrokenPipeError, ConnectionResetError):
        assert len(sent) > 1 << 20, "only a frame that is too long is cut off"
    assert addresses(made.server) == [made.key.address]


def test_signatures_of_another_version_or_for_ever_are_refused(made: Signing) -> None:
    scope, now = signing.checked_address(POOLS), int(time.time())
    body = ("POST", "/one/v1/leases", bytes(32), SERVICE, now, bytes(32))
    for version, refused in (("1", False), ("2", True)):
        domain = signing.Domain(requests.DOMAIN, version, Suite.chain_id, scope)
        digest = signing.digest(domain, requests.STRUCT, *body)
        with pytest.raises(SignatureRefused) if refused else nullcontext():
            signing.sign(made.remote, digest)
    with pytest.raises(SignatureRefused):
        announce(made.remote, PoolId(Suite.chain_id, scope, 1), PUBLIC, now + 86_400, None)


def test_whoever_sends_a_byte_at_a_time_is_cut_off(made: Signing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signer, "_SECONDS", 0.5)
    with connected(made) as connection:
        began = time.monotonic()
        with suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() < began + 30:
                connection.sendall(b"[")
                time.sleep(0.05)
        assert time.monotonic() - began < 20


def test_connections_that_say_nothing_are_few(made: Signing) -> None:
    before = threading.active_count()
    with ExitStack() as stack:
        for _ in range(60):  # every one that the queue takes
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.setblocking(False)
            with suppress(BlockingIOError):
                connection.connect(str(made.server.path))
        time.sleep(0.5)
        assert threading.active_count() <= before + signer._CONNECTIONS
    for _ in range(100):
        with suppress(UnreachableError):
            assert addresses(made.server) == [made.key.address]
            return
        time.sleep(0.1)
    raise AssertionError("nobody is served once they are gone")


def test_refusals_fill_no_log_and_write_no_escapes(
    made: Signing, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    name = "\x1b]0;owned\x07" + "x" * 5000
    domain = [name, "1", Suite.chain_id, signing.checked_address(POOLS)]
    line = (
        json.dumps({"as": made.key.address, "domain": domain, "struct": "A(uint256 b)", "values": [1]}).encode() + b"\n"
    )
    with caplog.at_level("WARNING"):
        for _ in range(60):
            assert said(made, line)["refused"].startswith("a message A of ?]0;owned?xx")
    lines = [record.getMessage() for record in caplog.records]
    assert 0 < len(lines) <= signer._LINES_A_MINUTE
    assert all(line.isprintable() and len(line) < 300 for line in lines)
    for _ in range(20):  # gone before the answer
        with connected(made) as connection:
            connection.sendall(b'{"accounts": true}\n')
    time.sleep(0.3)
    assert "Traceback" not in capfd.readouterr().err


def test_what_an_earlier_engine_left_at_the_sockets_place_stops_nothing(tmp_path: Path) -> None:
    config, elsewhere = configured(tmp_path), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("kept")
    for leave in (Path.mkdir, lambda path: path.symlink_to(elsewhere)):
        config.home.mkdir(exist_ok=True)
        leave(config.home / "signer.sock")
        rules = signing_rules(config, cast(Deployment, Suite()), [])
        with SignerServer(config.home, [Account.create()], rules) as server:
            assert addresses(server)
    assert (elsewhere / "file").read_text() == "kept"


def test_questions_and_transactions_are_limited_apart(tmp_path: Path) -> None:
    made = Signing(Account.create(), configured(tmp_path), Suite(), requests=10, transactions=4)
    with made.server:
        for nonce in range(2):
            made.remote.sign_transaction(transaction(to=made.key.address, nonce=nonce))
        with pytest.raises(SignatureRefused, match="more than 4 a minute"):
            made.remote.sign_transaction(transaction(to=made.key.address, nonce=2))
        for _ in range(2):
            sign_request(made.remote, SCOPE, "POST", "/one/v1/leases", b"{}", time.time())
        with pytest.raises(SignatureRefused, match="more than 10 a minute"):
            sign_request(made.remote, SCOPE, "POST", "/one/v1/leases", b"{}", time.time())


def test_no_minute_brings_more_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the first one, either: a bucket of a whole minute, full at the start, lets twice as many through."""
    now, taken = 0.0, list[float]()
    made = Signing(Account.create(), configured(tmp_path), Suite(), requests=10**6, transactions=30)
    monkeypatch.setattr(signer, "time", SimpleNamespace(monotonic=lambda: now))
    line = {"as": made.key.address, "transaction": transaction(to=made.key.address, data={"hex": ""})}
    with made.server:
        for step in range(1800):  # three minutes
            now = step / 10
            taken += [now] if "raw" in made.server.answer(json.dumps(line).encode()) else []
    assert 28 <= max(sum(start <= at < start + 60 for at in taken) for start in taken) <= 30
    assert len(taken) >= 55


@pytest.fixture
def game(deployed: Deployed, tmp_path: Path) -> Game:
    return begin(deployed, tmp_path)


def test_on_chain_it_submits_its_own_files_and_moves_no_money(game: Game, tmp_path: Path) -> None:
    operator, node = game.node()
    step = game.publish()
    made = Signing(node, configured(tmp_path, game.pool), game.deployed.deployment)
    with made.server:
        first = game.submit(made.remote, step, work("first"))
        now = game.suite.client.now()
        item = work("second")
        game.submit(made.remote, step, item, game.receipt(str(node.address), item.sha256, now))
        suite, other = game.deployed.suite(made.remote), game.deployed.chain.account()
        mine, foreign = (item.signed(key, game.pool_id, step, 2) for key in (node, other))
        for call in (
            suite.pools.claim(first),
            suite.pools.submit_lane(game.pool + 1, [mine]),
            suite.pools.submit_lane(game.pool, [mine, foreign]),
            suite.pools.submit_lane(game.pool, [foreign]),
            suite.pools.leave_pool(game.pool, str(node.address)),
            suite.token.transfer(str(operator.address), 0),
        ):
            with pytest.raises(SignatureRefused):
                made.remote.sign_transaction(as_transaction(call))
    assert [file.node for file in game.state.submissions_of(game.pool)] == [node.address] * 2


def as_transaction(call: Call) -> dict[str, Any]:
    return transaction(to=call.to, data=call.data)


# Roles one by one


def worker_config(folder: Path, key: dict[str, Any], pool: int) -> WorkerConfig:
    return WorkerConfig.model_validate({**common(folder, pool), "node": key})


def validator_config(folder: Path, key: dict[str, Any], pool: int) -> ValidatorConfig:
    return ValidatorConfig.model_validate({**common(folder, pool), "voters": [key]})


def trainer_config(folder: Path, key: dict[str, Any], pool: int) -> TrainerConfig:
    (folder / "s3.json").write_text("{}")
    s3 = {"endpoint": "https://s3.example", "bucket": "pool", "credentials": str(folder / "s3.json")}
    return TrainerConfig.model_validate({**common(folder, pool), "key": key, "s3": s3})


ROLES: dict[str, tuple[Any, Any]] = {
    "worker": (worker_config, signing_rules),
    "validator": (validator_config, validator.main.signing_rules),
    "trainer": (trainer_config, trainer.main.signing_rules),
}


def signing_as(role: str, folder: Path, accounts: Sequence[LocalAccount], deployment: Any, pool: int = 1) -> Any:
    """A signer of a role's keys, and its configuration."""
    make, rules = ROLES[role]
    config = make(folder, {"keystore": str(folder / "node.json"), "password_file": str(folder / "node.password")}, pool)
    for path in (config.home, config.cache):
        path.mkdir()
    named = [str(account.address) for account in accounts]
    return SimpleNamespace(server=SignerServer(config.home, accounts, rules(config, deployment, named)), config=config)


def test_a_validators_keys_vote_and_keep_and_do_nothing_else(deployed: Deployed, tmp_path: Path) -> None:
    voters = [Account.create(), Account.create()]
    made = signing_as("validator", tmp_path, voters, deployed.deployment)
    suite, place = deployed.suite(deployed.chain.account()), (1, 0, 0)
    scope = AuthScope.of(SERVICE, deployed.deployment.chain_id, deployed.deployment.address("Pools"))
    with made.server:
        for account in (remote(made, voter) for voter in voters):
            for call in (
                suite.court.commit(place, 0, bytes(32)),
                suite.court.reveal(place, 0, 1, bytes(32), bytes(32)),
                suite.court.close_committee(*place),
                suite.juries.commit((1,), 0, bytes(32)),
                suite.node_challenges.conclude(1),
                suite.pools.review_seats(1),
            ):
                signed = account.sign_transaction(as_transaction(call))
                assert Account.recover_transaction(signed.raw_transaction) == account.address
            assert sign_request(account, scope, "POST", "/one/v1/heartbeats", b"{}", time.time())
            for call in (
                suite.seats.leave_seat(0),
                suite.seats.withdraw_seat(0),
                suite.seats.set_voter(0, str(voters[1].address)),
                suite.token.transfer(str(voters[1].address), 1),
                suite.token.approve(deployed.deployment.address("Pools"), 1),
                suite.pools.close_pool(1),
            ):
                with pytest.raises(SignatureRefused):
                    account.sign_transaction(as_transaction(call))
            for path in ("/one/v1/leases", "/one/v1/submissions", "/one/v1/steps"):
                with pytest.raises(SignatureRefused):
                    sign_request(account, scope, "POST", path, b"{}", time.time())


def test_a_trainers_key_publishes_its_pools_steps_and_moves_no_budget(deployed: Deployed, tmp_path: Path) -> None:
    owner, decoy = Account.create(), Account.create()
    made = signing_as("trainer", tmp_path, [owner, decoy], deployed.deployment, pool=3)
    suite, pools = deployed.suite(deployed.chain.account()), deployed.deployment.address("Pools")
    canaries, pool = deployed.deployment.address("Canaries"), PoolId(deployed.deployment.chain_id, pools, 3)
    evaluation = Evaluation(step=1, manifest="00" * 32, config_hash="00" * 32, time=1, results=[])
    consent = signing.Domain("muster-canaries", "1", pool.chain_id, canaries)
    digest = signing.digest(consent, "DecoyConsent(bytes32 leaf)", bytes(32))
    with made.server:
        as_owner, as_decoy = remote(made, owner), remote(made, decoy)
        for call in (suite.pools.publish_step(3, 0, bytes(32), bytes(32)), suite.token.approve(canaries, 5)):
            assert as_owner.sign_transaction(as_transaction(call))
            with pytest.raises(SignatureRefused):
                as_decoy.sign_transaction(as_transaction(call))
        sign_evaluation(as_owner, pool, evaluation).check(pool, str(owner.address))
        with pytest.raises(SignatureRefused):
            sign_evaluation(as_owner, replace(pool, pool=4), evaluation)
        assert signing.recover(digest, signing.sign(as_decoy, digest)) == decoy.address
        with pytest.raises(SignatureRefused):
            signing.sign(as_owner, digest)
        for call in (
            suite.pools.publish_step(4, 0, bytes(32), bytes(32)),
            suite.pools.fund(3, 1),
            suite.court.set_service(3, str(decoy.address)),
            suite.token.transfer(str(decoy.address), 1),
            suite.token.approve(pools, 1),
            suite.stakes.withdraw(str(decoy.address), 1),
        ):
            for account in (as_owner, as_decoy):
                with pytest.raises(SignatureRefused):
                    account.sign_transaction(as_transaction(call))
        assert derived_secret(as_owner, CANARY_SECRET, 3) == derived_secret(owner, CANARY_SECRET, 3)
        for service in (SERVICE, "https://elsewhere.example/one"):
            scope = AuthScope.of(service, pool.chain_id, pools)
            with nullcontext() if service == SERVICE else pytest.raises(SignatureRefused):
                sign_request(as_owner, scope, "POST", "/one/v1/steps", b"{}", time.time())
        for tag, number in ((CANARY_SECRET, 4), ("muster/other/1", 3)):
            with pytest.raises(SignatureRefused):
                derived_secret(as_owner, tag, number)


_INSIDE = """
import json, os, pathlib, sys
sys.path.insert(0, sys.argv[3])
from runtime.signer import SignatureRefused, accounts_of
folder, secret = pathlib.Path(sys.argv[1]), sys.argv[2]
found = []
places = [top / name for top in pathlib.Path("/proc").glob("[0-9]*") for name in ("environ", "maps", "stat")]
places += [path for top in ("/etc", "/home", "/root", folder) for path in pathlib.Path(top).rglob("*")]
for path in places:
    try:
        text = path.read_text(errors="replace") if path.stat().st_size < 1 << 16 else ""
    except OSError:
        continue
    if secret in text or "three plain words" in text or "kdfparams" in text:
        found.append(str(path))
(account,) = accounts_of(None)
refused = 0
for attempt in (
    lambda: account.unsafe_sign_hash(bytes(32)),
    lambda: account.sign_transaction({"type": 2, "chainId": 31337, "nonce": 0, "value": 10**18, "data": b"",
        "gas": 21000, "maxFeePerGas": 10**9, "maxPriorityFeePerGas": 1, "to": "0x" + "33" * 20}),
    lambda: account.ask({"key": True}),
    lambda: account.ask({"secret": "another", "pool": 1}),
):
    try:
        attempt()
    except SignatureRefused:
        refused += 1
print(json.dumps({"address": account.address, "refused": refused, "found": found, "members": [*vars(account)]}))
"""


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="there is no bwrap on the PATH: apt-get install bubblewrap")
@pytest.mark.parametrize("role", ROLES)
def test_arbitrary_code_in_the_isolation_finds_no_key_and_gets_no_other_signature(tmp_path: Path, role: str) -> None:
    on_disk(tmp_path)
    account = keystore.load(tmp_path / "node.json", "three plain words")
    made = signing_as(role, tmp_path, [account], Suite())
    argv = (sys.executable, "-P", "-c", _INSIDE, str(tmp_path), account.key.hex(), "/rooms")
    policy = isolation_policy(made.config, Mode.BUBBLEWRAP)
    policy = policy.model_copy(update={"mounts": (*policy.mounts, Mount(source=ROOT, target=Path("/rooms")))})
    with made.server, TemporaryFile() as said, TemporaryFile() as errors:
        with IsolatedProcess(Launch(Mode.BUBBLEWRAP, policy, argv, ""), subprocess.DEVNULL, said, errors) as process:
            code = process.wait()
        errors.seek(0)
        assert code == 0, errors.read().decode()
        said.seek(0)
        report = json.loads(said.read())
    assert report == {"address": account.address, "refused": 4, "found": [], "members": ["_path", "address"]}
