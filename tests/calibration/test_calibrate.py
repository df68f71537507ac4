"""`muster pool calibrate` on a tiny real model: measured, signed, checked, applied, and sharp enough."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from attacks.weights import altered, noisy
from calibration.measuring import context_of
from cli.pool.config import pool_file
from engines.hf import TransformersEngine
from environments.pool import PoolEnvironments
from protocol.config import PoolConfig
from tests.cli.muster import Key, Muster, make_key
from tests.validator import tiny
from validator.judging.pipeline import judge
from worker.produce import Producer

pytestmark = pytest.mark.timeout(600)
WORK = tiny.CONFIG.work.model_copy(update={"problems_per_file": 8, "samples_per_problem": 4})
CONFIG = tiny.CONFIG.model_copy(update={"work": WORK})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Muster, Key, Path]:
    """A folder with `made.json`, a calibration of the fp32 pool `pool.json`."""
    home = tmp_path_factory.mktemp("calibrate")
    pool(home / "pool.json", CONFIG)
    muster, key = Muster(home), make_key(home, "owner")
    measure(muster, key, (4, 16), "--pool-config", home / "pool.json", "--out", home / "made.json", "--files", 24)
    return muster, key, home


def pool(path: Path, config: PoolConfig) -> None:
    path.write_text(config.model_dump_json())


def measure(muster: Muster, key: Key, batches: tuple[int, ...], *options: object) -> None:
    decoded = [word for batch in batches for word in ("--batch", batch)]
    asked = ("--weights", tiny.model_folder(), *decoded, *key.options, *options)
    done = muster.run("pool", "calibrate", *asked, timeout=400)
    assert done.code == 0, done.err


def codes(config: PoolConfig, weights: Path, dtype: str, count: int) -> list[str]:
    """Verdicts on fresh files of a worker that computes with `weights`."""
    worker, verifier = TransformersEngine(dtype, max_batch=8), TransformersEngine(dtype, max_batch=5)
    producer = Producer(config, worker)
    producer.load(weights)
    verifier.load(tiny.model_folder())
    environment, out = PoolEnvironments.of(config, tiny.model_folder()), []
    for counter in range(count):
        work = replace(tiny.work_of(counter), step_seed=b"\x17" * 32)
        made = producer.make(work)
        facts = context_of(work, made.data, config, environment).facts
        out.append(judge(facts, made.data, config, environment, verifier).code.label)
    return out


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("dtype", "noise"), [("float32", 0.001), ("bfloat16", 0.01)])
def test_thresholds_pass_honest_files_and_see_noise(
    place: tuple[Muster, Key, Path], tmp_path: Path, dtype: str, noise: float
) -> None:
    muster, key, _ = place
    config = CONFIG.model_copy(update={"model": CONFIG.model.model_copy(update={"dtype": dtype})})
    pool(tmp_path / "pool.json", config)
    options = ("--pool-config", tmp_path / "pool.json", "--out", tmp_path / "made.json", "--files", 32)
    measure(muster, key, (1, 16), *options, "--apply", tmp_path / "pool.json")
    config = PoolConfig.load(tmp_path / "pool.json")
    assert set(codes(config, tiny.model_folder(), dtype, 12)) <= {"accept", "unsure"}
    with altered(tiny.model_folder(), lambda tensors: noisy(tensors, noise)) as cheat:
        assert all(code.startswith("reject") for code in codes(config, cheat, dtype, 6))


def test_anybody_can_check_a_calibration(place: tuple[Muster, Key, Path]) -> None:
    muster, key, home = place
    shown = muster.ok("pool", "calibrate", "--verify", home / "made.json", "--signer", key.address, "--json").json
    assert shown["signer"] == key.address
    assert shown["heldout"] == {"files": shown["heldout"]["files"], "over": 0, "bound": 3 / shown["heldout"]["files"]}
    assert shown["pairs"][0]["files"] + shown["heldout"]["files"] == 24
    assert "reject at" in muster.ok("pool", "calibrate", "--verify", home / "made.json").out


def test_a_calibration_is_applied_only_to_its_pool(place: tuple[Muster, Key, Path], tmp_path: Path) -> None:
    muster, _, home = place
    mine, other = tmp_path / "mine.json", tmp_path / "other.json"
    pool(mine, CONFIG)
    pool(other, tiny.CONFIG)
    muster.ok("pool", "calibrate", "--verify", home / "made.json", "--apply", mine)
    wanted = json.loads((home / "made.json").read_text())["thresholds"]
    assert wanted.items() <= PoolConfig.load(mine).checks.model_dump().items()
    commented = tmp_path / "mine.toml"
    commented.write_text(pool_file(CONFIG, {}))
    comments = [line for line in commented.read_text().splitlines() if line.startswith("# ")]
    muster.ok("pool", "calibrate", "--verify", home / "made.json", "--apply", commented)
    assert PoolConfig.load(commented) == PoolConfig.load(mine)
    assert [line for line in commented.read_text().splitlines() if line.startswith("# ")] == comments
    before = other.read_text()
    said = muster.refused("pool", "calibrate", "--verify", home / "made.json", "--apply", other)
    assert "another model, task or work" in said
    assert other.read_text() == before


def test_changed_measurements_are_found(place: tuple[Muster, Key, Path], tmp_path: Path) -> None:
    muster, _, home = place
    document = json.loads((home / "made.json").read_text())
    document["thresholds"]["sampling_gap_reject"] *= 2
    (tmp_path / "changed.json").write_text(json.dumps(document))
    assert "is not signed by" in muster.refused("pool", "calibrate", "--verify", tmp_path / "changed.json")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--pool-config"),
        (("--pool-config", "none.json", "--weights", ".", "--out", "o"), "none.json"),
        (("--verify", "none.json"), "none.json"),
        (("--verify", "none.json", "--weights", "."), "measures nothing"),
        (("--worker", "abacus"), "'abacus' is not an engine"),
        (("--worker", "vllm:float16"), "is not an engine"),
        (("--worker", "vllm", "--worker", "vllm", "--verifier", "vllm"), "no pairs"),
        (("--false-reject", "0.5"), "outside"),
        (("--false-reject", "nan"), "outside"),
        (("--files", "9"), "too few"),
        (("--weights", "/tmp/nowhere"), "not a model folder"),
        (("--out", "/proc/x/y.json"), "choose another --out"),
        (("--signer", "0x12"), "--signer"),
        (("--password-file", "nowhere"), "nowhere"),
    ],
)
def test_wrong_options_are_said_in_one_line(
    place: tuple[Muster, Key, Path], options: tuple[str, ...], said: str
) -> None:
    muster, key, home = place
    base: tuple[object, ...] = ()
    if options and not {"--verify", "--pool-config"} & set(options):
        base = ("--pool-config", home / "pool.json", "--weights", tiny.model_folder(), "--out", home / "new.json")
        base += key.options
    assert said in muster.refused("pool", "calibrate", *base, *options)
    assert not (home / "new.json").exists()
