import pytest
from eth_utils.address import to_checksum_address

from chain.contracts.appeals import Canaries
from protocol.rollouts import merkle
from trainer.canary_tree import LEAVES, StepCanaries, next_counters

NODE = to_checksum_address("0x" + "ab" * 20)
OTHER = to_checksum_address("0x" + "cd" * 20)


def tree(**changes: object) -> StepCanaries:
    values = {"secret": b"\1" * 32, "pool": 1, "step": 3, "planted": next_counters([(NODE, 5)])} | changes
    return StepCanaries(**values)  # type: ignore[arg-type]


def test_every_planted_counter_opens_against_the_root() -> None:
    canaries = tree()
    for counter in range(5, 5 + LEAVES):
        opening = canaries.opening(NODE, counter)
        assert opening is not None
        assert len(opening.proof) == 4
        leaf = Canaries.leaf(opening.salt, 1, 3, NODE, counter)
        assert merkle.verify(canaries.root, leaf, opening.proof)
        wrong = Canaries.leaf(opening.salt, 1, 4, NODE, counter)
        assert not merkle.verify(canaries.root, wrong, opening.proof)


def test_other_files_do_not_open() -> None:
    assert tree().opening(NODE, 4) is None
    assert tree().opening(NODE, 5 + LEAVES) is None
    assert tree().opening(OTHER, 5) is None


def test_a_root_tells_nothing_without_the_secret_and_is_never_repeated() -> None:
    roots = {
        tree().root,
        tree(secret=b"\2" * 32).root,
        tree(step=4).root,
        tree(planted=()).root,
        tree(planted=(), step=4).root,
    }
    assert len(roots) == 5


def test_carriers_share_the_leaves() -> None:
    planted = next_counters([(NODE, 0), (OTHER, 7)])
    assert planted[:8] == tuple((NODE, i) for i in range(8))
    assert planted[8:] == tuple((OTHER, 7 + i) for i in range(8))
    assert next_counters([]) == ()


def test_too_many_or_repeated_canaries_are_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        tree(planted=tuple((NODE, i) for i in range(17)))
    with pytest.raises(ValueError, match="different"):
        tree(planted=((NODE, 1), (NODE, 1)))
