"""The cheapest plan for a step, from manifests alone."""

from collections.abc import Iterable

import pytest

from protocol.encoding import sha256_hex
from storage.weights import fetch
from storage.weights.fetch import MAX_DELTAS_IN_A_ROW, MAX_LOOKUPS, FetchPlan, cheapest_plan
from storage.weights.manifest import FileDelta, Manifest, Shard, StepDelta, WeightFile
from tests.storage.weights.folders import PUBLISHER

FULL = 1000


def shard(name: str, size: int) -> Shard:
    return Shard(sha256=sha256_hex(name.encode()), size=size)


def run(snapshots: Iterable[int], deltas: dict[tuple[int, int], int], steps: int) -> list[Manifest]:
    """Steps of one file; `deltas`: (from, to) → bytes."""
    made: list[Manifest] = []
    for step in range(steps):
        one = shard(f"full {step}", FULL)
        file = WeightFile(name="w", size=FULL, sha256=sha256_hex(f"file {step}".encode()), shards=(one,))
        ways = tuple(
            StepDelta(
                step=base,
                parent=made[base].digest.hex(),
                files=(FileDelta(name="w", index="0" * 64, shards=(shard(f"delta {base} {to}", size),)),),
            )
            for (base, to), size in deltas.items()
            if to == step
        )
        pool = PUBLISHER.pool
        made.append(
            Manifest(
                chain_id=pool.chain_id, pools=pool.pools, pool=pool.pool, step=step, parent="", dtype="float32",
                files=(file,), snapshot=step in snapshots or not ways, deltas=ways,
            )
        )  # fmt: skip
    return made


def find(made: list[Manifest], to: int, held: Iterable[int] = (), **more: object) -> tuple[list[int], bool]:
    known = {one.digest.hex(): one for one in made}
    kept = {made[one].digest: one for one in held}
    plan = cheapest_plan(made[to], lambda delta: known.get(delta.parent), kept, **more)  # type: ignore[arg-type]
    return [one.step for one in plan.versions], plan.held


RUN = run({0, 4}, {(0, 1): 10, (1, 2): 10, (0, 2): 15, (2, 3): 10, (0, 3): 25, (3, 4): 10, (4, 5): 10}, 6)


@pytest.mark.parametrize(
    ("to", "held", "plan"),
    [
        (0, (), ([0], False)),
        (3, (), ([0, 3], False)),
        (5, (), ([4, 5], False)),
        (3, (0,), ([0, 3], True)),
        (3, (0, 1), ([1, 2, 3], True)),
        (3, (0, 1, 2), ([2, 3], True)),
        (5, (3,), ([3, 4, 5], True)),
        (4, (0,), ([0, 3, 4], True)),
        (4, (5,), ([4], False)),
    ],
)
def test_ways(to: int, held: tuple[int, ...], plan: tuple[list[int], bool]) -> None:
    assert find(RUN, to, held) == plan


def test_what_is_here_costs_nothing() -> None:
    assert find(RUN, 3, present={shard("delta 0 1", 1).sha256, shard("delta 1 2", 1).sha256}) == ([0, 1, 2, 3], False)
    assert find(RUN, 4, (0,), present={shard("full 4", 1).sha256}) == ([4], False)


def test_refused_deltas_are_passed_over() -> None:
    refused = {(RUN[0].digest, RUN[3].digest)}
    assert find(RUN, 3, refused=refused) == ([0, 2, 3], False)
    everything = {(one.digest, other.digest) for one in RUN for other in RUN}
    assert find(RUN, 3, (0, 1, 2), refused=everything) == ([3], False)


def test_a_delta_larger_than_the_full_weights_is_not_taken() -> None:
    made = run({0, 1, 2}, {(0, 1): 600, (1, 2): 600}, 3)
    assert find(made, 2, (0,)) == ([2], False)
    assert find(made, 2, (1,)) == ([1, 2], True)


def test_a_joiner_does_not_look_at_the_past() -> None:
    looked: list[int] = []
    cheapest_plan(RUN[4], lambda delta: looked.append(delta.step))
    assert looked == []


def test_chains_without_end_are_cut_off() -> None:
    """An owner who signs hundreds of tiny deltas."""
    steps = 3 * MAX_LOOKUPS
    made = run({0, steps - 1}, {(one, one + 1): 1 for one in range(steps - 1)}, steps)
    looked: list[int] = []
    known = {one.digest.hex(): one for one in made}

    def lookup(delta: StepDelta) -> Manifest | None:
        looked.append(delta.step)
        return known[delta.parent]

    plan: FetchPlan = cheapest_plan(made[-1], lookup, {made[0].digest: 0})
    assert [one.step for one in plan.versions] == [steps - 1]
    assert len(looked) <= MAX_DELTAS_IN_A_ROW


@pytest.mark.parametrize("lie", ["step", "file", "size", "pool"])
def test_a_parent_that_does_not_fit_is_no_way(lie: str) -> None:
    parent = RUN[0]
    changes: dict[str, object] = {
        "step": {"step": 7},
        "pool": {"pool": 9},
        "file": {"files": (parent.files[0].model_copy(update={"name": "v"}),)},
        "size": {"files": (parent.files[0].model_copy(update={"size": 5}),)},
    }
    other = parent.model_copy(update=changes[lie])  # type: ignore[arg-type]
    plan = cheapest_plan(RUN[1], lambda delta: other, {parent.digest: 0, other.digest: 0})
    assert len(plan.versions) == 1


def test_what_leads_through_several_deltas() -> None:
    known = {one.digest.hex(): one for one in RUN}
    plan = cheapest_plan(RUN[5], lambda delta: known[delta.parent], {RUN[3].digest: 3})
    assert [(name, delta.shards[0].size) for name, delta in plan.deltas_of("w")] == [(".delta-0", 10), (".delta-1", 10)]
    assert plan.deltas_of("v") == []
    assert plan.bytes(()) == 20


def test_manifests_of_many_shards_are_not_gathered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MAX_LISTED", 7)
    made = run({0}, {(one, one + 1): 1 for one in range(10)}, 11)
    assert find(made, 3, (0,)) == ([0, 1, 2, 3], True)
    assert find(made, 10, (0,)) == ([10], False), "each names two shards"
