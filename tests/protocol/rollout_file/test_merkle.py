import pytest
from eth_utils.crypto import keccak
from hypothesis import given
from hypothesis import strategies as st

from protocol.rollout_file import merkle
from tests import openings

LEAVES = st.lists(st.binary(max_size=40), min_size=1, max_size=40).map(lambda rows: [merkle.leaf(row) for row in rows])


def test_three_leaves_by_hand() -> None:
    a, b, c = (merkle.leaf(text) for text in (b"a", b"b", b"c"))
    assert a == keccak(keccak(b"a"))
    pair = keccak(min(a, b) + max(a, b))
    assert merkle.root([a, b, c]) == keccak(min(pair, c) + max(pair, c))
    assert merkle.proof([a, b, c], 2) == [pair]


@given(LEAVES, st.data())
def test_every_leaf_proves_and_no_other(leaves: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(leaves) - 1))
    root, siblings = merkle.root(leaves), merkle.proof(leaves, index)
    assert merkle.proofs(leaves)[index] == siblings
    assert openings.verify(root, leaves[index], siblings)
    stranger = keccak(leaves[index] + b"x")
    assert not openings.verify(root, stranger, siblings)
    assert not openings.verify(keccak(root), leaves[index], siblings)
    if siblings:
        assert not openings.verify(root, leaves[index], siblings[:-1])
        assert not openings.verify(root, leaves[index], [siblings[0][:-1], *siblings[1:]])


@given(LEAVES, st.data())
def test_root_depends_on_every_leaf(leaves: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(leaves) - 1))
    changed = [*leaves[:index], keccak(b"other"), *leaves[index + 1 :]]
    assert merkle.root(changed) != merkle.root(leaves)


def test_refuses_no_leaves_and_bad_index() -> None:
    with pytest.raises(ValueError):
        merkle.root([])
    with pytest.raises(ValueError):
        merkle.proof([b"x" * 32], 1)
