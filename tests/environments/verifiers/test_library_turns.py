"""The library itself in several turns, 0.2.1 as it comes from an index: tools with state, a gym, and HTTP with streams;
none of its own code is changed, and nothing in the package knows of us."""

from collections.abc import Callable
from typing import Any

import pytest

from environments.checking.compare import check_environment
from environments.data import data_folder
from environments.errors import ScoringUnavailable
from environments.verifiers.environment import VerifiersEnvironment
from environments.verifiers.install import wheel_requirement
from environments.verifiers.lock import PackageLock
from environments.verifiers.locking import AskedPackage, lock_package
from protocol.environments import EnvironmentConfig
from protocol.errors import ConfigError
from tests.environments.verifiers.boxes import boxes_wheel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
Locking = Callable[..., PackageLock]


@pytest.fixture(scope="module")
def locking(tmp_path_factory: pytest.TempPathFactory) -> Locking:
    wheel = boxes_wheel(tmp_path_factory.mktemp("wheels"))

    def locked(module: str, **arguments: object) -> PackageLock:
        asked = AskedPackage(wheel_requirement(wheel), module, arguments, wheels=(wheel,))
        return lock_package(asked, data_folder())

    return locked


def load(lock: PackageLock, **params: object) -> VerifiersEnvironment:
    partial: dict[str, Any] = {"score_threshold": 0} | params
    return VerifiersEnvironment(data_folder() / lock.content, lock.content, partial)


def opening(box: str, name: str = "open") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {{"box": "{box}"}}}}</tool_call>'


def test_tools_with_state_answer_from_the_row(locking: Locking) -> None:
    environment = load(locking("boxes"))
    turns = environment.declared.turns
    (tool,) = turns.tools
    assert (turns.most, turns.role, tool["function"]["name"]) == (3, "tool", "open")
    assert list(tool["function"]["parameters"]["properties"]) == ["box"], "what the model may not know is not in it"
    for row in (0, 63):
        problem = environment.problem(row)
        one, other = problem.question.removesuffix("?").split()[-3::2]
        said = [opening(one)]
        first = environment.reply(problem, said)
        second = environment.reply(problem, [*said, opening(other)])
        assert int(first or "") + int(second or "") == int(problem.answer)
        rollout = [*said, opening(other), problem.answer]
        assert environment.reply(problem, rollout) is None
        assert environment.score_turns(problem, rollout) == 1.0
        assert environment.score_turns(problem, [problem.answer]) == 0.6, "a guess without looking"
        assert environment.score_turns(problem, [opening(one), opening(other)]) == 0.0, "the tokens were used up"
        assert environment.reply(problem, [opening("z")]) == "'z'", "as the library words the tool's KeyError"
        assert environment.reply(problem, [opening("\\ud800")]) == "'?'", "half a character"
        assert environment.reply(problem, ["{not a call"]) is None


def test_two_processes_agree_on_every_reply_and_no_hostile_turn_wins(locking: Locking) -> None:
    lock = locking("boxes")
    params = {"score_threshold": 0}
    config = EnvironmentConfig(name="verifiers", content=lock.content, rows=lock.rows, params=params)
    found = check_environment(config, load(lock), data_folder(), [0, 1, 2, 3], hostile_problems=1)
    assert (found.disagreements, found.won, found.findings) == (0, 0, ())


def test_a_gym_plays_on_until_it_is_done(locking: Locking) -> None:
    environment = load(locking("guessing"))
    assert environment.declared.turns.most == 64, "it has a thousand"
    problem = environment.problem(2)
    assert problem.question == "Guess my number, from 0 to 99."
    low, high, said, reply = 0, 99, list[str](), ""
    while not reply.startswith("Yes."):
        said.append(str((low + high) // 2))
        reply = environment.reply(problem, said) or ""
        assert environment.score_turns(problem, said) == float(reply.startswith("Yes."))
        low, high = (int(said[-1]) + 1, high) if reply == "Higher." else (low, int(said[-1]) - 1)
    assert environment.reply(problem, [*said, "So?"]) is None, "the library's gym asks once more, then it is over"
    assert environment.score_turns(problem, [*said, "So?"]) == 1.0
    assert environment.score_turns(problem, [*said, "So?", said[-1]]) == 0.0
    assert (environment.reply(problem, ["fifty"]) or "").startswith("Action Parsing Error")


@pytest.mark.parametrize("own", [False, True], ids=["the client's own", "a client of the package's"])
def test_who_asks_over_http_is_answered_without_a_socket(locking: Locking, own: bool) -> None:
    environment = load(locking("talking", own=own))
    problem = environment.problem(1)
    assert environment.reply(problem, ["x" * 200]) == "You said 200 letters."
    assert environment.reply(problem, ["a", "bc"]) == "You said 2 letters."
    assert environment.reply(problem, ["a", "b", "c"]) is None
    assert environment.score_turns(problem, ["a", "b", "c" * 200]) == 1.0
    assert environment.score_turns(problem, ["a", "b" * 200]) == 1.0, "its client says that the context is full"


def test_what_needs_a_container_is_not_locked(locking: Locking) -> None:
    """The library's own environment with a Python shell: it wants a sandbox of a provider's."""
    with pytest.raises((ConfigError, ScoringUnavailable)):
        locking("verifiers.envs.python_env:PythonEnv")
