"""An owner's own program as an environment: what it may say, and what its failures are worth."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from environments.base import MAX_ANSWER_CHARS, NO_PROBLEM
from environments.program import ProgramEnvironment, template, too_slow
from environments.registry import content_path, load_environment
from protocol.config import EnvironmentConfig, ModelConfig, PoolConfig, WorkConfig
from protocol.errors import ConfigError, IntegrityError
from protocol.verdict import LANE

PROBLEM = "def problem(seed):\n    return {'question': f'{seed}?', 'answer': str(seed)}\n"
SCORE = "def score(problem, answer_text):\n    return answer_text == problem['answer']\n"
MakeEnvironment = Callable[..., ProgramEnvironment]


def written(folder: Path, source: str | bytes, **more: object) -> EnvironmentConfig:
    """The program in the folder, under its hash."""
    data = source if isinstance(source, bytes) else source.encode()
    config = EnvironmentConfig.model_validate({"name": "program", "content": hashlib.sha256(data).hexdigest(), **more})
    content_path(folder, config).write_bytes(data)
    return config


@pytest.fixture
def make(tmp_path: Path) -> MakeEnvironment:
    def made(source: str, **params: object) -> ProgramEnvironment:
        environment = load_environment(written(tmp_path, source, params=params), tmp_path)
        assert isinstance(environment, ProgramEnvironment)
        return environment

    return made


def test_the_template_makes_problems_whose_answers_are_worth_1_and_chance_is_the_same_in_every_run(
    make: MakeEnvironment,
) -> None:
    environment = make(template(), licence="CC0")
    problems = [environment.problem(seed) for seed in (0, 1, 2**64 - 1)]
    assert len({one.question for one in problems}) == 3
    for one in problems:
        assert one.question.startswith("How often")
        assert environment.score(one, f" {one.answer}\n") == 1.0
        assert environment.score(one, one.answer + "0") == 0.0
    assert environment.declared.licence == "CC0"
    assert environment.rows == 0
    question = "str([random.random(), *{*'abcdef'}])"
    source = f"import random\ndef problem(s):\n    return {{'question': {question}, 'answer': ''}}\n"
    assert make(source).problem(3) == make(source + "\n").problem(3), "global randomness and hash order"


def test_a_call_may_take_as_long_as_the_pool_says_and_no_longer(make: MakeEnvironment) -> None:
    """Counted: 60 million units of fuel, as far as a loop goes."""
    source = PROBLEM + "def score(problem, answer_text):\n    for _ in range(300_000): pass\n    return 1.0\n"
    for seconds, worth in ((None, 1.0), (0.5, 1.0), (0.01, 0.0)):
        environment = make(source, **({} if seconds is None else {"seconds": seconds}))
        assert environment.score(environment.problem(1), "x") == worth
    for wrong in (0, 0.009, 5.1, "1", True, float("nan")):
        with pytest.raises(ConfigError, match=r"`params.seconds` is"):
            make(PROBLEM + SCORE, seconds=wrong)


@pytest.mark.parametrize(
    ("body", "params", "answer", "worth"),
    [
        ("return 0.5", {}, "x", 0.0),
        ("return 0.5", {"score_threshold": 0}, "x", 0.5),
        ("print(1.0)\n    return 0", {}, "1", 0.0),
        ("return answer_text == '\\x00\\ud800\\n'", {}, "\0\ud800\n", 1.0),
        ("return answer_text.endswith('21')", {}, "1" * 120_000 + "21", 1.0),
        ("return 1.0", {}, "1" * (MAX_ANSWER_CHARS + 1), 0.0),
    ],
    ids=[
        "no partial credit",
        "partial credit",
        "what it prints is not what it says",
        "hostile text",
        "32k tokens",
        "too long",
    ],
)
def test_an_answer_is_worth(
    make: MakeEnvironment, body: str, params: dict[str, Any], answer: str, worth: float
) -> None:
    environment = make(f"{PROBLEM}def score(problem, answer_text):\n    {body}\n", **params)
    assert environment.score(environment.problem(1), answer) == worth


@pytest.mark.parametrize(
    "body",
    [
        *("1 / 0", "while True: pass", "return 'a' * 10**10", "return None", "return '1.0'", "return [1.0]"),
        *("return float('nan')", "return float('inf')", "return -1", "import os; os._exit(0)", "raise SystemExit(0)"),
        *("import os; os.write(1, b'1.0'); os._exit(1)", "f = lambda: f()\n    return f()"),
        *("open('/etc/passwd').read(); return 1.0", "print('1.0' * 10**6); return 1.0"),
    ],
)
def test_a_score_that_fails_is_worth_nothing(make: MakeEnvironment, body: str) -> None:
    environment = make(f"{PROBLEM}def score(problem, answer_text):\n    {body}\n", score_threshold=0)
    assert environment.score(environment.problem(1), "1") == 0.0


def test_metadata_reaches_the_scorer_and_the_same_answer_is_scored_once(
    make: MakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def problem(seed):\n    return {'question': '?', 'answer': '', 'metadata': {'n': [seed, 0.1]}}\n"
    environment = make(source + "def score(p, text):\n    return p['metadata'] == {'n': [int(text), 0.1]}\n")
    problem = environment.problem(2**64 - 1)
    assert environment.score(problem, str(2**64 - 1)) == 1.0
    monkeypatch.delattr(ProgramEnvironment, "_run")
    assert environment.score(problem, str(2**64 - 1)) == 1.0
    with pytest.raises(AttributeError):
        environment.score(problem, "4")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("while True: pass", "out of fuel"),
        ("return 5", "gave no dictionary, but 5"),
        ("return {'question': '?', 'answer': '', 'points': 1}", "a problem has no `points`"),
        ("return {'question': '', 'answer': ''}", "`question` is no text"),
        ("return {'question': 'x' * 70000, 'answer': ''}", "`question` is no text"),
        ("return {'question': '?', 'answer': 5}", "`answer` is no text"),
        ("return {'question': '?', 'answer': '', 'metadata': [1]}", "`metadata` is no dictionary"),
        ("return {'question': '?', 'answer': '', 'metadata': {'a': 'x' * 70000}}", "`metadata` is no dictionary"),
        ("return {'question': '?', 'answer': '', 'metadata': {'a': {1}}}", "not JSON serializable"),
        ("return {'question': '?', 'answer': '', 'metadata': {'a': float('nan')}}", "no JSON"),
        ("return {'question': '\\ud800', 'answer': ''}", "no JSON"),
        ("return {'question': 'x' * 9000000, 'answer': ''}", "too much output"),
    ],
)
def test_a_problem_that_fails_is_named(make: MakeEnvironment, body: str, said: str) -> None:
    later = "def problem(seed):\n    if seed == 0: return {'question': '?', 'answer': 'a'}\n    " + body + "\n"
    environment = make(later + "def score(problem, answer_text):\n    return 1.0\n")
    bad = environment.problem(7)
    assert said in bad.fault
    assert bad.question == NO_PROBLEM
    assert environment.score(bad, "") == 0.0
    assert environment.score(environment.problem(0), "") == 1.0


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (PROBLEM.replace("seed))", "seed // 0))").replace("str(seed)", "str(1 // seed)"), "ZeroDivisionError"),
        (SCORE, "KeyError: 'problem'"),
        ("def problem(seed:", "SyntaxError"),
        ("(" * 30_000, "makes no problem of seed 0"),
        (b"\xff", "no UTF-8"),
        (b"#" * 70_000, "too long"),
    ],
)
def test_a_program_without_a_first_problem_is_refused(tmp_path: Path, source: str | bytes, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_environment(written(tmp_path, source), tmp_path)


def test_other_bytes_than_the_hash_says_or_none_are_refused(tmp_path: Path) -> None:
    config = written(tmp_path, PROBLEM + SCORE)
    for change, said in (({"content": "0" * 64}, "there is no program"), ({"rows": 4}, "has 0 rows")):
        with pytest.raises(ConfigError, match=said):
            load_environment(config.model_copy(update=change), tmp_path)
    content_path(tmp_path, config).write_text(PROBLEM + SCORE + "\n")
    with pytest.raises(IntegrityError, match="another SHA-256"):
        load_environment(config, tmp_path)


# What a pool's programs may take of a core, at worst, and whether judges have that long.


def program(label: str, **params: Any) -> EnvironmentConfig:
    return EnvironmentConfig(name="program", label=label, content="cd" * 32, params=params)


def pool(*environments: EnvironmentConfig) -> PoolConfig:
    """Files of 4 problems, 12 rows."""
    work = WorkConfig(problems_per_file=4, samples_per_problem=3)
    return PoolConfig(name="time", model=ModelConfig(source="m"), environments=environments, work=work)


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        ((program("one", seconds=2),), f"one: scoring a lane of {LANE} files may take {LANE * (4 + 12)} calls of 2 s"),
        ((program("three", turns=3),), f"three: .* may take {LANE * (4 + 12 * 3)} calls of 0.5 s"),
        ((program("quick", seconds=0.1), program("slow", seconds=0.2)), "slow: .* calls of 0.2 s"),
    ],
)
def test_a_program_answers_or_scores_each_turn_of_each_row(programs: tuple[EnvironmentConfig, ...], said: str) -> None:
    slow = too_slow(pool(*programs), 80, 80)
    assert slow is not None
    assert re.match(said, slow.what)


def test_half_of_each_window_is_for_scoring_by_programs_alone() -> None:
    config = pool(EnvironmentConfig(name="reasoning_gym/chain_sum"), EnvironmentConfig(name="lookup"))
    assert too_slow(config, 1, 1) is None
    config = pool(program("own", seconds=1))
    lane, file = 2 * LANE * 16, 2 * 16
    assert too_slow(config, lane, file) is None
    for windows, name in (((lane - 1, file), "`commit_window`"), ((lane, file - 1), "`jury_commit_window`")):
        slow = too_slow(config, *windows)
        assert slow is not None
        assert name in slow.what
        assert name in slow.hint
        assert "\n" not in slow.what


def test_what_the_hint_says_is_taken_and_a_wrong_parameter_is_an_error() -> None:
    slow = too_slow(pool(program("own")), 100, 100)
    assert slow is not None
    seconds = float(slow.hint.removeprefix("set `params.seconds` to ").split()[0])
    assert too_slow(pool(program("own", seconds=seconds)), 100, 100) is None
    with pytest.raises(ConfigError, match="seconds"):
        too_slow(pool(program("own", seconds="long")), 100, 100)
