"""Every place where bytes from outside become JSON or TOML survives what can end an interpreter: brackets without end,
integers without end. A library of ours raises the recursion limit, so these tests raise it, too."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from eth_utils.crypto import keccak

from calibration.document import Calibration
from chain.deployment import Deployment, NetworkConfig
from chain.rpc import ChainReader, FailoverProvider, RpcError, number
from cli.pool.authorisations import Consent, Invite
from cli.pool.config import load_terms
from environments.pool import _sizes
from orchestrator.auth import strict_object
from protocol.accounts import Account, LocalAccount
from protocol.api.endpoints import STATUS
from protocol.api.work import UNSIGNED, NoLease, ReceiptSigner, SubmissionRequest, UploadReceipt
from protocol.config import PoolConfig
from protocol.encoding import canonical_json, load_document, parse_json, parse_toml
from protocol.errors import IntegrityError, MusterError, UnreachableError
from protocol.identity import PoolId
from protocol.models import check_documents, eos_ids, load_tokenizer, read_document
from protocol.rollout_file.rows import RolloutHeader
from protocol.verdict import BallotDocument, Verdict
from runtime import keystore
from runtime.orchestrator_client import OrchestratorClient
from runtime.process import ProcessConfig
from runtime.signed_client import ServiceError, SignedClient
from storage.keys import check_content, object_key
from storage.s3 import S3Settings
from storage.weights.cache import WeightCache
from storage.weights.manifest import ManifestScope, unseal
from validator.judging.verdicts import VerdictStore
from worker.journal import Journal

DEEP, LONG = b"[" * 100_000, b"1" * 5_000
HOSTILE = {
    "deep": DEEP,
    "deep object": b'{"a":' * 100_000,
    "long": LONG,
    "long member": b'{"version": ' + LONG + b', "crypto": {}, "vocab_size": ' + LONG + b"}",
    "nan": b'{"version": NaN}',
    "nothing": b"",
    "list": b"[1]",
    "number": b"1" * 4_000,
    "half a pair": b'"\\ud800"',
    "half an object": b"{",
    "no text": b"\xff",
}
ADDRESS = "0x" + "11" * 20
PUBLISHER = ManifestScope(PoolId(1, ADDRESS, 1), ADDRESS)


@pytest.fixture(autouse=True)
def high_limit() -> Iterator[None]:
    former = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    yield
    sys.setrecursionlimit(former)


@pytest.fixture(params=list(HOSTILE.values()), ids=list(HOSTILE))
def hostile(request: pytest.FixtureRequest) -> bytes:
    data: bytes = request.param
    return data


BYTES: dict[str, Callable[[bytes], Any]] = {
    "request body": strict_object,
    "pool configuration": lambda data: PoolConfig.parse(data, "it"),
    "verdict": Verdict.parse,
    "ballot": lambda data: BallotDocument.parse(data, keccak(data)).on(1),
    "manifest": lambda data: unseal(data, bytes(32), PUBLISHER),
    "manifest's content": lambda data: check_content(object_key("manifests", bytes(32)), data),
    "rollout header": RolloutHeader.parse,
    "calibration": lambda data: Calibration.parse(data, "it"),
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes(name: str, hostile: bytes) -> None:
    with pytest.raises(MusterError) as caught:
        BYTES[name](hostile)
    assert len(str(caught.value)) < 1000


FILES: dict[str, Callable[[Path], Any]] = {
    "pool configuration": PoolConfig.load,
    "deployment": Deployment.load,
    "process": lambda path: load_document(path, ProcessConfig),
    "key file": keystore.address_of,
    "consent": lambda path: load_document(path, Consent),
    "invite": lambda path: load_document(path, Invite),
    "S3 key": lambda path: S3Settings(endpoint="http://x", bucket="abc", credentials=path).access(),
    "eos ids": lambda path: eos_ids(path.parent),
    "vocabulary": lambda path: _sizes(path.parent),
}


@pytest.mark.parametrize("name", FILES)
def test_files(name: str, hostile: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(hostile)
    path.chmod(0o600)
    with pytest.raises(MusterError) as caught:
        FILES[name](path)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("data", [b"a = " + DEEP, b"a = " + LONG, b"\xff", b"a = " + b"{b=" * 50_000])
def test_toml(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    path.write_bytes(data)
    for read in (
        lambda: load_terms(path, bytes(32), 1),
        lambda: NetworkConfig.load(path),
        lambda: load_document(path, ProcessConfig),
    ):
        with pytest.raises(MusterError):
            read()


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize("data", [DEEP, LONG, b"{"])
def test_a_model_folder_is_refused_before_a_library_reads_it(name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    check_documents(tmp_path)
    (tmp_path / name).write_bytes(data)
    for read in (check_documents, load_tokenizer):
        with pytest.raises(IntegrityError, match=f"{name} is not JSON"):
            read(tmp_path)
    with pytest.raises(IntegrityError, match="larger than"):
        read_document(tmp_path / "config.json", 4)


def test_damaged_notes_of_our_own_cost_only_themselves(hostile: bytes, tmp_path: Path) -> None:
    (tmp_path / "00000000-00.json").write_bytes(hostile)
    assert Journal(tmp_path).all() == []
    cache = WeightCache(tmp_path / "weights")
    (cache.folder / f"{bytes(32).hex()}.json").write_bytes(hostile)
    assert cache.manifest(bytes(32)) is None
    verdicts = VerdictStore(tmp_path / "verdicts")
    verdicts._path = lambda *_: tmp_path / "verdict.json"  # type: ignore[method-assign]
    (tmp_path / "verdict.json").write_bytes(hostile)
    assert verdicts.find(None, bytes(32)) is None  # type: ignore[arg-type]


def answering(data: bytes, status: int = 200) -> httpx.MockTransport:
    return httpx.MockTransport(lambda request: httpx.Response(status, content=iter([data])))


@pytest.mark.parametrize("name", ["deep", "deep object", "long", "nan"])
def test_answers_of_a_service(name: str) -> None:
    data = HOSTILE[name]
    client = SignedClient("http://service", transport=answering(data))
    with pytest.raises(IntegrityError, match="does not answer JSON"):
        client.get(STATUS)
    refusing = SignedClient("http://service", transport=answering(data, 400))
    with pytest.raises(ServiceError) as caught:
        refusing.get(STATUS)
    assert len(str(caught.value)) < 1000


POOL = PoolId(1, ADDRESS, 1)


def service_answering(data: bytes, account: LocalAccount) -> OrchestratorClient:
    client = SignedClient("http://service", transport=answering(data))
    return OrchestratorClient("http://service", account, POOL, client=client)


LEASE = "ab" * 16


@pytest.mark.parametrize(
    "lease",
    [
        {"wait": 10**4000},
        {"wait": 0.0, "reason": "again and again"},
        {"wait": 1e9, "reason": "never"},
        {"lease": LEASE, "step": 1, "counter": 10**4000, "expires": 1},
        {"lease": LEASE, "step": "1" * 5000, "counter": 0, "expires": 1},
        {"lease": LEASE, "step": 1, "counter": 0, "expires": 10**400},
        {"lease": LEASE, "step": [], "counter": 0, "expires": 1},
        {"lease": LEASE, "step": 1, "counter": 1, "expires": 1},
        {"lease": "a", "step": 1, "counter": 0, "expires": 1},
        {},
        [],
    ],
)
def test_nonsense_leases(lease: Any) -> None:
    service = service_answering(json.dumps(lease).encode(), Account.create())
    with pytest.raises(IntegrityError, match="http://service"):
        service.request_lease(0)


def test_what_a_service_says_is_fit_for_a_terminal() -> None:
    service = service_answering(b'{"wait": 1, "reason": "\\u001b[2J' + b"x" * 9000 + b'"}', Account.create())
    answer = service.request_lease(0)
    assert isinstance(answer, NoLease)
    assert answer.reason == "?[2J" + "x" * 196 + "…"


def receipt_for(account: LocalAccount, changed: dict[str, Any], pool: PoolId = POOL, **signed: Any) -> bytes:
    """The answer to a submission of b"file", with a receipt that was signed with `signed` and then `changed`."""
    sha256 = hashlib.sha256(b"file").hexdigest()
    values: dict[str, Any] = {"node": account.address, "sha256": sha256, "size": 4, "time": 7} | signed
    receipt = ReceiptSigner(Account.create(), pool).sign(**values).model_dump() | changed
    return json.dumps({"state": "waiting", "receipt": receipt}).encode()


HANDED_IN = SubmissionRequest(
    step=0, counter=0, units=1, rows=1, root="00" * 32, size=4, signature=UNSIGNED,
    sha256=hashlib.sha256(b"file").hexdigest(),
)  # fmt: skip


def test_a_true_receipt_is_kept() -> None:
    account = Account.create()
    receipt = service_answering(receipt_for(account, {}), account).hand_in(HANDED_IN).receipt
    assert UploadReceipt.model_validate(json.loads(canonical_json(receipt.model_dump()))) == receipt


ELSE, UNSAID = "receipt is for something else", "is not signed by"
RECEIPTS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another pool": ({"pool": 2}, {}, ELSE),
    "another node": ({"node": ADDRESS}, {}, ELSE),
    "another file": ({"sha256": "cd" * 32}, {}, ELSE),
    "another size": ({"size": 5}, {}, ELSE),
    "another time": ({"time": 8}, {}, UNSAID),
    "another signer": ({"signer": ADDRESS}, {}, UNSAID),
    "no signature": ({"signature": "0x" + "00" * 65}, {}, "signature"),
    "a short signature": ({"signature": "0x12"}, {}, "signature"),
    "a number beyond all": ({"pool": 10**400}, {}, "receipt"),
    "nesting": ({"pool": {"deep": []}}, {}, "receipt"),
    "much text": ({"node": "x" * 1000}, {}, "receipt"),
    "no time": ({"time": None}, {}, "receipt"),
    "signed for another chain": ({}, {"pool": PoolId(2, ADDRESS, 1)}, UNSAID),
    "signed for another contract": ({}, {"pool": PoolId(1, "0x" + "22" * 20, 1)}, UNSAID),
    "signed for another pool": ({}, {"pool": PoolId(1, ADDRESS, 2)}, ELSE),
    "signed for another node": ({}, {"node": ADDRESS}, ELSE),
    "signed for another file": ({}, {"sha256": "cd" * 32}, ELSE),
    "signed for another size": ({}, {"size": 5}, ELSE),
}
"""What was changed in a true receipt, what it was signed for, and why it is refused."""


@pytest.mark.parametrize("name", RECEIPTS)
def test_receipts_that_are_not_for_this_file_are_refused(name: str) -> None:
    changed, signed, said = RECEIPTS[name]
    account = Account.create()
    service = service_answering(receipt_for(account, changed, **signed), account)
    with pytest.raises(IntegrityError, match=said):
        service.hand_in(HANDED_IN)


def chain_answering(data: bytes) -> FailoverProvider:
    provider = FailoverProvider(["http://chain"], 1, patience=0.1)
    provider._verified.add("http://chain")
    provider._http = httpx.Client(transport=answering(data))
    return provider


ODD = (b'[{"id": [], "result": "0x1"}]', b'{"id": {}, "result": "0x1"}', b'{"id": 1, "error": {"code": -32005}}')


@pytest.mark.parametrize("data", [DEEP, LONG, *ODD])
def test_nonsense_of_a_chain_counts_as_no_answer(data: bytes) -> None:
    with pytest.raises(UnreachableError):
        chain_answering(data).batch([("eth_chainId", [])])


@pytest.mark.parametrize("code", [b"[]", b"{}", b"1" * 4000, b'"x"', b"null"])
def test_odd_errors_of_a_chain_are_errors(code: bytes) -> None:
    data = b'{"id": 1, "error": {"code": ' + code + b', "message": "no", "data": {"data": []}}}'
    (error,) = chain_answering(data).batch([("eth_chainId", [])])
    assert isinstance(error, RpcError)
    assert "no" in str(error)
    with pytest.raises(RpcError, match="no"):
        ChainReader(chain_answering(data)).number("eth_chainId")


@pytest.mark.parametrize("value", ["0x" + "f" * 5000, "zz", None, [], 7, ["1"] * 3])
def test_odd_numbers_of_a_chain(value: Any) -> None:
    with pytest.raises(UnreachableError, match="for a number") as caught:
        number(value)
    assert len(str(caught.value)) < 300


def test_what_can_be_read_is_read() -> None:
    assert parse_json(b"[" * 150 + b"]" * 150)
    assert parse_json(b"1" * 4_000) == int("1" * 4_000)
    assert parse_toml(b"a = [[1]]") == {"a": [[1]]}
