"""The Triton kernels against NumPy: in the interpreter where triton is installed, and on a GPU where one is."""

import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

CASE = """
import sys
import numpy as np, torch
from protocol.sampling import cuda, noise
device = sys.argv[1]
cuda.BLOCKS = int(sys.argv[2])
source = np.random.default_rng(0)
for vocabulary, temperature in ((1, 1.0), (7, 0.3), (265, 0.7), (3000, 1.0), (9000, 1.5)):
    logits = (source.standard_normal((6, vocabulary)) * 2).astype(np.float32)
    keys = [tuple(int(word) for word in source.integers(0, 2**64, 3, dtype=np.uint64)) for _ in range(6)]
    positions = [0, 1, 2, 3, 2**40, 5]
    expected = noise.choose(logits, keys, positions, temperature)
    tokens, logprobs = cuda.choose(torch.from_numpy(logits).to(device), keys, positions, temperature)
    assert tokens.tolist() == expected.tokens.tolist(), vocabulary
    assert np.abs(logprobs - expected.logprobs).max() < 1e-5
    if vocabulary < 2:
        continue
    given = np.append(expected.tokens[:3], source.integers(0, vocabulary, 3)), keys, positions, temperature
    judged = logits.copy()
    judged[5, given[0][5]] = -np.inf
    right = noise.verify_rows(judged, *given)
    found = noise.Gaps(*cuda.verify(torch.from_numpy(judged).to(device), *given))
    assert found.best.tolist() == right.best.tolist()
    assert not found.gaps[:3].any()
    for name, values in vars(right).items():
        np.testing.assert_allclose(getattr(found, name), values, rtol=1e-5, atol=1e-5, err_msg=name)
    if vocabulary < 265:
        continue
    words, places = cuda.signed_words(keys).to(device), torch.tensor(positions, device=device)
    temperatures = torch.tensor([temperature, 0.0] * 3, dtype=torch.float64, device=device)
    forced = torch.from_numpy(logits).to(device)
    tokens, logprobs = cuda.race(forced, words, places, temperatures, force=True)
    assert tokens.tolist() == [int(token) if row % 2 == 0 else -1 for row, token in enumerate(expected.tokens)]
    assert forced[::2].argmax(1).tolist() == expected.tokens[::2].tolist()
    assert np.array_equal(forced[1::2].cpu().numpy(), logits[1::2])
    forced[2, 5] = float("nan")
    assert np.isfinite(cuda.race(forced, words, places, temperatures)[1].cpu().numpy()[[0, 2]]).tolist() == [False] * 2
"""
# Interpreted, a row takes some hundredths of a second: every processor takes its share of them.
ROWS = """
import sys
import numpy as np, torch
from triton.runtime import interpreter
from protocol.sampling import cuda, noise
patch, patched = interpreter._patch_lang, set()
def once(fn):  # instead of at every call of an inner function
    if fn.__module__ not in patched:
        patched.add(fn.__module__)
        once.kept = patch(fn)
    return interpreter._LangPatchScope()
interpreter._patch_lang = once
share, of, total = map(int, sys.argv[1:])
source = np.random.default_rng(share)
sizes = (500, 64, 60), (2000, 256, 25), (9000, 2048, 10), (32000, 4096, 4), (152064, 32768, 1)  # the last: a hundredth
for vocabulary, blocks, part in sizes:
    cuda.BLOCKS, left = blocks, -(-total * part // (100 * of))
    while left:
        rows = min(left, 64)
        left -= rows
        logits = (source.standard_normal((rows, vocabulary)) * source.uniform(0.5, 8)).astype(np.float32)
        keys = [tuple(int(word) for word in source.integers(0, 2**64, 3, dtype=np.uint64)) for _ in range(rows)]
        places = [int(place) for place in source.integers(0, 2**63, rows)]
        heats = source.uniform(0.3, 1.5, rows)
        given = cuda.signed_words(keys), torch.tensor(places), torch.from_numpy(heats)
        tokens, logprobs = cuda.race(torch.from_numpy(logits), *given)
        for row in range(rows):
            right = noise.choose(logits[row : row + 1], keys[row : row + 1], places[row : row + 1], float(heats[row]))
            assert tokens[row] == right.tokens[0], (vocabulary, keys[row], places[row], heats[row])
            assert abs(logprobs[row] - right.logprobs[0]) < 1e-5
"""
# The first pass may be wrong by a thousandth; a GPU's approximate logarithm takes a two-hundredth of that.
ERRORS = """
import numpy as np, torch, triton
import triton.language as tl
from protocol.sampling import cuda
@triton.jit
def both(x, rough, exact, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    number = tl.load(x + at).to(tl.uint64)
    tl.store(rough + at, cuda._exponential32(number))
    tl.store(exact + at, cuda._exponential(number))
starts = 0, 1 << 8, 1 << 16, 1 << 24, 1 << 30, 1 << 31, 3 << 30, (1 << 32) - 256
edges = [start + step for start in starts for step in range(256)]
some = np.random.default_rng(0).integers(0, 1 << 32, (1 << 20) - len(edges))
x = torch.from_numpy(np.concatenate([edges, some]))
rough, exact = torch.empty(1 << 20, dtype=torch.float32), torch.empty(1 << 20, dtype=torch.float64)
both[(1,)](x, rough, exact, SIZE=1 << 20)
assert (rough.double().log() - exact.log()).abs().max() < 1e-5
"""
COMPILE = """
import sys, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from protocol.sampling import cuda
kinds = dict.fromkeys(("logits", "best", "top", "total"), "*fp32")
kinds |= dict.fromkeys(("keys", "positions", "tokens"), "*i64")
kinds |= dict.fromkeys(("temperatures", "logprobs", "scores"), "*fp64")
race = {"BLOCKS": 128, "PARTS": 256}
races = [(cuda._race, race | {"FORCE": forced}) for forced in (True, False)]
kernels = [(cuda._sieve, {"BLOCKS": 128}), (cuda._score, {}), *races]
for kernel, constants in kernels:
    signature = {name: kinds.get(name, "constexpr" if name in constants else "i32") for name in kernel.arg_names}
    source = ASTSource(kernel, signature, constexprs={(kernel.arg_names.index(n),): v for n, v in constants.items()})
    assert triton.compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32)).asm["cubin"]
"""
PEER = Path(__file__).parents[3] / "build" / "peers-triton"
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None and not PEER.is_dir(), reason="Triton is missing (make peers)"
)


def run(case: str, *arguments: str, **environment: str) -> None:
    command = [sys.executable, "-c", case, *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(PEER), *sys.path])} | environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def run_rows(count: int, shares: int) -> None:
    with ThreadPoolExecutor(shares) as pool:
        every = [
            pool.submit(run, ROWS, str(share), str(shares), str(count), TRITON_INTERPRET="1", OMP_NUM_THREADS="1")
            for share in range(shares)
        ]
    for one in every:
        one.result()


@needs_triton
def test_in_the_interpreter() -> None:
    run(CASE, "cpu", "1024", TRITON_INTERPRET="1")


@needs_triton
def test_a_sample_of_random_rows_is_chosen_as_numpy_does() -> None:
    run_rows(100, 1)


@needs_triton
@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_a_hundred_thousand_random_rows_are_chosen_as_numpy_does() -> None:
    run_rows(100_000, os.cpu_count() or 1)


@needs_triton
def test_the_first_pass_stays_far_within_its_slack(tmp_path: Path) -> None:
    file = tmp_path / "errors.py"  # Triton reads a kernel's source from its file
    file.write_text(ERRORS)
    run(f"import runpy; runpy.run_path({str(file)!r})", TRITON_INTERPRET="1")


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("capability", ["80", "89", "90", "100", "120"])
def test_it_compiles_for(capability: str) -> None:
    run(COMPILE, capability)


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    run(CASE, "cuda", "128")
