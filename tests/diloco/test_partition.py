"""Each item is exactly one worker's, by a rule that moves little when workers come and go."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest

from diloco.inner import Partition, owner, shuffled
from tests.diloco.samples import KEYS

WORKERS = [str(key.address) for key in KEYS]
SEED = b"\x07" * 32
ORDER = [5, 8, 9, 6, 0, 2, 7, 3, 4, 1]
ITEMS = [number.to_bytes(32, "big") for number in range(2000)]


def test_every_item_is_of_one_worker_whatever_the_order() -> None:
    found = [owner(SEED, item, WORKERS) for item in ITEMS]
    assert found == [owner(SEED, item, WORKERS[::-1]) for item in ITEMS]
    assert all(400 < count < 600 for count in Counter(found).values())
    assert found != [owner(b"\x08" * 32, item, WORKERS) for item in ITEMS]
    with pytest.raises(ValueError):
        owner(SEED, ITEMS[0], [])


def test_only_the_items_of_who_left_move() -> None:
    for item in ITEMS:
        before, after = owner(SEED, item, WORKERS), owner(SEED, item, WORKERS[1:])
        assert after == before or before == WORKERS[0]


def split(items: Sequence[bytes], workers: Sequence[str] = WORKERS, seed: bytes = SEED) -> dict[str, tuple[bytes, ...]]:
    return Partition(seed.hex(), tuple(item.hex() for item in items), tuple(workers)).split


def test_a_partition_splits_evenly_and_every_file_is_of_one_worker() -> None:
    for count in (0, 1, 3, 7, 8):
        items = ITEMS[:count]
        found = split(items)
        assert sorted(one for mine in found.values() for one in mine) == sorted(items)
        sizes = [len(mine) for mine in found.values()]
        assert max(sizes) - min(sizes) <= 1
        assert found == split([*items[::-1], *items[:1]], WORKERS[::-1])
    assert split(ITEMS[:8]) != split(ITEMS[:8], seed=b"\x08" * 32)
    partition = Partition(SEED.hex(), tuple(one.hex() for one in ITEMS[:7]), tuple(WORKERS))
    for worker, mine in partition.split.items():
        assert list(partition.of(worker)) == sorted(one.hex() for one in mine)
    assert partition.of("0xstranger") == ()


@pytest.mark.parametrize("count", [*range(1, 70), 1000, 1023, 1024, 1025])
def test_an_epoch_has_each_document_once(count: int) -> None:
    assert sorted(shuffled(SEED, 3, at, count) for at in range(count)) == list(range(count))


def test_epochs_and_seeds_differ_and_neighbours_are_torn_apart() -> None:
    orders = [[shuffled(seed, epoch, at, 500) for at in range(500)] for seed in (SEED, bytes(32)) for epoch in (0, 1)]
    assert len({tuple(one) for one in orders}) == 4
    for order in orders:
        stayed = sum(after == before + 1 for before, after in pairwise(order))
        assert stayed < 10, "a random order of 500 has one such pair on average"
        first = sum(one < 250 for one in order[:250])
        assert 95 < first < 155, "half of each half, with a deviation of 5.6"
    with pytest.raises(ValueError):
        shuffled(SEED, 0, 5, 5)


def test_the_order_of_an_epoch_is_part_of_the_protocol() -> None:
    assert [shuffled(bytes(range(32)), 1, at, 10) for at in range(10)] == ORDER
