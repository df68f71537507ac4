"""Our EIP-712 digests against eth-account's, what ours refuse that theirs let through, and what identifies work."""

import contextlib
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace

import pytest
from eth_account.messages import encode_typed_data  # noqa: TID251
from eth_utils.crypto import keccak
from hypothesis import given
from hypothesis import strategies as st

from protocol import signing
from protocol.accounts import Account
from protocol.errors import IntegrityError
from protocol.identity import PoolId, WorkId
from protocol.signing import Domain

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
CONTRACT = "0x000000000000000000000000000000000000bEEF"
DOMAIN = Domain("muster-test", "1", 31337, CONTRACT)
STRUCT = "Thing(uint256 a,uint24 b,address who,bool ok,bytes32 word,string text,bytes blob)"
MEMBERS = [part.split() for part in STRUCT[6:-1].split(",")]


def theirs(values: list[object]) -> bytes:
    document = {
        "types": {
            "EIP712Domain": [
                {"name": "name", "type": "string"},
                {"name": "version", "type": "string"},
                {"name": "chainId", "type": "uint256"},
                {"name": "verifyingContract", "type": "address"},
            ],
            "Thing": [{"name": name, "type": kind} for kind, name in MEMBERS],
        },
        "primaryType": "Thing",
        "domain": {"name": "muster-test", "version": "1", "chainId": 31337, "verifyingContract": CONTRACT},
        "message": {name: value for (_, name), value in zip(MEMBERS, values, strict=True)},
    }
    message = encode_typed_data(full_message=document)
    return keccak(b"\x19" + message.version + message.header + message.body)


@given(
    st.integers(0, 2**256 - 1),
    st.integers(0, 2**24 - 1),
    st.binary(min_size=20, max_size=20),
    st.booleans(),
    st.binary(min_size=32, max_size=32),
    st.text(st.characters(codec="utf-8"), max_size=40),
    st.binary(max_size=80),
)
def test_digests_equal_the_reference(a: int, b: int, who: bytes, ok: bool, word: bytes, text: str, blob: bytes) -> None:
    values = [a, b, "0x" + who.hex(), ok, word, text, blob]
    assert signing.digest(DOMAIN, STRUCT, *values) == theirs(values)  # type: ignore[arg-type]


def test_signatures_recover_and_only_the_canonical_one_counts() -> None:
    account = Account.create()
    digest = signing.digest(DOMAIN, "One(uint256 a)", 1)
    signature = signing.sign(account, digest)
    assert len(signature) == 65
    assert signing.recover(digest, signature) == account.address
    assert signing.recover(signing.digest(DOMAIN, "One(uint256 a)", 2), signature) != account.address
    s = int.from_bytes(signature[32:64], "big")
    flipped = signature[:32] + (ORDER - s).to_bytes(32, "big") + bytes([55 - signature[64]])
    of_other_length = (b"", signature[:64], signature + b"\0")
    of_other_v = (signature[:64] + bytes([signature[64] - 27]), signature[:64] + b"\x00")
    of_other_r = (one + signature[32:] for one in (bytes(32), b"\xff" * 32, ORDER.to_bytes(32, "big")))
    without_s = signature[:32] + bytes(32) + signature[64:]
    for candidate in (flipped, *of_other_length, *of_other_v, *of_other_r, without_s):
        with pytest.raises(IntegrityError):
            signing.recover(digest, candidate)


@given(st.binary(max_size=70))
def test_random_bytes_never_crash_recovery(data: bytes) -> None:
    with contextlib.suppress(IntegrityError):
        assert signing.checked_address(signing.recover(bytes(32), data))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("uint24", 1 << 24),
        ("uint256", -1),
        ("uint256", "1"),
        ("uint256", True),
        ("uint256", 1.0),
        ("address", "0x12"),
        ("address", "0x000000000000000000000000000000000000BEEF"[:-1] + "g"),
        ("address", "0x000000000000000000000000000000000000BeEF"),
        ("bytes32", b"\0" * 31),
        ("bytes32", "0x" + "00" * 32),
        ("bool", 1),
        ("string", b"x"),
        ("int8", 1),
        ("uint256[]", [1]),
    ],
)
def test_values_that_do_not_fit_are_refused(kind: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"is not a|checksum|not an address"):
        signing.digest(DOMAIN, f"One({kind} a)", value)  # type: ignore[arg-type]


def test_malformed_types_are_refused() -> None:
    for struct in ("One", "One(uint256)", "One(uint256 a,)", "One(uint256  a)", "1(uint256 a)", "One(uint256 a"):
        with pytest.raises(ValueError):
            signing.digest(DOMAIN, struct, 1)
    with pytest.raises(ValueError, match="has 1 members, not 2"):
        signing.digest(DOMAIN, "One(uint256 a)", 1, 2)


POOLS, NODE = "0x" + "22" * 20, "0x" + "11" * 20
POOL = PoolId(31337, POOLS, 4)
WORK = WorkId(POOL, NODE, 3, 7)


def test_equal_values_are_the_same_work_under_the_documents_names() -> None:
    assert WorkId(PoolId(31337, POOLS, 4), NODE, 3, 7) == WORK
    assert len({WORK, replace(WORK), replace(WORK, counter=8)}) == 2
    with pytest.raises(FrozenInstanceError):
        WORK.step = 5  # type: ignore[misc]
    assert WORK.flat() == {"chain_id": 31337, "pools": POOLS, "pool": 4, "node": NODE, "step": 3, "counter": 7}


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("chain_id", replace(WORK, pool=replace(POOL, chain_id=1))),
        ("pools", replace(WORK, pool=replace(POOL, pools=NODE))),
        ("pool", replace(WORK, pool=replace(POOL, pool=5))),
        ("node", replace(WORK, node=POOLS)),
        ("step", replace(WORK, step=4)),
        ("counter", replace(WORK, counter=6)),
    ],
)
def test_each_value_tells_two_apart_by_name(name: str, other: WorkId) -> None:
    assert other != WORK
    assert WORK.differing(other) == [name]
    assert WORK.differing(replace(WORK)) == []


def test_a_signature_about_pools_is_bound_to_chain_and_contract() -> None:
    assert POOL.domain("muster-weights") == Domain("muster-weights", "1", 31337, POOLS)
    assert str(WORK) == f"work 7 of {NODE} for step 3 in pool 4 of {POOLS} on chain 31337"


@pytest.mark.parametrize(
    "modules",
    ["storage.s3, chain.client", "worker.main", "cli.main"],
)
def test_imports_of_what_needs_accounts_keep_the_recursion_limit(modules: str) -> None:
    program = f"import sys; limit = sys.getrecursionlimit(); import {modules}; assert sys.getrecursionlimit() == limit"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
