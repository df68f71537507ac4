"""One encoding, one signer, one place: whatever else arrives is refused with its reason, and nothing crashes."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.encoding import canonical_json
from protocol.identity import PoolId
from protocol.sites.contribution import (
    ContributionLimits,
    make_contribution,
    open_contribution,
    seal_contribution,
)
from protocol.sites.dealing import Dealing
from protocol.sites.figures import MAX_FIGURES, sayable
from protocol.sites.forms import MalformedContribution
from protocol.sites.layout import F32, cut
from protocol.sites.payload import decode_shard, encode_dense, encode_visible, longest_shard
from tests.protocol.sites.samples import CONFIG, KEYS, LAYOUT, LIMITS, POOL, STATE, random_tensors, sealed_as_it_is

GRADIENT = random_tensors(5, 0.01)
SHARDS = LAYOUT.shards(CONFIG.shards)
ME, OTHER = KEYS[0], KEYS[1]


def payload_of(site: str, gradient: dict[str, F32]) -> list[bytes]:
    place = LIMITS.place(site)
    return [encode_dense(place, at, cut(gradient, pieces), "uniform") for at, pieces in enumerate(SHARDS)]


PAYLOAD = payload_of(ME.address, GRADIENT)
CONTRIBUTION = make_contribution(LIMITS, ME.address, 10, 5000, PAYLOAD)
SEALED = seal_contribution(CONTRIBUTION, ME)
ENTRIES = json.loads(SEALED)["contribution"]["shards"]


def altered(**changes: Any) -> bytes:
    """The stored contribution with other values under the old signature."""
    stored = json.loads(SEALED)
    return canonical_json(stored | {"contribution": stored["contribution"] | changes})


def signed_anew(**changes: Any) -> bytes:
    return seal_contribution(CONTRIBUTION.model_copy(update=changes), ME)


def test_what_is_sealed_is_opened() -> None:
    assert open_contribution(SEALED, LIMITS) == CONTRIBUTION
    assert seal_contribution(CONTRIBUTION, ME) == SEALED, "the same bytes whenever it is made"
    assert len(SEALED) <= LIMITS.file_bytes


def test_nobody_seals_for_another() -> None:
    with pytest.raises(ValueError, match="cannot be signed by"):
        seal_contribution(CONTRIBUTION, OTHER)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "not JSON"),
        (b"[" * 1000, "not JSON"),
        (b"null", "valid dictionary"),
        (SEALED + b" ", "canonical"),
        (SEALED.replace(b'"step":0', b'"step":0,"step":0'), "canonical"),
        (SEALED.replace(b'"tokens":5000', b'"tokens":NaN'), "not JSON"),
        (SEALED.replace(b'"tokens":5000', b'"tokens":5000.0'), "tokens"),
        (SEALED.replace(b'"tokens":5000', b'"tokens":5001'), "not signed by"),
        (b"x" * (LIMITS.file_bytes + 1), "at most"),
        (altered(version=2), "version"),
        (altered(extra=1), "extra"),
        (altered(step=-1), "step"),
        (altered(step=True), "step"),
        (altered(tokens=0), "tokens"),
        (altered(tokens=1 << 48), "tokens"),
        (altered(inner_steps=0), "inner_steps"),
        (altered(mode="none"), "mode"),
        (altered(figures={"tokens": 1e308}), r"tokens is 1e\+308, and lies from 0 to 2.81475e\+14"),
        (altered(figures={"trained_tokens": -1.0}), "trained_tokens is -1"),
        (altered(figures={"flops": 1e31}), "flops"),
        (altered(figures={"loss": -1e300}), "loss is -1e"),
        (altered(shards=[]), "shards"),
        (altered(shards=[ENTRIES[0]] * 3), "twice"),
        (altered(shards=[ENTRIES[0] | {"size": 0}, *ENTRIES[1:]]), "size"),
        (altered(shards=[ENTRIES[0] | {"sha256": "0"}, *ENTRIES[1:]]), "sha256"),
        (altered(site=OTHER.address), "not signed by"),
        (altered(site=ME.address.lower()), "canonical"),
        (signed_anew(pool=8), "this is pool 7"),
        (signed_anew(chain_id=1), "on chain 1"),
        (signed_anew(config="0" * 64), "document is 000"),
        (signed_anew(step=1), "outer step 1, this is 0"),
        (signed_anew(base="0" * 64), "another state"),
        (signed_anew(mode="sparse"), "the run's int8"),
        (signed_anew(inner_steps=11), "10 at most"),
        (signed_anew(shards=CONTRIBUTION.shards[:2]), "2 shards, not 3"),
        (
            signed_anew(shards=[CONTRIBUTION.shards[0].model_copy(update={"size": 10**9}), *CONTRIBUTION.shards[1:]]),
            "honest",
        ),
    ],
)
def test_anything_else_is_refused(data: bytes, word: str) -> None:
    assert data != SEALED, "the case changes nothing"
    with pytest.raises(MalformedContribution, match=word):
        open_contribution(data, LIMITS)


@pytest.mark.parametrize(
    ("signature", "word"),
    [("0x" + "00" * 65, "27 or 28"), ("0x" + "ff" * 64 + "1b", "lower half"), ("0x1b", "signature")],
)
def test_a_signature_has_one_form(signature: str, word: str) -> None:
    with pytest.raises(MalformedContribution, match=word):
        open_contribution(canonical_json(json.loads(SEALED) | {"signature": signature}), LIMITS)


def test_the_longest_contribution_fits_its_limit() -> None:
    config = CONFIG.model_copy(update={"shards": 1024})
    limits = replace(
        ContributionLimits.of(POOL, config, (1 << 32) - 1, b"\xff" * 32, LAYOUT), longest=(1 << 39,) * 1024
    )
    payload = [bytes([at % 256, at // 256]) for at in range(1024)]
    figures = {chr(97 + at) * 24: -1.2345678901234567e-300 for at in range(MAX_FIGURES)}
    made = make_contribution(limits, ME.address, 10, (1 << 48) - 1, payload, figures)
    big = made.model_copy(
        update={
            "chain_id": (1 << 64) - 1,
            "pool": (1 << 256) - 1,
            "shards": [one.model_copy(update={"size": (1 << 39)}) for one in made.shards],
        }
    )
    pool = PoolId(big.chain_id, big.pools, big.pool)
    assert open_contribution(seal_contribution(big, ME), replace(limits, pool=pool)) == big


FILES = tuple(bytes([number]) * 32 for number in range(1, 6))
DEALING = Dealing(bytes(32), FILES, (ME.address, OTHER.address))
DEALT = replace(LIMITS, dealing=DEALING)
MINE, THEIRS = DEALING.of(ME.address), DEALING.of(OTHER.address)


def test_a_contribution_names_the_files_that_are_dealt_to_its_site() -> None:
    made = make_contribution(DEALT, ME.address, 10, 5000, PAYLOAD)
    assert made.items == list(MINE)
    assert 2 <= len(MINE) <= 3
    assert open_contribution(seal_contribution(made, ME), DEALT) == made
    with pytest.raises(MalformedContribution, match="which is not dealt to"):
        open_contribution(seal_contribution(made, ME), LIMITS)
    with pytest.raises(MalformedContribution, match="does not name file"):
        open_contribution(SEALED, DEALT)


@pytest.mark.parametrize(
    ("items", "word"),
    [
        (THEIRS, "which is not dealt to"),
        (sorted((*MINE, THEIRS[0])), "which is not dealt to"),
        (sorted((*MINE[1:], "ff" * 32)), "which is not dealt to"),
        ((), "does not name file"),
        (MINE[1:], "does not name file"),
        ((MINE[0], *MINE), "twice"),
        (MINE[::-1], "do not ascend"),
        (("AB" * 32,), "items"),
    ],
)
def test_a_contribution_on_other_files_is_refused(items: Sequence[str], word: str) -> None:
    made = make_contribution(DEALT, ME.address, 10, 5000, PAYLOAD).model_copy(update={"items": list(items)})
    with pytest.raises(MalformedContribution, match=word):
        open_contribution(sealed_as_it_is(made, ME), DEALT)


def test_what_was_right_in_another_attempt_is_refused_where_files_are_dealt_otherwise() -> None:
    made = seal_contribution(make_contribution(DEALT, ME.address, 10, 5000, PAYLOAD), ME)
    alone = replace(DEALT, dealing=replace(DEALING, members=(ME.address,)))
    with pytest.raises(MalformedContribution, match="does not name file"):
        open_contribution(made, alone)
    without = replace(DEALT, dealing=replace(DEALING, items=tuple(one for one in FILES if one.hex() != MINE[0])))
    with pytest.raises(MalformedContribution):
        open_contribution(made, without)


def test_what_a_diverged_site_measured_is_left_out_and_the_rest_can_be_signed() -> None:
    measured = {"loss": float("nan"), "grad_norm": 1e300, "kl": -2.5, "tokens": 4096.0, "flops": float("inf")}
    made = make_contribution(LIMITS, ME.address, 10, 5000, PAYLOAD, sayable(measured))
    assert open_contribution(seal_contribution(made, ME), LIMITS).figures == {"kl": -2.5, "tokens": 4096.0}


@given(seed=st.integers(0, 10_000))
def test_flipped_bytes_are_refused(seed: int) -> None:
    dice = random.Random(seed)
    data = bytearray(SEALED)
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    with pytest.raises(MalformedContribution):
        open_contribution(bytes(data), LIMITS)


def decoded(data: bytes, shard: int = 0, site: str = ME.address) -> list[F32]:
    pieces = SHARDS[shard]
    return decode_shard(data, LIMITS.place(site), shard, pieces, "int8", cut(STATE.weights, pieces))


def test_a_payload_is_its_sites_alone() -> None:
    values = [decoded(one, at) for at, one in enumerate(PAYLOAD)]
    joined = LAYOUT.joined(SHARDS, values)
    assert max(float(np.abs(joined[name] - GRADIENT[name]).max(initial=0)) for name in joined) < 0.02
    with pytest.raises(MalformedContribution, match="was not made by"):
        decoded(PAYLOAD[0], 0, OTHER.address)
    with pytest.raises(MalformedContribution, match="was not made by"):
        decoded(PAYLOAD[1], 0)
    assert not {*PAYLOAD} & {*payload_of(OTHER.address, GRADIENT)}, "the same values have other hashes elsewhere"


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "too early"),
        (b"MUSTERD1" + PAYLOAD[0][8:], "is no shard"),
        (PAYLOAD[0][:-1], "too early"),
        (PAYLOAD[0] + b"\0", "too many"),
        (PAYLOAD[0][:40] + b"\xff\xff\xff\xff\x7f" + PAYLOAD[0][45:], "above"),
        (bytes(longest_shard(SHARDS[0]) + 1), "at most are honest"),
    ],
)
def test_a_damaged_shard_is_refused(data: bytes, word: str) -> None:
    with pytest.raises(MalformedContribution, match=word):
        decoded(data)


def test_all_modes_come_back_and_fit_their_limit() -> None:
    place = LIMITS.place(ME.address)
    for at, pieces in enumerate(SHARDS):
        base, values = cut(STATE.weights, pieces), cut(GRADIENT, pieces)
        plain = encode_dense(place, at, values, None)
        visible = encode_visible(place, at, base, [b - v for b, v in zip(base, values, strict=True)])
        for data, mode in ((plain, "float32"), (visible, "sparse")):
            assert len(data) <= longest_shard(pieces)
            found = decode_shard(data, place, at, pieces, mode, base)  # type: ignore[arg-type]
            for one, other in zip(found, values, strict=True):
                np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
