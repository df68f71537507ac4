"""Contributions, messages, log entries and states of strangers: the one encoding, by the one signer, at the one place,
or a clear refusal, and nothing crashes."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco import messages
from diloco.codec import MalformedContribution, TensorLayout
from diloco.config import DilocoRun
from diloco.inner import Partition
from diloco.outer import MalformedState, list_state, open_list, read_state, shard_parts
from protocol.encoding import canonical_json, sha256_hex
from protocol.errors import IntegrityError
from tests.diloco.samples import EXPECTED, KEYS, LAYOUT, RUN, STATE, contribution_of, payload_of, random_tensors

ME, OTHER, COORDINATOR = KEYS[0], KEYS[1], KEYS[3]
NAME, OTHER_NAME = str(ME.address), str(OTHER.address)
NEXT = RUN.model_copy(update={"name": "b"})
PAYLOAD = payload_of(NAME, random_tensors(5, 0.01))
CONTRIBUTION = contribution_of(NAME, PAYLOAD)
SEALED = messages.seal(CONTRIBUTION, RUN, ME)
ENTRIES = json.loads(SEALED)["body"]["shards"]


def altered(data: bytes = SEALED, **changes: Any) -> bytes:
    """A stored document with other values under the old signature."""
    stored = json.loads(data)
    return canonical_json(stored | {"body": stored["body"] | changes})


def resigned(signature: str) -> bytes:
    return canonical_json(json.loads(SEALED) | {"signature": signature})


def signed_anew(**changes: Any) -> bytes:
    return messages.seal(CONTRIBUTION.model_copy(update=changes), RUN, ME)


def test_what_is_sealed_is_opened() -> None:
    assert messages.open_contribution(SEALED, EXPECTED) == CONTRIBUTION
    assert messages.seal(CONTRIBUTION, RUN, ME) == SEALED, "the same bytes whenever it is made"
    assert len(SEALED) <= EXPECTED.document_bytes
    with pytest.raises(ValueError, match="cannot be signed by"):
        messages.seal(CONTRIBUTION, RUN, OTHER)


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
        (b"x" * (EXPECTED.document_bytes + 1), "at most"),
        (altered(version=1), "version"),
        (altered(extra=1), "extra"),
        (altered(step=-1), "step"),
        (altered(step=True), "step"),
        (altered(tokens=0), "tokens"),
        (altered(tokens=1 << 48), "tokens"),
        (altered(inner_steps=0), "inner_steps"),
        (altered(mode="none"), "mode"),
        (altered(metrics={"tokens": 1e308}), r"tokens is 1e\+308, beyond 1e\+30"),
        (altered(metrics={"loss": -1e300}), "loss is -1e"),
        (altered(shards=[]), "shards"),
        (altered(shards=[ENTRIES[0]] * 3), "twice"),
        (altered(shards=[ENTRIES[0] | {"size": 0}, *ENTRIES[1:]]), "size"),
        (altered(shards=[ENTRIES[0] | {"sha256": "0"}, *ENTRIES[1:]]), "sha256"),
        (altered(worker=OTHER_NAME), "not signed by"),
        (altered(worker=NAME.lower()), "canonical"),
        (resigned("0x" + "00" * 65), "27 or 28"),
        (resigned("0x" + "ff" * 64 + "1b"), "lower half"),
        (resigned("0x1b"), "signature"),
        (signed_anew(run="0" * 64), "it is for run 000"),
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
def test_any_other_contribution_is_refused(data: bytes, word: str) -> None:
    assert data != SEALED, "the case changes nothing"
    with pytest.raises(MalformedContribution, match=word):
        messages.open_contribution(data, EXPECTED)


HUGE = TensorLayout((("weight", (1 << 48,)),))


def test_the_longest_contribution_fits_its_limit() -> None:
    run = RUN.model_copy(update={"settings": RUN.settings.model_copy(update={"shards": 1024})})
    expected = replace(
        EXPECTED, run=run, step=(1 << 32) - 1, base="ff" * 32, layout=HUGE,
        partition=Partition("00" * 32, tuple(f"{at:064x}" for at in range(512)), (NAME,)),
    )  # fmt: skip
    big = contribution_of(NAME, [bytes([at % 256, at // 256]) for at in range(1024)], expected)
    metrics = {chr(97 + at) * 24: -1.2345678901234567e-300 for at in range(16)}
    shards = [one.model_copy(update={"size": 1 << 39}) for one in big.shards]
    big = big.model_copy(update={"shards": shards, "metrics": metrics, "tokens": (1 << 48) - 1})
    assert messages.open_contribution(messages.seal(big, run, ME), expected) == big


PARTITION = Partition("00" * 32, tuple(f"{number:02x}" * 32 for number in range(1, 6)), (NAME, OTHER_NAME))
ASSIGNED = replace(EXPECTED, partition=PARTITION)
MINE, THEIRS = PARTITION.of(NAME), PARTITION.of(OTHER_NAME)


def test_a_contribution_names_the_files_of_its_worker() -> None:
    made = contribution_of(NAME, PAYLOAD, ASSIGNED)
    assert made.items == list(MINE)
    assert 2 <= len(MINE) <= 3
    sealed = messages.seal(made, RUN, ME)
    assert messages.open_contribution(sealed, ASSIGNED) == made
    others = [replace(PARTITION, members=(NAME,)), replace(PARTITION, items=PARTITION.items[1:]), None]
    for other in others:  # as in another attempt, where files are split otherwise
        with pytest.raises(MalformedContribution, match="against the partition"):
            messages.open_contribution(sealed, replace(ASSIGNED, partition=other))


@pytest.mark.parametrize(
    ("items", "word"),
    [
        (THEIRS, "against the partition"),
        (sorted((*MINE, THEIRS[0])), "names file"),
        (sorted((*MINE[1:], "ff" * 32)), "against the partition"),
        ((), "does not name file"),
        (MINE[1:], "does not name file"),
        ((MINE[0], *MINE), "twice"),
        (MINE[::-1], "do not ascend"),
        (("AB" * 32,), "items"),
    ],
)
def test_a_contribution_on_other_files_is_refused(items: Sequence[str], word: str) -> None:
    made = contribution_of(NAME, PAYLOAD, ASSIGNED).model_copy(update={"items": list(items)})
    with pytest.raises(MalformedContribution, match=word):
        messages.open_contribution(messages.seal(made, RUN, ME), ASSIGNED)


def test_what_a_diverged_worker_measured_is_left_out_and_the_rest_can_be_signed() -> None:
    measured = {"loss": float("nan"), "grad_norm": 1e300, "kl": -2.5, "tokens": 4096.0, "flops": float("inf")}
    made = CONTRIBUTION.model_copy(update={"metrics": messages.reportable(measured)})
    assert messages.open_contribution(messages.seal(made, RUN, ME), EXPECTED).metrics == {"kl": -2.5, "tokens": 4096.0}


@given(seed=st.integers(0, 10_000))
def test_flipped_bytes_are_refused(seed: int) -> None:
    dice = random.Random(seed)
    data = bytearray(SEALED)
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    with pytest.raises(MalformedContribution):
        messages.open_contribution(bytes(data), EXPECTED)


MESSAGE = messages.WorkerMessage(run=RUN.digest, worker=NAME, number=3, kind="sign", step=1, digest="ab" * 32)
STORED_MESSAGE = messages.seal(MESSAGE, RUN, ME)


def test_a_message_is_opened_only_where_it_belongs() -> None:
    assert messages.open_message(STORED_MESSAGE, RUN, NAME, 3) == MESSAGE
    for run, worker, number in ((NEXT, NAME, 3), (RUN, OTHER_NAME, 3), (RUN, NAME, 4)):
        with pytest.raises(messages.MalformedMessage, match="here belongs"):
            messages.open_message(STORED_MESSAGE, run, worker, number)
    with pytest.raises(ValueError, match="cannot be signed by"):
        messages.seal(MESSAGE, RUN, OTHER)
    full = {"kind": "unusable", "digest": None, "items": ["ab" * 32] * messages.MAX_NAMED, "attempt": (1 << 32) - 1}
    made = MESSAGE.model_copy(update=full)
    assert messages.open_message(messages.seal(made, RUN, ME), RUN, NAME, 3) == made


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "not JSON"),
        (b"[" * 900, "not JSON"),
        (b"x" * 3000, "at most"),
        (STORED_MESSAGE + b" ", "canonical"),
        (altered(STORED_MESSAGE, kind="leave"), "belongs to"),
        (altered(STORED_MESSAGE, digest=None), "belongs to"),
        (altered(STORED_MESSAGE, kind="win"), "kind"),
        (altered(STORED_MESSAGE, kind="unusable", digest=None), "belong to `unusable`"),
        (altered(STORED_MESSAGE, items=["ab" * 32]), "belong to `unusable`"),
        (altered(STORED_MESSAGE, kind="unusable", digest=None, items=["ab" * 32] * 17), "items"),
        (altered(STORED_MESSAGE, step=-1), "step"),
        (altered(STORED_MESSAGE, step=2), "not signed by"),
    ],
)
def test_any_other_message_is_refused(data: bytes, word: str) -> None:
    with pytest.raises(messages.MalformedMessage, match=word):
        messages.open_message(data, RUN, NAME, 3)


BEGUN = messages.CommitRecord(step=0, digest="cd" * 32)
ENTRY = messages.LogEntry(run=RUN.digest, number=0, previous=messages.NO_ENTRY, epoch=0, time=5.0, events=[BEGUN])
STORED_ENTRY = messages.seal(ENTRY, RUN, COORDINATOR)


def test_an_entry_is_opened_only_where_it_belongs() -> None:
    for previous in (messages.NO_ENTRY, None):
        assert messages.open_entry(STORED_ENTRY, RUN, 0, previous) == ENTRY
    for run, number in ((NEXT, 0), (RUN, 1)):
        with pytest.raises(messages.MalformedEntry, match="here belongs"):
            messages.open_entry(STORED_ENTRY, run, number, messages.NO_ENTRY)
    with pytest.raises(IntegrityError, match="follows") as found:
        messages.open_entry(STORED_ENTRY, RUN, 0, "ef" * 32)
    assert not isinstance(found.value, messages.MalformedEntry), "it is no stranger's, to be skipped"
    with pytest.raises(ValueError, match="cannot be signed by"):
        messages.seal(ENTRY, RUN, ME)


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        (("body", "time"), 6.0, "not signed by"),
        (("body", "events", 0, "kind"), "won", "events"),
        (("body", "events", 0, "members"), [NAME] * 65, "members"),
        (("body", "events", 0, "made_of"), {"0x0": "ab" * 32}, "made_of"),
        (("body", "events", 0, "extra"), 1, "extra"),
        (("signature",), "0x" + "00" * 65, "27 or 28"),
    ],
)
def test_any_other_entry_is_refused(path: tuple[str | int, ...], value: Any, word: str) -> None:
    stored = json.loads(STORED_ENTRY)
    place = stored
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(messages.MalformedEntry, match=word):
        messages.open_entry(canonical_json(stored), RUN, 0, messages.NO_ENTRY)


def events_of(number: int) -> list[messages.LogEvent]:
    return [messages.PhaseFailed(attempt=attempt, phase="open") for attempt in range(number)]


@pytest.mark.parametrize(
    ("events", "word"),
    [
        ([], "events"),
        (events_of(messages.MAX_EVENTS + 1), "events"),
        ([ENTRY.events[0], *events_of(1)], "a commit record is the last event"),
        ([ENTRY.events[0], ENTRY.events[0]], "a commit record is the last event"),
    ],
)
def test_an_entry_of_other_events_than_it_may_have_is_refused(events: list[messages.LogEvent], word: str) -> None:
    """Also where the coordinator signed it: whoever reads the log skips it, as what strangers put there."""
    entry = ENTRY.model_copy(update={"events": events})
    with pytest.raises(messages.MalformedEntry, match=word):
        messages.open_entry(messages.seal(entry, RUN, COORDINATOR), RUN, 0, messages.NO_ENTRY)


def test_as_many_events_as_it_may_have_and_a_commit_record() -> None:
    entry = ENTRY.model_copy(update={"events": [*events_of(messages.MAX_EVENTS - 1), *ENTRY.events]})
    opened = messages.open_entry(messages.seal(entry, RUN, COORDINATOR), RUN, 0, messages.NO_ENTRY)
    assert opened.commit == ENTRY.events[0]
    assert ENTRY.model_copy(update={"events": events_of(2)}).commit is None


def test_a_full_entry_fits_its_limit() -> None:
    workers = tuple("0x" + f"{number:040x}" for number in range(10, 74))
    event = messages.CommitRecord(
        step=1, digest="cd" * 32, members=list(workers), made_of=dict.fromkeys(workers, "ab" * 32), previous=0,
        messages=dict.fromkeys(workers, 10**9),
        strikes=dict.fromkeys(workers, messages.Strikes(count=64, until=10**6, made=64)),
    )  # fmt: skip
    made = messages.seal(ENTRY.model_copy(update={"events": [event], "number": 10**9}), RUN, COORDINATOR)
    assert len(made) < 1 << 15


def test_a_state_comes_back_from_its_files_and_no_other_does() -> None:
    encoded, shards = list_state(STATE, 3), [b"".join(parts) for parts in shard_parts(STATE, 3)]
    files = open_list(encoded, 3)
    assert files.shards == [sha256_hex(one) for one in shards]
    assert read_state(files.step, files.digest, iter(shards), LAYOUT, 3).digest == STATE.digest
    flipped = bytearray(shards[1])
    flipped[5] ^= 1
    for step, wrong, word in (
        (0, [shards[0], bytes(flipped), shards[2]], "are outer state"),
        (0, [shards[0], b"", shards[2]], "0 bytes"),
        (1, shards, "are outer state"),
    ):
        with pytest.raises(MalformedState, match=word):
            read_state(step, files.digest, iter(wrong), LAYOUT, 3)
    with pytest.raises(MalformedState, match="3 shards, not 4"):
        open_list(encoded, 4)


def test_a_run_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="named twice"):
        DilocoRun(name="a", coordinator=COORDINATOR.address, workers=(NAME,) * 3)
    with pytest.raises(ValueError, match="an outer step needs 3"):
        DilocoRun(name="a", coordinator=COORDINATOR.address, workers=RUN.workers[:2])
