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

from chain.deployment import Deployment
from chain.jsonrpc import RpcError, number
from chain.network import NetworkConfig
from chain.provider import FailoverProvider
from chain.reader import ChainReader
from cli import authorisations
from cli.doctor.services import get_json
from cli.evidence import parse_ballot
from cli.terms import load_terms
from orchestrator.bodies import SlotRequest, parse
from protocol.config import PoolConfig
from protocol.encoding import canonical_json, parse_json, parse_toml
from protocol.errors import IntegrityError, MusterError, UnreachableError
from protocol.models.documents import check_documents, read_document
from protocol.models.tokenizer import eos_ids, load_tokenizer
from protocol.rollouts.schema import RolloutHeader
from protocol.tasks.environment import _vocabulary
from protocol.verdict import Verdict
from runtime import keystore
from runtime.orchestrator_client import OrchestratorClient
from runtime.process import ProcessConfig, load_process
from runtime.signed_client import ServiceError, SignedClient
from storage.keys import check_content, object_key
from storage.settings import S3Settings
from storage.weights.cache import WeightCache
from storage.weights.manifest import ManifestScope, unseal
from validator.verdict_store import VerdictStore
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
}
ADDRESS = "0x" + "11" * 20
PUBLISHER = ManifestScope(1, ADDRESS, 1, ADDRESS)


@pytest.fixture(autouse=True)
def high_limit() -> Iterator[None]:
    former = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    yield
    sys.setrecursionlimit(former)


@pytest.fixture(params=HOSTILE.values(), ids=HOSTILE)
def hostile(request: pytest.FixtureRequest) -> bytes:
    data: bytes = request.param
    return data


BYTES: dict[str, Callable[[bytes], Any]] = {
    "request body": lambda data: parse(SlotRequest, data),
    "pool configuration": lambda data: PoolConfig.parse(data, "it"),
    "verdict": Verdict.parse,
    "ballot": lambda data: parse_ballot(data, keccak(data), 1),
    "manifest": lambda data: unseal(data, bytes(32), PUBLISHER),
    "manifest's content": lambda data: check_content(object_key("manifests", bytes(32)), data),
    "rollout header": RolloutHeader.parse,
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes(name: str, hostile: bytes) -> None:
    with pytest.raises(MusterError) as caught:
        BYTES[name](hostile)
    assert len(str(caught.value)) < 1000


FILES: dict[str, Callable[[Path], Any]] = {
    "pool configuration": PoolConfig.load,
    "deployment": Deployment.load,
    "process": lambda path: load_process(path, ProcessConfig),
    "key file": keystore.address_of,
    "consent": lambda path: authorisations.read(authorisations.Consent, path),
    "invite": lambda path: authorisations.read(authorisations.Invite, path),
    "S3 key": lambda path: S3Settings(endpoint="http://x", bucket="abc", credentials=path).access(),
    "eos ids": lambda path: eos_ids(path.parent),
    "vocabulary": lambda path: _vocabulary(path.parent),
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
        lambda: load_terms(path, bytes(32)),
        lambda: NetworkConfig.load(path),
        lambda: load_process(path, ProcessConfig),
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
    verdicts = VerdictStore(tmp_path / "verdicts", bytes(32))
    verdicts._path = lambda facts: tmp_path / "verdict.json"  # type: ignore[method-assign]
    (tmp_path / "verdict.json").write_bytes(hostile)
    assert verdicts.find(None) is None  # type: ignore[arg-type]


def answering(data: bytes, status: int = 200) -> httpx.MockTransport:
    return httpx.MockTransport(lambda request: httpx.Response(status, content=data))


@pytest.mark.parametrize("name", ["deep", "deep object", "long", "nan"])
def test_answers_of_a_service(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = HOSTILE[name]
    client = SignedClient("http://service", None, 1, ADDRESS, transport=answering(data))
    with pytest.raises(IntegrityError, match="does not answer JSON"):
        client.get("/v1/status")
    refusing = SignedClient("http://service", None, 1, ADDRESS, transport=answering(data, 400))
    with pytest.raises(ServiceError) as caught:
        refusing.get("/v1/status")
    assert len(str(caught.value)) < 1000
    answer = httpx.Response(200, content=data, request=httpx.Request("GET", "http://service"))
    monkeypatch.setattr(httpx, "get", lambda *args, **options: answer)
    with pytest.raises(MusterError, match="does not answer JSON"):
        get_json("http://service", None, "it")


@pytest.mark.parametrize(
    "slot",
    [
        {"wait": 10**4000},
        {"slot": "a", "step": 1, "counter": 10**4000, "expires": 1},
        {"slot": "a", "step": "1" * 5000, "counter": 0, "expires": 1},
        {"slot": "a", "step": 1, "counter": 0, "expires": 10**400},
        {"slot": "a", "step": [], "counter": 0, "expires": 1},
        {},
    ],
)
def test_nonsense_slots(slot: dict[str, Any]) -> None:
    account = keystore.Account.create()
    service = OrchestratorClient("http://service", account, 1, ADDRESS)
    service._client = SignedClient("http://service", None, 1, ADDRESS, transport=answering(json.dumps(slot).encode()))
    with pytest.raises(IntegrityError):
        service.slot(0)


RECEIPTS: dict[bytes, bool] = {
    b"null": True,
    b'{"pool": 1, "node": "0x", "signature": "0x12"}': True,
    b'{"pool": 1e999}': False,
    b'{"pool": {"deep": []}}': False,
    b'{"pool": "' + b"x" * 1000 + b'"}': False,
    b"[1]": False,
}


@pytest.mark.parametrize("receipt", RECEIPTS)
def test_receipts_can_be_kept_or_are_refused(receipt: bytes, tmp_path: Path) -> None:
    service = OrchestratorClient("http://service", keystore.Account.create(), 1, ADDRESS)
    key = object_key("rollouts", hashlib.sha256(b"file").digest())
    answer = b'{"key": "' + key.encode() + b'", "exists": true, "receipt": ' + receipt + b"}"
    service._client = SignedClient("http://service", None, 1, ADDRESS, transport=answering(answer))
    if RECEIPTS[receipt]:
        assert canonical_json(service.upload_rollouts(b"file")) == canonical_json(json.loads(receipt))
    else:
        with pytest.raises(IntegrityError, match="receipt"):
            service.upload_rollouts(b"file")


def chain_answering(data: bytes) -> FailoverProvider:
    provider = FailoverProvider(["http://chain"], 1, patience=0.1)
    provider._verified.add("http://chain")
    provider._http = httpx.Client(transport=answering(data))
    return provider


@pytest.mark.parametrize(
    "data",
    [
        DEEP,
        LONG,
        b'[{"id": [], "result": "0x1"}]',
        b'{"id": {}, "result": "0x1"}',
        b'{"id": 1, "error": {"code": -32005}}',
    ],
)
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
        ChainReader(chain_answering(data)).ask("eth_chainId", lambda eth: eth.chain_id)


@pytest.mark.parametrize("value", ["0x" + "f" * 5000, "zz", None, [], 7, ["1"] * 3])
def test_odd_numbers_of_a_chain(value: Any) -> None:
    with pytest.raises(UnreachableError, match="for a number") as caught:
        number(value)
    assert len(str(caught.value)) < 300


def test_what_can_be_read_is_read() -> None:
    assert parse_json(b"[" * 150 + b"]" * 150)
    assert parse_json(b"1" * 4_000) == int("1" * 4_000)
    assert parse_toml(b"a = [[1]]") == {"a": [[1]]}
