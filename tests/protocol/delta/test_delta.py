"""Deltas of whole models: which base, which result, and nothing else."""

import numpy as np
import pytest

from protocol.delta.delta import DeltaError, DeltaReader, TensorEntry, WeightIndex, apply_delta, encode_delta
from tests.protocol.delta.cases import DAMAGES, Case, is_accepted, made_case, tensor_pair


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    made = (made_case([tensor_pair(first + one) for one in range(3 + first % 22)]) for first in range(20, 420, 20))
    return [case for case in made if case.base_index != case.new_index]


def test_damaged_deltas_make_no_other_weights(cases: list[Case]) -> None:
    assert [number for number in range(150 * len(DAMAGES)) if is_accepted(cases[number % len(cases)], number)] == []


def test_a_delta_is_applied_whole(cases: list[Case]) -> None:
    for case in cases:
        made, index = apply_delta(case.delta, case.base, case.base_index, case.new_index.digest)
        assert {name: data.tobytes() for name, data in made.items()} == {
            name: data.tobytes() for name, data in case.new.items()
        }
        assert index == case.new_index


def test_unchanged_tensors_are_not_copied(cases: list[Case]) -> None:
    case = cases[-1]
    made, _ = apply_delta(case.delta, case.base, case.base_index)
    changed = DeltaReader(case.delta, case.base_index).changed
    assert 0 < len(changed) < len(made)
    assert all((made[name] is case.base[name]) == (name not in changed) for name in made)


def test_a_delta_for_another_base_is_refused(cases: list[Case]) -> None:
    with pytest.raises(DeltaError, match="for another base"):
        apply_delta(cases[0].delta, cases[1].base, cases[1].base_index)


def test_a_delta_to_another_version_is_refused(cases: list[Case]) -> None:
    with pytest.raises(DeltaError, match="does not lead to the version"):
        apply_delta(cases[0].delta, cases[0].base, cases[0].base_index, bytes(32))


@pytest.mark.parametrize("at", [8, 40, 73])
def test_a_head_that_contradicts_itself_is_refused(cases: list[Case], at: int) -> None:
    """Base, target, or a tensor's hash, by a reader that would take any target."""
    damaged = bytearray(cases[-1].delta)
    damaged[at + 4] ^= 1
    with pytest.raises(DeltaError, match=r"another base|does not lead to the version"):
        DeltaReader(bytes(damaged), cases[-1].base_index)


def test_a_digest_that_contradicts_the_tensors_hashes_is_refused(cases: list[Case]) -> None:
    """The head names the very version that is expected, but a hash that is not that version's; and the hash of what
    the code leads to, but another version's digest. Nothing is decoded."""
    case = cases[-1]
    changed = DeltaReader(case.delta, case.base_index).changed
    hashes = {entry.name: entry.sha256 for entry in case.new_index.tensors}
    for name in changed:
        at = case.delta.index(hashes[name])
        other = case.delta[:at] + bytes(32) + case.delta[at + 32 :]
        with pytest.raises(DeltaError, match="does not lead to the version"):
            DeltaReader(other, case.base_index, case.new_index.digest)
    elsewhere = case.delta[:40] + bytes(32) + case.delta[72:]
    for expected in (None, bytes(32), case.new_index.digest):
        with pytest.raises(DeltaError, match="does not lead to the version"):
            DeltaReader(elsewhere, case.base_index, expected)


def test_a_hash_of_another_tensor_is_refused(cases: list[Case]) -> None:
    """The maker's own index lies: the digest fits, the bytes do not."""
    case = cases[-1]
    name = DeltaReader(case.delta, case.base_index).changed[0]
    lying = case.new_index.with_hashes({name: bytes(32)})
    delta = encode_delta(case.base, case.base_index, case.new, lying)
    with pytest.raises(DeltaError, match=f"{name} does not come out with its hash"):
        apply_delta(delta, case.base, case.base_index, lying.digest)


def test_a_damaged_base_is_found(cases: list[Case]) -> None:
    case = cases[-1]
    base = {name: data[:-1] for name, data in case.base.items()}
    with pytest.raises(DeltaError, match="instead of"):
        apply_delta(case.delta, base, case.base_index)


def test_other_tensors_are_no_delta(cases: list[Case]) -> None:
    with pytest.raises(ValueError, match="publish the full weights"):
        encode_delta(cases[0].base, cases[0].base_index, cases[1].new, cases[1].new_index)


@pytest.mark.parametrize(("dtype", "size"), [("BF16", 7), ("F128", 8), ("BOOL", 8)])
def test_an_entry_must_fit_its_bytes(dtype: str, size: int) -> None:
    with pytest.raises(ValueError, match=f"{size} bytes are no {dtype} tensor"):
        TensorEntry.of("w", dtype, (4,), np.zeros(size, np.uint8))


def test_a_name_stands_once() -> None:
    entry = TensorEntry.of("w", "U8", (1,), np.zeros(1, np.uint8))
    with pytest.raises(ValueError, match="two tensors"):
        WeightIndex.of([entry, entry])
