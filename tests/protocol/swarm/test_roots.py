"""A root over many envelopes: each of them can be shown to be in it, and no other."""

from dataclasses import replace

import pytest
from eth_utils.crypto import keccak

from protocol.rollout_file import merkle
from protocol.swarm.roots import SharedRound, is_under, round_proof, rounds_root

SHARED = [SharedRound(number, keccak(b"root%d" % number), keccak(b"file%d" % number), 8) for number in (3, 4, 7, 8, 12)]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_every_round_is_under_the_root_and_nothing_else(count: int) -> None:
    shared = SHARED[:count]
    root = rounds_root(shared)
    for one in shared:
        proof = round_proof(shared, one.round)
        assert is_under(one, proof, root)
        assert not is_under(replace(one, round=one.round + 1), proof, root)
        assert not is_under(replace(one, root=keccak(b"other")), proof, root)
        assert not is_under(replace(one, sha256=keccak(b"other")), proof, root)
        assert not is_under(one, proof, keccak(b"other"))
        assert not is_under(one, [*proof, keccak(b"more")], root)


def test_a_round_that_is_not_there_has_no_proof() -> None:
    with pytest.raises(ValueError, match="5 is not in list"):
        round_proof(SHARED, 5)


def test_a_leaf_is_what_a_contract_can_compute() -> None:
    one = SHARED[0]
    words = one.round.to_bytes(32, "big") + one.root + one.sha256
    assert one.leaf == merkle.leaf(words) == keccak(keccak(words))
