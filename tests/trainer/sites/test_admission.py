"""Real pseudo-gradients of sites with different data, and a third of them hostile: who counts, and what moves."""

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
import torch

from protocol.sites.admission import admit_by_products
from protocol.sites.config import AdmissionConfig, SitesConfig
from protocol.sites.layout import F32
from protocol.sites.outer import OuterState
from tests.trainer.sites.training import TASKS, SiteModel, pseudo_gradient
from trainer.sites.replica import judge, settle

CONFIG = SitesConfig(inner_steps=10, shards=3)
BOUND = 0.05
SITES = [f"0x{number:040x}" for number in range(1, 7)]
Vector = np.ndarray[tuple[int], np.dtype[np.float64]]
Given = dict[str, dict[str, F32]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[OuterState, Given]:
    """A model after 120 steps on all tasks, and what six sites make of it in 10 steps of their own: 4 in 9 lines of
    each are of the site's own task."""
    torch.set_num_threads(1)
    site = SiteModel(tmp_path_factory.mktemp("model") / "base")
    weights = site.train(site.weights, TASKS, 5, 120, 3e-3)
    given = {}
    for number, name in enumerate(SITES):
        mixture = [TASKS[number]] * 3 + list(TASKS)
        given[name] = pseudo_gradient(weights, site.train(weights, mixture, 100 + number, 10, 1e-3))
    return OuterState.start(weights), given


def times(factor: float) -> Callable[[dict[str, F32], int], dict[str, F32]]:
    return lambda tensors, _: {name: (np.float32(factor) * one).astype(np.float32) for name, one in tensors.items()}


def noise(tensors: dict[str, F32], seed: int) -> dict[str, F32]:
    """As long as what it stands for."""
    dice = np.random.default_rng(seed)
    made = {name: dice.standard_normal(one.shape).astype(np.float32) for name, one in tensors.items()}
    return times(float(np.linalg.norm(line(tensors)) / np.linalg.norm(line(made))))(made, 0)


def one_nan(tensors: dict[str, F32], seed: int) -> dict[str, F32]:
    made = {name: one.copy() for name, one in tensors.items()}
    next(iter(made.values())).reshape(-1)[seed] = np.nan
    return made


def line(tensors: dict[str, F32]) -> Vector:
    return np.concatenate([tensors[name].reshape(-1).astype(np.float64) for name in sorted(tensors)])


def test_no_honest_site_is_excluded(world: tuple[OuterState, Given]) -> None:
    state, given = world
    for count in (3, 4, 5, 6):
        for some in combinations(SITES, count):
            made = judge(state, {site: given[site] for site in some}, CONFIG)
            assert made.shares.keys() == set(some), made.excluded
            assert not made.excluded


HOSTILE = {
    "zeros": (times(0), "zero"),
    "flipped": (times(-1), "cosine"),
    "ten times": (times(10), "length"),
    "a hundredth": (times(0.01), "length"),
    "flipped and scaled": (times(-2.5), "cosine"),
    "noise": (noise, "cosine"),
    "nan": (one_nan, "NaN"),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize(("count", "bad"), [(3, 1), (4, 1), (6, 2)])
def test_up_to_a_third_hostile_never_move_the_weights(
    world: tuple[OuterState, Given], kind: str, count: int, bad: int
) -> None:
    """Whoever they are: the state after is that of the honest ones alone, to the bit."""
    state, given = world
    change, word = HOSTILE[kind]
    for hostile in combinations(SITES[:count], bad):
        mixed = {site: given[site] for site in SITES[:count] if site not in hostile}
        honest = dict(mixed)
        mixed |= {site: change(given[site], SITES.index(site)) for site in hostile}
        if count == 3:
            made = judge(state, mixed, CONFIG)
            assert not made.complete, "two are left: fewer than count"
            assert word in made.excluded[hostile[0]]
            assert all("only 2 count" in made.excluded[site] for site in honest)
            assert settle(state, mixed, CONFIG) is None
            continue
        made = judge(state, mixed, CONFIG)
        assert made.shares.keys() == honest.keys(), made.excluded
        assert all(word in made.excluded[site] for site in hostile)
        after, alone = settle(state, mixed, CONFIG), settle(state, honest, CONFIG)
        assert after is not None
        assert alone is not None
        assert after.digest == alone.digest


def test_a_colluding_third_with_one_vector_is_excluded_together(world: tuple[OuterState, Given]) -> None:
    state, given = world
    for change in (times(-1), noise):
        same = change(given[SITES[0]], 3)
        made = judge(state, {**given, SITES[4]: same, SITES[5]: same}, CONFIG)
        assert made.shares.keys() == set(SITES[:4]), made.excluded


def adaptive(given: Given) -> dict[str, F32]:
    """Against the honest mean, as far as the rule lets two who send the same: each needs the bound with two honest."""
    units = [line(given[site]) / np.linalg.norm(line(given[site])) for site in SITES[:4]]
    mean: Vector = np.sum(units, axis=0)
    low = sorted(range(4), key=lambda at: float(units[at] @ mean))[:2]
    basis = np.stack([units[at] for at in low])
    inside, *_ = np.linalg.lstsq(basis @ basis.T, np.full(2, BOUND + 1e-4), rcond=None)
    held = inside @ basis
    away = -mean + basis.T @ np.linalg.lstsq(basis @ basis.T, basis @ mean, rcond=None)[0]
    vector = held + away / np.linalg.norm(away) * np.sqrt(1 - held @ held)
    vector *= 2.9 * np.median([np.linalg.norm(line(given[site])) for site in SITES[:4]])
    made, at = {}, 0
    for name in sorted(given[SITES[0]]):
        one = given[SITES[0]][name]
        made[name] = vector[at : at + one.size].reshape(one.shape).astype(np.float32)
        at += one.size
    return made


def test_what_a_third_that_knows_all_others_can_move(world: tuple[OuterState, Given]) -> None:
    """Figures of docs/sites.md: within the bounds it slows the others, and does not turn them round."""
    state, given = world
    worst = adaptive(given)
    mixed = {**given, SITES[4]: worst, SITES[5]: worst}
    made = judge(state, mixed, CONFIG)
    assert made.shares.keys() == set(SITES), made.excluded
    lengths = {site: float(np.linalg.norm(line(mixed[site]))) for site in SITES}
    assert float(made.shares[SITES[4]]) * lengths[SITES[4]] <= sorted(lengths.values())[2] / 6 * (1 + 1e-6)
    honest: Vector = np.mean([line(given[site]) for site in SITES[:4]], axis=0)
    moved: Vector = np.sum([float(made.shares[site]) * line(mixed[site]) for site in SITES], axis=0)
    size = float(np.linalg.norm(honest))
    assert float(moved @ honest) / size**2 > 0.5
    assert float(np.linalg.norm(moved - honest)) / size < 1 / 3 * (1 + 1 / 0.8)


def test_ties_and_few() -> None:
    config = AdmissionConfig()
    assert not admit_by_products([], [], config).complete
    assert "only 1" in admit_by_products(["a"], [[1.0]], AdmissionConfig(minimum=3, cosine=None)).excluded["a"]
    trusted = AdmissionConfig(minimum=1, cosine=None)
    assert admit_by_products(["a", "b"], [[0.0, 0.0], [0.0, float("nan")]], trusted).shares == {"a": 1}


def test_two_cannot_outvote_one_another() -> None:
    with pytest.raises(ValueError, match="outvote"):
        AdmissionConfig(minimum=2)
