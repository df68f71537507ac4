"""Whose files have how much of a validator's store: no owner keeps another's out, by many pools or by many names."""

import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from tests.chain.game import FEE, begin
from tests.conftest import Deployed
from tests.validator.daemon_world import FAMILY, second_pool
from validator.retention import BYTES_OF_A_FEE, RetentionStore, Tenant, has_room, tenant_of

MIB = 1 << 20
LIMIT = 20 << 30
COST = 1600


class SharedStore:
    """Bytes held for each tenant, and how many files that were."""

    def __init__(self) -> None:
        self.held: dict[Tenant, int] = {}
        self.files = 0

    def takes(self, tenant: Tenant, size: int) -> bool:
        return has_room(LIMIT, list(self.held.items()), tenant, size)

    def fill(self, tenants: list[Tenant], size: int) -> None:
        """Each of these in turn keeps as many files of `size` bytes as it can."""
        for tenant in tenants:
            while self.takes(tenant, size):
                self.held[tenant] = self.held.get(tenant, 0) + size
                self.files += 1

    def bytes_of(self, chosen: bool) -> int:
        return sum(size for tenant, size in self.held.items() if tenant.chosen == chosen)


def names(count: int, word: str = "", fee: int = 1) -> list[Tenant]:
    """One owner of pools of a family, under so many names."""
    return [Tenant(f"0x{word}{number}", chosen=False, fee=fee) for number in range(count)]


def test_an_owner_with_many_pools_has_one_share(tmp_path: Path) -> None:
    def owner_of(pool: int) -> Tenant:
        return Tenant("honest" if pool == 9 else "hostile", chosen=True)

    files, data = RetentionStore(tmp_path, 8000, owner_of), [os.urandom(1000) for _ in range(9)]
    for pool in range(8):
        files.keep((pool, 0), sha256(data[pool]).digest(), data[pool])
    assert len(files.files) == 4
    assert [files.keep((9, number), sha256(data[8]).digest(), data[8]) for number in range(3)] == [True, True, False]


def test_an_owner_under_many_names_leaves_room_for_whoever_pays_more_for_a_byte() -> None:
    store, hostile, honest = SharedStore(), names(12), Tenant("honest", chosen=False)
    store.fill(hostile, 8 * MIB)
    assert not any(store.takes(name, 8 * MIB) for name in hostile)
    assert store.takes(honest, 2 * MIB), "a small file at the least fee"
    assert store.takes(replace(honest, fee=4), 8 * MIB), "a large one at four times that"
    assert not store.takes(honest, 8 * MIB), "not what pays as little as theirs"


def test_to_be_in_anothers_way_costs_what_it_pays_itself() -> None:
    """With the best choice of sizes, largest first, an enemy pays more than 1,600 least fees of each seat before files
    of 2 MiB find no room."""
    store = SharedStore()
    for size in (8 * MIB, 4 * MIB, 2 * MIB):
        store.fill(names(12, f"{size}-"), size)
    assert not store.takes(Tenant("honest", chosen=False), 2 * MIB)
    assert store.files > COST


def test_families_together_have_half_and_what_was_chosen_keeps_its_own() -> None:
    store = SharedStore()
    store.fill(names(12, fee=10**6), 64 * MIB)
    assert 0 < store.bytes_of(chosen=False) <= LIMIT // 2
    store.fill([Tenant("chosen", chosen=True)], 64 * MIB)
    assert store.bytes_of(chosen=True) > LIMIT // 5


def test_a_store_too_small_for_a_file_takes_none_and_one_byte_fits() -> None:
    tenant = Tenant("one", chosen=False)
    assert not has_room(0, [], tenant, 1)
    assert has_room(8, [], tenant, 1)
    assert not has_room(LIMIT, [], tenant, BYTES_OF_A_FEE)


def test_who_a_pools_files_belong_to_is_read_from_the_chain(deployed: Deployed, tmp_path: Path) -> None:
    game = begin(deployed, tmp_path)
    now = game.suite.client.now()
    least = game.state.params_at(now)["withheldPenalty"] // 100
    assert tenant_of(game.state, game.pool, now) == Tenant(game.owner.address, True, FEE, least)
    assert not tenant_of(game.state, 99, now).chosen


def test_a_familys_pool_was_not_chosen(deployed: Deployed, tmp_path: Path) -> None:
    class World:
        game = begin(deployed, tmp_path)

    other = second_pool(World, family=FAMILY)  # type: ignore[arg-type]
    found = tenant_of(other.state, other.pool, other.suite.client.now())
    assert (found.owner, found.chosen) == (other.owner.address, False)
