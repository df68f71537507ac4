"""One identity of a pool and of a piece of work."""

from dataclasses import FrozenInstanceError, replace

import pytest

from protocol.identity import PoolId, WorkId
from protocol.signing import Domain

POOLS, NODE = "0x" + "22" * 20, "0x" + "11" * 20
POOL = PoolId(31337, POOLS, 4)
WORK = WorkId(POOL, NODE, 3, 7)


def test_equal_values_are_the_same_work_and_cannot_be_changed() -> None:
    assert WorkId(PoolId(31337, POOLS, 4), NODE, 3, 7) == WORK
    assert len({WORK, replace(WORK), replace(WORK, counter=8)}) == 2
    with pytest.raises(FrozenInstanceError):
        WORK.step = 5  # type: ignore[misc]


def test_the_flat_form_has_the_documents_names_and_all_values() -> None:
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
