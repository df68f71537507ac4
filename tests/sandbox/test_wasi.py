"""CPython on WASI: the same to the last unit of fuel, and nothing gets out of it."""

import dataclasses
import os
import resource
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from attacks.hostile import hostile
from protocol.errors import ScoringUnavailable
from sandbox import image, wasi
from sandbox.exchange import ask, end
from sandbox.image import RECIPES, ImageRecipe, bundled
from sandbox.pool import SandboxPool, packed, unpacked
from sandbox.wasi import MIB, Ending, SandboxLimits, SandboxOutcome, SandboxProgram

LIMITS = SandboxLimits(fuel=400_000_000, memory=96 * MIB, output=100_000, calls=5_000)
HOSTILE = hostile("/etc/muster-marker")
BUSY = """
import random, time, uuid
d = {str(i): hash(str(i)) for i in range(200)}
print(random.random(), time.time(), uuid.uuid4(), {*'abcdef'}, id(d), sum(d.values()))
"""


@pytest.fixture(scope="module")
def pool() -> SandboxPool:
    return SandboxPool("python", 2)


def run(pool: SandboxPool, source: str, limits: SandboxLimits = LIMITS, **more: object) -> SandboxOutcome:
    return pool.run(SandboxProgram(source, **more), limits)  # type: ignore[arg-type]


def test_a_program_is_a_main_module_that_reads_prints_and_ends_while_time_stands_still(pool: SandboxPool) -> None:
    outcome = run(pool, "import sys\nprint(sum(map(int, input().split())))\nsys.exit(3)", stdin=b"1 2 3\n")
    assert (outcome.ending, outcome.code, outcome.stdout) == (Ending.EXITED, 3, b"6\n")
    assert not outcome.succeeded
    source = "import atexit\natexit.register(print, 'bye')\nclass A: pass\nprint(A.__module__, __name__)"
    assert run(pool, source).stdout == b"__main__ __main__\nbye\n"


def test_a_function_is_called_and_its_result_is_all_that_is_printed(pool: SandboxPool) -> None:
    source = "print('noise')\nclass Solution:\n    def f(self, a, b):\n        print('noise'); return (a + b, [None])"
    outcome = run(pool, source, function="f", arguments=[1, 2.5])
    assert outcome.stdout == b"[3.5, [null]]"
    assert run(pool, "def g(): pass", function="f").code == 1


@pytest.mark.parametrize("bad", HOSTILE, ids=lambda one: one.name)
def test_hostile_programs_end_by_count_alike_and_reach_nothing(pool: SandboxPool, bad: object) -> None:
    source = bad.source  # type: ignore[attr-defined]
    first, second = run(pool, source), run(pool, source)
    assert first == second
    assert b"won" not in first.stdout
    assert first.fuel <= LIMITS.fuel
    assert first.memory <= LIMITS.memory
    assert len(first.stdout) + len(first.stderr) <= LIMITS.output
    assert not os.path.exists("/etc/muster-marker")
    assert run(pool, "print(1)").stdout == b"1\n"


@pytest.mark.parametrize(
    ("source", "ending"),
    [
        ("while True: pass", Ending.FUEL),
        ("print('x' * 200_000)", Ending.OUTPUT),
        ("import os\nwhile True: os.write(1, b'')", Ending.CALLS),
        ("import itertools\nx = iter([])\nfor _ in range(10_000): x = itertools.chain(x, [])\nlist(x)", Ending.CRASHED),
        ("x = iter([])\nfor _ in range(15_000): x = enumerate(x)\ndel x", Ending.CRASHED),
    ],
)
def test_each_limit_is_named(pool: SandboxPool, source: str, ending: Ending) -> None:
    outcome = run(pool, source)
    assert (outcome.ending, outcome.code) == (ending, -1)
    source = "import time\nt = time.time(); time.sleep(3600); print(round(time.time() - t), time.gmtime().tm_year)"
    assert run(pool, source).stdout == b"3600 2000\n"


def test_hash_seeds_clocks_and_addresses_are_the_same_in_every_process() -> None:
    """In processes of different hash seeds, time zones and locales; the whole outcome, with its fuel."""
    root = Path(__file__).parents[3]
    script = (
        "from sandbox.image import load_image, run_image\n"
        "from sandbox.wasi import SandboxLimits, SandboxProgram, code\n"
        f"image = load_image('python')\nprint(run_image(code(), image, SandboxProgram({BUSY!r}), SandboxLimits()))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONPATH": str(root), "PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": locale},
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        for seed, zone, locale in (("1", "UTC", "C"), ("2", "Asia/Tokyo", "C.UTF-8"), ("random", "EST5", "de_DE"))
    }
    assert len(found) == 1
    assert b"EXITED" in found.pop()


def test_runs_at_once_and_one_after_another_are_alike(pool: SandboxPool) -> None:
    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(lambda _: run(pool, BUSY), range(24)))
    assert len({repr(outcome) for outcome in outcomes}) == 1


def test_a_killed_process_is_replaced() -> None:
    pool = SandboxPool("python", 1)
    pool.start()
    pool._idle[0].kill()
    assert run(pool, "print(1)").stdout == b"1\n"
    pool.close()


def test_processes_that_ended_while_idle_fail_no_program() -> None:
    pool = SandboxPool("python", 3)
    pool.start(3)
    for process in pool._idle:
        process.kill()
    assert run(pool, "print(1)").stdout == b"1\n"
    pool.close()


def test_two_processes_that_end_in_a_row_are_the_machines_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise OSError("it ended")

    monkeypatch.setattr("sandbox.pool.ask", fail)
    pool = SandboxPool("python", 1)
    with pytest.raises(ScoringUnavailable, match="ended"):
        run(pool, "print(1)")
    pool.close()


def test_the_clock_on_the_wall_and_too_little_memory_are_the_machines_failure(pool: SandboxPool) -> None:
    with pytest.raises(ScoringUnavailable):
        run(pool, "print(1)", dataclasses.replace(LIMITS, memory=MIB))

    class Hurried(SandboxLimits):
        @property
        def seconds(self) -> float:
            return 0.2

    with pytest.raises(ScoringUnavailable, match="was not done within"):
        run(pool, "while True: pass", Hurried(fuel=10**12))
    assert run(pool, "print(1)").stdout == b"1\n"


def test_a_process_with_thousands_of_open_files_can_judge() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    pool = SandboxPool("python", 1)
    try:
        assert run(pool, "print(1)").stdout == b"1\n"
    finally:
        pool.close()
        for one in opened:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_is_shut_in_and_knows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a program break out of WebAssembly."""
    monkeypatch.setenv("MUSTER_SECRET", "the password")
    pool = SandboxPool("python", 1)
    pool.start()
    about = Path("/proc") / str(pool._idle[0].pid)
    assert "Seccomp:\t2" in (about / "status").read_text()
    assert "NoNewPrivs:\t1" in (about / "status").read_text()
    assert b"the password" not in (about / "environ").read_bytes()
    assert (about / "oom_score_adj").read_text() == "1000\n"
    pool.close()
    assert not about.exists()


# Images are made alike, and only the pinned ones are used.


@pytest.mark.parametrize("name", ["python", pytest.param("mathematics", marks=pytest.mark.slow)])
def test_an_image_is_what_is_pinned(name: str) -> None:
    assert image.digest(*image.build(RECIPES[name])) == RECIPES[name].sha256


@pytest.mark.parametrize("name", RECIPES)
def test_an_image_is_pinned_to_its_sources(name: str) -> None:
    """Whoever changes one of them is told so here, not by the first machine that has no image yet: print the new
    hashes with `python -m sandbox.image --pin`."""
    assert image.sources(RECIPES[name]) == RECIPES[name].sources


def test_another_image_is_not_used_and_what_fails_while_it_is_made_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(RECIPES, "python", dataclasses.replace(RECIPES["python"], warm="import wave"))
    with pytest.raises(ScoringUnavailable, match="not the pinned"):
        image.make_image("python")
    with pytest.raises(ScoringUnavailable, match="`no_such_package` is not installed"):
        bundled(ImageRecipe("x", "", packages=("no_such_package",)))
    with pytest.raises(ScoringUnavailable, match="ZeroDivisionError"):
        image.build(ImageRecipe("x", "", warm="1 / 0"))


def test_another_interpreter_or_version_of_wasmtime_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "other_runtime").mkdir()
    (tmp_path / "other_runtime" / "__init__.py").write_text("raise SystemExit('its code runs')")
    (tmp_path / "other_runtime" / wasi.PYTHON_FILE).write_bytes(b"\0asm")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(wasi, "PYTHON_PACKAGE", "other_runtime")
    wasi.source.cache_clear()
    with pytest.raises(ScoringUnavailable, match="not the pinned interpreter"):
        wasi.source()
    monkeypatch.setattr(wasi, "WASMTIME_VERSION", "1.0")
    wasi.engine.cache_clear()
    with pytest.raises(ScoringUnavailable, match=r"verdicts are defined by 1\.0"):
        wasi.engine()


@pytest.mark.parametrize("which", [pytest.param("code", marks=pytest.mark.slow), "memory", "entry"])
def test_what_is_damaged_is_made_again(which: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    image.make_image("python")
    made = [wasi.cached("code"), image._path("python"), image._path("python").with_suffix(".json")]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = wasi.cached("code").parent
    folder.mkdir(parents=True)
    for one in (one for path in made for one in path.parent.glob(f"{path.stem}.*")):
        shutil.copy(one, folder)
    damaged = folder / made[["code", "memory", "entry"].index(which)].name
    whole = damaged.read_bytes()
    middle = len(whole) // 2
    damaged.unlink()
    damaged.write_bytes(whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :])
    pool = SandboxPool("python", 1)
    assert run(pool, "print(1)").stdout == b"1\n"
    pool.close()
    assert damaged.read_bytes() == whole


# What a process answers that its program may have taken over.


FEW = SandboxLimits(fuel=100, output=10)
OUTCOME = SandboxOutcome(Ending.EXITED, 0, b"out\xff", b"err\n", 7, 65536)


@pytest.mark.parametrize(
    "line",
    [
        *(b"nonsense\n", b"{}\n", b"[1]\n", packed(OUTCOME) + packed(OUTCOME)),
        packed(dataclasses.replace(OUTCOME, stdout=b"x" * 11)),
        packed(dataclasses.replace(OUTCOME, fuel=101)),
        packed(dataclasses.replace(OUTCOME, fuel=-1)),
        packed(OUTCOME).replace(b'"exited"', b'"melted"'),
        packed(OUTCOME).replace(b'"fuel": 7', b'"fuel": 1e999'),
        packed(OUTCOME).replace(b'"out', b'"\\u2026'),
    ],
)
def test_what_cannot_be_an_outcome_is_refused(line: bytes) -> None:
    assert unpacked(packed(OUTCOME), FEW) == OUTCOME
    with pytest.raises(ScoringUnavailable, match="answers wrongly"):
        unpacked(line, FEW)


@pytest.mark.parametrize("answer", ["print('x' * 999)", "import os; os.close(1)", "import time; time.sleep(9)"])
def test_an_answer_without_an_end_is_bounded(answer: str) -> None:
    argv = [sys.executable, "-c", f"{answer}; import time; time.sleep(9)"]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with pytest.raises(OSError, match=r"does not end|ended|no answer for"):
        ask(process, b"?", 3.0, 99)
    end(process)
