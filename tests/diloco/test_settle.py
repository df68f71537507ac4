"""Settling an outer step: the outer optimizer against torch's and against exact sums, the same bits whatever the cut,
admission of real pseudo-gradients with a third of them hostile, and one shard of each contribution in memory."""

import math
import random
import tracemalloc
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.diloco_faults import TASKS, text_line
from diloco import codec, outer
from diloco.config import AdmissionConfig, DilocoConfig, DilocoRun, OuterConfig
from diloco.messages import Contribution, Expected
from engines.loading import load_model
from protocol.encoding import sha256_hex
from protocol.errors import ConfigError
from tests.diloco.samples import KEYS, LAYOUT, STATE, random_tensors, shard_entry
from tests.trainer.helpers import small_model

WORKERS = [f"0x{number:040x}" for number in range(1, 7)]
TRUSTED = AdmissionConfig(minimum=1, cosine=None)
Gradients = dict[str, dict[str, codec.F32]]


def payloads_of(state: outer.OuterState, gradients: Gradients, settings: DilocoConfig) -> outer.Payloads:
    """Contributions of these pseudo-gradients in float32."""
    run = DilocoRun.model_construct(
        name="run", workers=tuple(gradients), seed="00" * 32, assigned=False, chain_id=0, pools="0x" + "00" * 20,
        pool=0, pool_config=None, data=None, settings=settings, coordinator=KEYS[0].address, kind="diloco-run",
    )  # fmt: skip
    expected, contributions = Expected(run, state.step, state.digest.hex(), state.layout), {}
    files: dict[str, bytes] = {}
    for worker, gradient in gradients.items():
        payload, _ = outer.encode_payload(state, gradient, expected, worker)
        files |= {sha256_hex(shard): shard for shard in payload}
        values: dict[str, Any] = {"worker": worker, "shards": [*map(shard_entry, payload)]}
        contributions[worker] = Contribution.model_construct(**values)
    return outer.Payloads(state, expected, contributions, lambda entry: files[entry.sha256])


def settled(
    state: outer.OuterState, gradients: Gradients, shards: int = 3, admission: AdmissionConfig = TRUSTED
) -> tuple[outer.OuterState | None, outer.Admitted]:
    settings = DilocoConfig(mode="float32", shards=shards, admission=admission)
    return outer.settle(payloads_of(state, gradients, settings))


def advanced(state: outer.OuterState, gradients: Gradients, shards: int = 3) -> outer.OuterState:
    after, _ = settled(state, gradients, shards)
    assert after is not None
    return after


def run_steps(steps: int, order: Sequence[str], shards: int = 3) -> outer.OuterState:
    state = STATE
    for step in range(steps):
        given = {one: random_tensors(100 * step + WORKERS.index(one), 0.01) for one in order}
        state = advanced(state, given, shards)
    return state


def test_it_is_nesterov_as_torch_has_it() -> None:
    made = run_steps(5, WORKERS[:4])
    parameters = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in STATE.weights.items()}
    optimizer = torch.optim.SGD(parameters.values(), lr=0.7, momentum=0.9, nesterov=True)
    for step in range(5):
        given = [random_tensors(100 * step + number, 0.01) for number in range(4)]
        for name, parameter in parameters.items():
            parameter.grad = torch.tensor(sum(one[name].astype(np.float64) for one in given) / 4).float()
        optimizer.step()
    for name, parameter in parameters.items():
        np.testing.assert_allclose(made.weights[name], parameter.detach().numpy(), rtol=0, atol=2e-6)


def test_neither_order_of_arrival_nor_number_of_shards_changes_a_bit() -> None:
    first = run_steps(3, WORKERS[:4])
    assert first.step == 3
    assert {run_steps(3, WORKERS[3::-1], shards).digest for shards in (1, 2, 7, 100)} == {first.digest}


def test_each_operation_is_rounded_once_in_the_stated_order() -> None:
    """By scalars, one after another."""
    given = {one: {"x": np.array([0.1 * (at + 1)], np.float32)} for at, one in enumerate(WORKERS[:4])}
    state = outer.OuterState(3, {"x": np.array([0.3], np.float32)}, {"x": np.array([0.05], np.float32)})
    made = advanced(state, given, 1)
    f, total = np.float32, np.float32(0)
    for worker in WORKERS[:4]:
        total = f(total + f(f(0.25) * given[worker]["x"][0]))
    momentum = f(f(f(0.9) * f(0.05)) + total)
    assert made.momentum["x"][0] == momentum
    assert made.weights["x"][0] == f(f(0.3) - f(f(0.7) * f(total + f(f(0.9) * momentum))))


def test_everything_that_is_common_is_in_the_digest() -> None:
    moved = {**STATE.weights, "a.norm": STATE.weights["a.norm"] + np.float32(1e-6)}
    others = [
        outer.OuterState(1, STATE.weights, STATE.momentum),
        outer.OuterState(0, moved, STATE.momentum),
        outer.OuterState(0, STATE.weights, moved),
        outer.OuterState(0, STATE.momentum, STATE.weights),
        outer.OuterState(0, {f"z{name}": one for name, one in STATE.weights.items()}, STATE.momentum),
    ]
    assert len({STATE.digest, *(one.digest for one in others)}) == 6
    assert outer.OuterState.start(random_tensors(0)).digest == STATE.digest


def test_what_is_not_finite_makes_no_step() -> None:
    huge = {**random_tensors(1), "a.norm": np.full(7, 3e38, np.float32)}
    with pytest.raises(outer.OuterStepError, match=r"a\.norm would not be finite"):
        settled(STATE, {WORKERS[0]: huge})
    nan = {**random_tensors(1), "a.norm": np.full(7, np.nan, np.float32)}
    with pytest.raises(codec.MalformedContribution, match="infinity or NaN"):
        settled(STATE, {WORKERS[0]: nan})


def test_a_process_that_flushes_small_floats_makes_no_step() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot")
    try:
        with pytest.raises(ConfigError, match="flushes"):
            outer.outer_step(STATE, OuterConfig(), [])
    finally:
        torch.set_flush_denormal(False)


@given(count=st.integers(1, 40))
def test_shards_hold_every_element_once(count: int) -> None:
    shards = LAYOUT.shards(count)
    sizes = [sum(piece.size for piece in pieces) for pieces in shards]
    assert (len(shards), sum(sizes)) == (count, LAYOUT.size)
    assert max(sizes) - min(sizes) <= 1
    joined = LAYOUT.empty()
    for pieces in shards:
        codec.paste(joined, pieces, codec.cut(STATE.weights, pieces))
    assert all(joined[name].tobytes() == one.tobytes() for name, one in STATE.weights.items())


@pytest.mark.parametrize("admission", [TRUSTED, AdmissionConfig()])
def test_memory_holds_one_shard_of_each_contribution(admission: AdmissionConfig) -> None:
    """Eight contributions of a model of 8 MB: whole, they would be 64 MB; the new state alone is 16."""
    size, shards, workers = 1 << 21, 16, [f"0x{number:040x}" for number in range(1, 9)]
    state = outer.OuterState.start({"w": np.zeros(size, np.float32)})
    common = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    given = {one: {"w": common + np.float32(0.01 * at)} for at, one in enumerate(workers)}
    payloads = payloads_of(state, given, DilocoConfig(mode="int8", shards=shards, admission=admission))
    del given
    tracemalloc.start()
    after, admitted = outer.settle(payloads)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert after is not None
    assert len(admitted.weights) == 8
    assert peak < 16 * size / 2 + (3 * len(workers) / shards + 2) * 4 * size, f"{peak >> 20} MiB"
    assert outer.update_norm(state, after) == pytest.approx(float(np.linalg.norm(after.weights["w"])), rel=1e-6)


# Sums that every machine makes to the bit.

VECTORS = st.integers(0, 300).flatmap(
    lambda size: st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=size, max_size=size)
)


def line(values: Sequence[float]) -> codec.F32:
    return np.array(values, np.float32)


def dot(one: Sequence[codec.F32], other: Sequence[codec.F32]) -> float:
    return codec.gram([one, other])[0][1]


@given(values=VECTORS)
def test_a_product_is_close_to_the_exact_one(values: list[float]) -> None:
    pairs = list(zip(line(values).tolist(), line(values[::-1]).tolist(), strict=True))
    exact, size = math.fsum(a * b for a, b in pairs), math.fsum(abs(a * b) for a, b in pairs)
    assert abs(dot([line(values)], [line(values[::-1])]) - exact) <= 1e-14 * size


def test_the_order_is_halves_of_blocks_and_blocks_are_added_with_one_rounding() -> None:
    """Written out for five: (a + d) + c and b + e, then both; of numbers whose sums are rounded."""
    dice = np.random.default_rng(0)
    for _ in range(50):
        values = (dice.standard_normal(5) * 2.0 ** dice.integers(-30, 30, 5)).astype(np.float32)
        a, b, c, d, e = values.tolist()
        assert dot([values], [np.ones(5, np.float32)]) == ((a + d) + c) + (b + e)
    wide = np.zeros(3 * codec._BLOCK, np.float32)
    wide[0], wide[codec._BLOCK], wide[2 * codec._BLOCK] = 2.0**60, 1.0, -(2.0**60)
    assert dot([wide], [np.ones_like(wide)]) == 1.0


def test_what_is_not_finite_shows_in_products() -> None:
    for bad in (math.nan, math.inf):
        assert math.isnan(dot([line([1, bad])], [line([1, 1])]))
    assert math.isnan(codec.add_products([codec.gram([[line([math.inf])]]), codec.gram([[line([1])]])])[0][0])
    with pytest.raises(ValueError, match="2 and 1 elements"):
        dot([line([1, 2])], [line([1])])


@given(values=VECTORS)
def test_mean_and_deviation(values: list[float]) -> None:
    mean, deviation = codec.moments(line(values))
    if values:
        wide = line(values).astype(np.float64)
        scale = float(np.abs(wide).max())
        assert mean == pytest.approx(wide.mean(), abs=1e-12 * scale)
        assert deviation == pytest.approx(wide.std(), abs=1e-12 * scale + 1e-300)
    else:
        assert (mean, deviation) == (0, 0)


# Real pseudo-gradients of workers with different data.

ADMISSION = AdmissionConfig()
BOUND = 0.05


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[outer.OuterState, Gradients]:
    """A model after 120 steps on all tasks, and what six workers make of it in 10 steps of their own: 4 in 9 lines of
    each are of the worker's own task."""
    torch.set_num_threads(1)
    model: Any = load_model(small_model(Path(tmp_path_factory.mktemp("model")) / "base"), "float32")

    def train(weights: codec.Tensors, tasks: Sequence[str], seed: int, steps: int, rate: float) -> dict[str, codec.F32]:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(torch.tensor(weights[name]))
        model.train().requires_grad_(True)
        optimizer, dice = torch.optim.AdamW(model.parameters(), lr=rate), random.Random(seed)
        for _ in range(steps):
            lines = torch.tensor([list(text_line(dice.choice(tasks), dice)) for _ in range(8)])
            optimizer.zero_grad()
            model(input_ids=lines, labels=lines).loss.backward()
            optimizer.step()
        return {name: one.detach().numpy().copy() for name, one in model.named_parameters()}

    first = {name: one.detach().numpy().copy() for name, one in model.named_parameters()}
    weights, gradients = train(first, TASKS, 5, 120, 3e-3), {}
    for number, worker in enumerate(WORKERS):
        inner = train(weights, [TASKS[number]] * 3 + list(TASKS), 100 + number, 10, 1e-3)
        gradients[worker] = {name: weights[name] - inner[name] for name in weights}
    return outer.OuterState.start(weights), gradients


def judged(state: outer.OuterState, gradients: Gradients) -> outer.Admitted:
    return settled(state, gradients, admission=ADMISSION)[1]


def times(factor: float) -> Callable[[dict[str, codec.F32], int], dict[str, codec.F32]]:
    return lambda tensors, _: {name: (np.float32(factor) * one).astype(np.float32) for name, one in tensors.items()}


def flat(tensors: dict[str, codec.F32]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.concatenate([tensors[name].reshape(-1).astype(np.float64) for name in sorted(tensors)])


def noise(tensors: dict[str, codec.F32], seed: int) -> dict[str, codec.F32]:
    """As long as what it stands for."""
    dice = np.random.default_rng(seed)
    made = {name: dice.standard_normal(one.shape).astype(np.float32) for name, one in tensors.items()}
    return times(float(np.linalg.norm(flat(tensors)) / np.linalg.norm(flat(made))))(made, 0)


def test_no_honest_worker_is_excluded(world: tuple[outer.OuterState, Gradients]) -> None:
    state, given = world
    for count in (3, 4, 5, 6):
        for some in combinations(WORKERS, count):
            made = judged(state, {worker: given[worker] for worker in some})
            assert made.weights.keys() == set(some), made.excluded


HOSTILE = {
    "zeros": (times(0), "zero"),
    "flipped": (times(-1), "cosine"),
    "ten times": (times(10), "length"),
    "a hundredth": (times(0.01), "length"),
    "flipped and scaled": (times(-2.5), "cosine"),
    "noise": (noise, "cosine"),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize(("count", "bad"), [(3, 1), (4, 1), (6, 2)])
def test_up_to_a_third_hostile_never_move_the_weights(
    world: tuple[outer.OuterState, Gradients], kind: str, count: int, bad: int
) -> None:
    """Whoever they are: the state after is that of the honest ones alone, to the bit."""
    state, given = world
    change, word = HOSTILE[kind]
    for hostile in list(combinations(WORKERS[:count], bad))[:: 1 if count < 6 else 4]:
        honest = {worker: given[worker] for worker in WORKERS[:count] if worker not in hostile}
        mixed = honest | {worker: change(given[worker], WORKERS.index(worker)) for worker in hostile}
        after, made = settled(state, mixed, admission=ADMISSION)
        assert all(word in made.excluded[worker] for worker in hostile), made.excluded
        if count == 3:
            assert after is None, "two are left: fewer than count"
            assert all("only 2 are admitted" in made.excluded[worker] for worker in honest)
            continue
        assert made.weights.keys() == honest.keys()
        alone, _ = settled(state, honest, admission=ADMISSION)
        assert after is not None
        assert alone is not None
        assert after.digest == alone.digest


def test_a_colluding_third_with_one_vector_is_excluded_together(world: tuple[outer.OuterState, Gradients]) -> None:
    state, given = world
    for change in (times(-1), noise):
        same = change(given[WORKERS[0]], 3)
        made = judged(state, {**given, WORKERS[4]: same, WORKERS[5]: same})
        assert made.weights.keys() == set(WORKERS[:4]), made.excluded


def adaptive(given: Gradients) -> dict[str, codec.F32]:
    """Against the honest mean, as far as the rule lets two who send the same: each needs the bound with two honest."""
    units = [flat(given[worker]) / np.linalg.norm(flat(given[worker])) for worker in WORKERS[:4]]
    mean = np.sum(units, axis=0)
    low = sorted(range(4), key=lambda at: float(units[at] @ mean))[:2]
    basis = np.stack([units[at] for at in low])
    inside, *_ = np.linalg.lstsq(basis @ basis.T, np.full(2, BOUND + 1e-4), rcond=None)
    held = inside @ basis
    away = -mean + basis.T @ np.linalg.lstsq(basis @ basis.T, basis @ mean, rcond=None)[0]
    vector = held + away / np.linalg.norm(away) * np.sqrt(1 - held @ held)
    vector *= 2.9 * np.median([np.linalg.norm(flat(given[worker])) for worker in WORKERS[:4]])
    made, at = {}, 0
    for name in sorted(given[WORKERS[0]]):
        one = given[WORKERS[0]][name]
        made[name] = vector[at : at + one.size].reshape(one.shape).astype(np.float32)
        at += one.size
    return made


def test_what_a_third_that_knows_all_others_can_move(world: tuple[outer.OuterState, Gradients]) -> None:
    """Within the bounds it slows the others, and does not turn them round (docs/design/diloco.md)."""
    state, given = world
    worst = adaptive(given)
    mixed = {**given, WORKERS[4]: worst, WORKERS[5]: worst}
    made = judged(state, mixed)
    assert made.weights.keys() == set(WORKERS), made.excluded
    lengths = {worker: float(np.linalg.norm(flat(mixed[worker]))) for worker in WORKERS}
    assert float(made.weights[WORKERS[4]]) * lengths[WORKERS[4]] <= sorted(lengths.values())[2] / 6 * (1 + 1e-6)
    honest = np.mean([flat(given[worker]) for worker in WORKERS[:4]], axis=0)
    moved = np.sum([float(made.weights[worker]) * flat(mixed[worker]) for worker in WORKERS], axis=0)
    size = float(np.linalg.norm(honest))
    assert float(moved @ honest) / size**2 > 0.5
    assert float(np.linalg.norm(moved - honest)) / size < 1 / 3 * (1 + 1 / 0.8)


def test_few_contributions_and_infinite_lengths() -> None:
    assert not outer.admit([], [], ADMISSION).weights
    assert "only 1" in outer.admit(["a"], None, AdmissionConfig(minimum=3, cosine=None)).excluded["a"]
    assert outer.admit(["a", "b"], None, TRUSTED).weights == {"a": Fraction(1, 2), "b": Fraction(1, 2)}
    products = [[1.0, 1.0, math.nan], [1.0, 1.0, math.nan], [math.nan, math.nan, math.nan]]
    assert "infinity or NaN" in outer.admit(["a", "b", "c"], products, ADMISSION).excluded["c"]
    with pytest.raises(ValueError, match="outvote"):
        AdmissionConfig(minimum=2)
