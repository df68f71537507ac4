"""`muster env`: a program to start from, what keeps an environment from being fit for a pool, and screening a file."""

import hashlib
import json
import re
from pathlib import Path
from textwrap import dedent

import pytest

from cli.pool.config import world_problems
from environments.registry import data_folder
from localnet.plan import pool_config
from protocol.config import EnvironmentConfig
from tests.cli.muster import CompletedCommand, Muster
from tests.environments.verifiers.small import ROWS, make_wheel, small_library
from tests.validator.world import tokenizer_folder

PROBLEM = "def problem(seed):\n    return {'question': f'{seed}?', 'answer': str(seed)}\n"
SCORE = "def score(problem, answer_text):\n    return answer_text == problem['answer']\n"
SOME = "--problems", "3"


@pytest.fixture
def muster(tmp_path: Path) -> Muster:
    """With this user's sandbox images: making them takes minutes."""
    (tmp_path / ".cache" / "muster").mkdir(parents=True)
    (tmp_path / ".cache" / "muster" / "sandbox").symlink_to(data_folder().with_name("sandbox"))
    return Muster(tmp_path)


def checked(muster: Muster, *args: object, code: int = 0) -> CompletedCommand:
    """It starts two processes with sandboxes of their own."""
    done = muster.run("env", "check", *args, timeout=300)
    assert done.code == code, done.out + done.err
    return done


def test_from_the_template_to_a_pools_configuration(muster: Muster, tmp_path: Path) -> None:
    path = tmp_path / "words.py"
    done = checked(muster, path, *SOME, "--new", "--keep").out
    assert "exists" in muster.refused("env", "check", path, "--new")
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    assert f'content = "{content}"' in done
    assert re.search(r"program +3 +\d+ +0 +3 +3 ", done), done
    assert (tmp_path / ".cache/muster/environments" / content).read_bytes() == path.read_bytes()
    pool = pool_config(7, 30).model_copy(update={"environments": (EnvironmentConfig(name="program", content=content),)})
    (tmp_path / "pool.json").write_text(pool.model_dump_json())
    found = checked(muster, tmp_path / "pool.json", "--problems", 1, "--json").json
    assert found["sound"]
    assert [one["content"] for one in found["environments"]] == [content]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (f"{PROBLEM}def score(*_):\n    return 1.0\n", "seed 0: the answer `hostile: nothing` scores"),
        (f"{PROBLEM}def score(*_):\n    return 0.0\n", "seed 0: the reference answer is not worth 1"),
        (PROBLEM.replace("str(seed)", "str(1 // (seed < 9))") + SCORE, "seed 18446744073709551615: no problem: ZeroD"),
    ],
)
def test_what_is_wrong_with_a_program_is_named(muster: Muster, tmp_path: Path, source: str, said: str) -> None:
    (tmp_path / "own.py").write_text(source)
    done = checked(muster, tmp_path / "own.py", *SOME, "--keep", code=1)
    assert f"PROBLEM  program: {said}" in done.out
    assert "[[environments]]" not in done.out
    assert not (tmp_path / ".cache/muster/environments").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("reasoning_gym/nothing",), "unknown dataset `nothing`"),
        (("sums",), "`sums` is no environment"),
        (("program",), "`program` is a file"),
        (("rows.parquet",), "muster env screen rows.parquet --out rows.jsonl"),
        (("none.py",), "cannot read none.py"),
        (("none.toml",), "cannot read none.toml"),
        (("a/b c",), "`name`: "),
        (("reasoning_gym/gcd", "--param", "x=1"), "no parameter `x`"),
        (("reasoning_gym/gcd", "--keep"), "--keep is for a file"),
    ],
)
def test_what_cannot_be_checked_is_refused(muster: Muster, given: tuple[str, ...], said: str) -> None:
    assert said in muster.refused("env", "check", *given)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("own.py", b"# \xff", "the program {path} is no UTF-8"),
        ("rows.jsonl", b"{}\n", "{path}, row 0: `problem_id`: Field required"),
        ("rows.jsonl", b"{}", "{path} does not end with a line"),
    ],
)
def test_the_users_own_file_is_named(muster: Muster, tmp_path: Path, name: str, data: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(data)
    told = muster.refused("env", "check", tmp_path / name)
    assert said.format(path=tmp_path / name) in told
    assert hashlib.sha256(data).hexdigest()[:16] not in told


def test_a_program_that_fails_on_some_seeds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (PROBLEM.replace("str(seed)", "str(1 // (seed < 9))") + SCORE).encode()
    config = EnvironmentConfig(name="program", content=hashlib.sha256(source).hexdigest())
    (tmp_path / config.content).write_bytes(source)
    monkeypatch.setattr("environments.registry.user_cache", lambda part: tmp_path)
    (problem,) = world_problems(pool_config(7, 30).model_copy(update={"environments": (config,)}))
    assert "makes no problem of seed 18446744073709551615: ZeroDivisionError" in str(problem)


def test_from_a_package_to_a_pools_configuration(muster: Muster, tmp_path: Path) -> None:
    scored = "\n    def score(answer):\n        return answer == '1'\n"
    library = make_wheel(tmp_path, "verifiers", "0.2.1", small_library())
    own = make_wheel(tmp_path, "own", "0.1", {"own.py": dedent(ROWS + scored)}, "verifiers")
    lock = tmp_path / "own.lock"
    done = muster.run("env", "install", own, "--wheel", library, "--arg", "count=4", "--out", lock, timeout=300)
    assert done.code == 0, done.out + done.err
    content = hashlib.sha256(lock.read_bytes()).hexdigest()
    assert f'name = "verifiers"\ncontent = "{content}"\nrows = 4' in done.out
    assert f"next: muster env check {lock}" in done.out
    assert f'content = "{content}"' in checked(muster, lock, *SOME).out
    refused = muster.run("env", "install", own, "--wheel", library, "--arg", "many=4", "--json", timeout=300)
    assert refused.code
    assert "many" in refused.err


def test_a_hostile_text_that_is_the_right_answer_wins_nothing(muster: Muster) -> None:
    """`True` is what some of these problems ask for."""
    done = muster.run("env", "check", "reasoning_gym/ransom_note", "--problems", "2", "--json")
    (found,) = done.json["environments"]
    assert (done.code, found["won"], found["hostile"]) == (0, 0, 48), found["findings"]


# Screening a file of problems


def row(number: int, prompt: str, truth: str, kind: str = "code_output_prediction") -> str:
    info = {"ground_truth": truth}
    return json.dumps({"problem_id": f"p{number}", "task_type": kind, "prompt": prompt, "verification_info": info})


def test_a_file_is_screened_kept_and_the_rest_is_named(tmp_path: Path) -> None:
    muster, out = Muster(tmp_path), tmp_path / "rows.jsonl"
    lines = [row(n, f"What does print({n}) print?" + " Really?" * (n == 3) * 40, str(n)) for n in (0, 1, 2, 3, 0)]
    lines.append("no row")
    given, config = tmp_path / "given.jsonl", tmp_path / "pool.json"
    given.write_text("\n".join(lines))
    config.write_bytes(pool_config(1, 1).canonical())
    fitting = ("--pool-config", config, "--weights", tokenizer_folder())
    assert "--weights go together" in muster.refused("env", "screen", given, "--out", out, *fitting[:2])
    found = muster.ok("env", "screen", given, "--out", out, *fitting, "--keep", "--json").json
    content = hashlib.sha256(out.read_bytes()).hexdigest()
    assert out.read_text().splitlines() == lines[:3]
    assert (found["rows"], found["kept"], found["content"]) == (6, 3, content)
    assert {name: count for name, count in found["dropped"].items() if count} == {"long": 1, "repeated": 1, "schema": 1}
    assert (tmp_path / ".cache/muster/environments" / content).read_bytes() == out.read_bytes()
    bad = [json.loads(line)["row"] for line in (tmp_path / "rows.jsonl.refused.jsonl").read_text().splitlines()]
    assert bad == [3, 4, 5]
    assert "4 of 6 rows" in muster.ok("env", "screen", given, "--out", out).out
    given.write_text("no row\n")
    assert "is no JSON" in muster.refused("env", "screen", given, "--out", out)


def test_a_reference_that_cannot_be_read_whole_is_refused(tmp_path: Path) -> None:
    """Half read it would make wrong answers right, which reinforcement learning finds."""
    muster, given, out = Muster(tmp_path), tmp_path / "given.jsonl", tmp_path / "rows.jsonl"
    references = ["7", "(1, 2", r"n \equiv 1 \pmod 4"]
    rows = [row(number, f"Problem {number}?", one, "verifiable_math") for number, one in enumerate(references)]
    given.write_text("".join(f"{one}\n" for one in rows))
    found = muster.ok("env", "screen", given, "--out", out, "--json").json
    assert (found["kept"], found["dropped"]["schema"]) == (1, 2)
    refused = [json.loads(line) for line in (tmp_path / "rows.jsonl.refused.jsonl").read_text().splitlines()]
    assert [(one["row"], "cannot be read whole" in json.dumps(one)) for one in refused] == [(1, True), (2, True)]
