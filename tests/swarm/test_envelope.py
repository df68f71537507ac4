"""One encoding, one signer, bounded sizes: whatever else arrives is refused with its reason, and nothing crashes."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.encoding import canonical_json
from swarm import envelope
from tests.swarm.samples import DOCUMENT, KEYS, SUMS, honest_envelope

ENVELOPE = honest_envelope()
SEALED = envelope.seal(ENVELOPE, KEYS[0])


STORED = json.loads(SEALED)


def altered(**changes: Any) -> bytes:
    """The stored envelope with other values under the old signature."""
    return canonical_json(STORED | {"envelope": STORED["envelope"] | changes})


def resigned(signature: str) -> bytes:
    return canonical_json(STORED | {"signature": signature})


def group(**changes: Any) -> list[Any]:
    first, *rest = STORED["envelope"]["groups"]
    return [first | changes, *rest]


def completion(**changes: Any) -> list[Any]:
    first = STORED["envelope"]["groups"][0]
    one, *rest = first["completions"]
    return group(completions=[one | changes, *rest])


def test_what_is_sealed_is_opened() -> None:
    assert envelope.open_envelope(SEALED, DOCUMENT) == ENVELOPE
    assert len(SEALED) <= DOCUMENT.envelope_bytes
    assert envelope.seal(ENVELOPE, KEYS[0]) == SEALED, "the same bytes whenever it is made"
    with pytest.raises(ValueError, match="cannot be signed by"):
        envelope.seal(ENVELOPE, KEYS[1])
    with pytest.raises(envelope.MalformedEnvelope, match="document"):
        envelope.open_envelope(SEALED, DOCUMENT.model_copy(update={"name": "another swarm"}))


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "not JSON"),
        (b"[" * 10_000, "not JSON"),
        (b"null", "valid dictionary"),
        (SEALED[:-1], "not JSON"),
        (SEALED + b" ", "canonical"),
        (SEALED.replace(b'"ended":true', b'"ended": true', 1), "canonical"),
        (SEALED.replace(b'"version":3', b'"version":3,"version":3'), "canonical"),
        (SEALED.replace(b'"reward":1.0', b'"reward":1', 1), "canonical"),
        (SEALED.replace(b'"text":"none"', b'"text":"n\\u006fne"', 1), "canonical"),
        (SEALED.replace(b'"text":"none"', b'"text":"\\ud800"', 1), "JSON"),
        (SEALED.replace(b'"reward":1.0', b'"reward":NaN', 1), "not JSON"),
        (SEALED.replace(b'"reward":1.0', b'"reward":1e999', 1), "reward"),
        (SEALED.replace(b'"reward":1.0', b'"reward":-0.0', 1), "reward"),
        (SEALED.replace(b'"reward":1.0', b'"reward":0.1', 1), "float32"),
        (b"x" * (DOCUMENT.envelope_bytes + 1), "at most"),
        (altered(version=1), "version"),
        (altered(extra=1), "extra"),
        (altered(round=-1), "round"),
        (altered(round=True), "round"),
        (altered(round=1 << 32), "round"),
        (altered(round=1), "not signed by"),
        (altered(document="0" * 64), "document is 000"),
        (altered(member=KEYS[1].address), "not signed by"),
        (altered(member=KEYS[0].address.lower()), "canonical"),
        (altered(groups=[]), "groups"),
        (altered(groups=group()[::-1]), "ascend"),
        (altered(groups=[group()[0]] * 2), "ascend"),
        (altered(groups=group(slot=1)), "ascend"),
        (altered(groups=[group(slot=4)[0]]), "beyond"),
        (altered(groups=group(completions=STORED["envelope"]["groups"][0]["completions"] * 2)), "not 2"),
        (altered(groups=group(question="0" * 63)), "question"),
        (altered(groups=completion(reward=1.5)), "reward"),
        (altered(groups=completion(reward="1")), "reward"),
        (altered(groups=completion(reward=0.0)), "not signed by"),
        (altered(groups=completion(logprob=1)), "logprob"),
        (altered(groups=completion(ended=0)), "ended"),
        (altered(groups=completion(text="ä" * 101)), "202 bytes"),
        (altered(groups=completion(text="another")), "not signed by"),
        (resigned("0x" + "00" * 65), "27 or 28"),
        (resigned("0x" + "ff" * 64 + "1b"), "lower half"),
        (resigned("0x1b"), "signature"),
    ],
)
def test_anything_else_is_refused(data: bytes, word: str) -> None:
    assert data != SEALED, "the case changes nothing"
    with pytest.raises(envelope.MalformedEnvelope, match=word):
        envelope.open_envelope(data, DOCUMENT)


@given(text=st.text(max_size=50).filter(lambda text: not any("\ud800" <= one <= "\udfff" for one in text)))
def test_any_text_survives(text: str) -> None:
    if len(text.encode()) > DOCUMENT.text_bytes:
        return
    one = ENVELOPE.groups[0].completions[0].model_copy(update={"text": text})
    changed = ENVELOPE.groups[0].model_copy(update={"completions": [one, one]})
    data = envelope.seal(ENVELOPE.model_copy(update={"groups": [changed]}), KEYS[0])
    assert envelope.open_envelope(data, DOCUMENT).groups[0].completions[0].text == text
    assert len(data) <= DOCUMENT.envelope_bytes


def test_the_longest_envelope_fits_its_limit() -> None:
    """Control characters take six bytes each."""
    one = envelope.SharedCompletion(
        text="\x01" * DOCUMENT.text_bytes, ended=False, reward=0.3333333432674408, logprob=1 - (1 << 40)
    )
    groups = [
        ENVELOPE.groups[0].model_copy(update={"slot": slot, "completions": [one] * DOCUMENT.samples})
        for slot in range(DOCUMENT.groups)
    ]
    data = envelope.seal(ENVELOPE.model_copy(update={"groups": groups, "round": (1 << 32) - 1}), KEYS[0])
    assert len(envelope.open_envelope(data, DOCUMENT).groups) == DOCUMENT.groups


def test_hostile_bytes_are_refused_and_nothing_else_happens() -> None:
    """3,000 mutations: one either is refused by name or is the envelope itself."""
    rng, opened = random.Random(1), 0
    for _ in range(3000):
        data = bytearray(SEALED)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            match rng.randrange(5):
                case 0:
                    data[at] ^= 1 << rng.randrange(8)
                case 1:
                    data[at : at + 8] = rng.randbytes(rng.choice((1, 8)))
                case 2:
                    del data[at : at + rng.choice((1, 40))]
                case 3:
                    data[at:at] = data[at : at + 60]
                case _:
                    data[at : at + 1] = rng.choice((b"[", b"{", b'"', b"\\ud800", b"1e999", b"null", b"\xff"))
        try:
            opened += 1
            assert envelope.open_envelope(bytes(data), DOCUMENT) == ENVELOPE
        except envelope.MalformedEnvelope:
            opened -= 1
    assert opened <= 3, "only what the changes undid can be opened"


def test_a_document_takes_nothing_that_means_something_else_to_other_members() -> None:
    for changes in ({"targets": (8,)}, {"length_alpha": 0.1}):
        with pytest.raises(ValueError, match="of its own"):
            envelope.SwarmDocument(name="x", environments=(SUMS.model_copy(update=changes),))
    with pytest.raises(ValueError, match="one name"):
        envelope.SwarmDocument(name="x", environments=(SUMS, SUMS))


def test_a_document_allows_no_envelope_that_fills_a_members_memory() -> None:
    with pytest.raises(ValueError, match="lower `groups`"):
        envelope.SwarmDocument(name="x", environments=(SUMS,), groups=256, samples=64, text_bytes=1 << 16)
    largest = envelope.SwarmDocument(name="x", environments=(SUMS,), groups=8, samples=8, text_bytes=1 << 16)
    assert largest.envelope_bytes < 1 << 25


def test_the_question_of_any_text_has_a_digest() -> None:
    assert envelope.question_digest("a\ud800") != envelope.question_digest("a")


def test_every_part_of_a_round_makes_another_problem() -> None:
    parts, others = (bytes(32), "0x" + "11" * 20, 3, 1), (b"\x01" * 32, "0x" + "12" * 20, 4, 2)
    changed: list[Any] = [(*parts[:at], other, *parts[at + 1 :]) for at, other in enumerate(others)]
    assert len({envelope.round_problem(*one) for one in (parts, *changed)}) == 5
    assert envelope.round_problem(*parts) == envelope.round_problem(*parts)
