"""The library itself, as it comes from an index: 0.2.1 with an environment of its own, 0.4.0 with a taskset."""

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from environments.registry import data_folder
from environments.verifiers.environment import lock_package
from environments.verifiers.install import PackageLock, installed, wheel_requirement
from environments.verifiers.process import PackageProcess
from protocol.errors import ConfigError, MusterError, ScoringUnavailable
from tests.environments.verifiers.boxes import boxes_wheel
from tests.environments.verifiers.conftest import Locking, load
from tests.environments.verifiers.small import make_wheel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
SUMS = """
    import verifiers.v1 as vf


    class SumData(vf.TaskData):
        answer: str


    class SumTask(vf.Task[SumData]):
        @vf.reward(weight=0.8)
        async def right(self, trace: vf.Trace) -> float:
            if trace.last_reply == "memory":
                raise MemoryError
            if trace.last_reply == "mistake":
                raise ValueError
            return float(trace.last_reply == self.data.answer)

        @vf.reward(weight=0.2)
        async def short(self, trace: vf.Trace) -> float:
            return float(len(trace.last_reply) < 9)
"""
TASKSET = """

    class SumConfig(vf.TasksetConfig):
        count: int = 3


    class SumTaskset(vf.Taskset[SumTask, SumConfig]):
        def load(self):
            for n in range(self.config.count):
                data = SumData(prompt=f"{n} + {n} =", system_prompt="Only the number.", answer=str(2 * n))
                yield SumTask(data, self.config.task)


    __all__ = ["SumTaskset"]
"""
MACHINE = """

    class SumTask(SumTask):
        @vf.reward(weight=1.0)
        async def looked(self, trace: vf.Trace, runtime: vf.Runtime) -> float:
            return 1.0
"""
ENDLESS = TASKSET.replace("def load", "INFINITE = True\n\n        def load")


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of tasksets for the 0.4 library."""
    files = {"sums": SUMS + TASKSET, "sums_machine": SUMS + MACHINE + TASKSET, "sums_endless": SUMS + ENDLESS}
    modules = {f"{name}.py": dedent(text) for name, text in files.items()}
    return make_wheel(tmp_path_factory.mktemp("wheels"), "sums", "0.1", modules, "verifiers==0.4.0")


@pytest.fixture(scope="module")
def taskset(sums: Path) -> PackageLock:
    return lock_package(data_folder(), wheel_requirement(sums), "sums", {"count": 4}, wheels=(sums,))


@pytest.fixture
def started(taskset: PackageLock, request: pytest.FixtureRequest) -> Iterator[PackageProcess]:
    load = {"load": request.param, "arguments": {}, "split": "train"}
    process = PackageProcess("sums", installed(taskset, data_folder()), load)
    yield process
    process.close()


def test_a_taskset_of_the_newer_library(taskset: PackageLock) -> None:
    assert (taskset.rows, taskset.library) == (4, "0.4.0")
    environment = load(taskset, score_threshold=0)
    problem = environment.problem(3)
    assert (problem.question, problem.answer) == ("Only the number.\n\n3 + 3 =", "6")
    scores = [environment.score(problem, text) for text in ("6", "7", "a long wrong answer", "mistake")]
    assert scores == [1.0, 0.2, 0.0, 0.0]
    with pytest.raises(ScoringUnavailable, match="MemoryError"):
        environment.score(problem, "memory")


@pytest.mark.parametrize(
    ("started", "said"),
    [("sums_machine", "look into a machine"), ("sums_endless", "no last task"), ("sums:SumTaskset", "inside a module")],
    indirect=["started"],
)
def test_tasksets_that_cannot_be_verified_are_refused(started: PackageProcess, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        started.load()


@pytest.mark.parametrize(
    ("started", "error", "said"),
    [
        ("textarena", ScoringUnavailable, "textarena requires nltk and textarena"),
        ("harbor", ConfigError, "it brings an environment of several agents"),
        ("openenv", ScoringUnavailable, "pass `env` or `base_url`"),
        ("nemo_gym", ScoringUnavailable, "NeMoGymConfig?dataset?  Field required"),
    ],
    indirect=["started"],
)
def test_the_librarys_tasksets_need_more_than_answers(
    started: PackageProcess, error: type[MusterError], said: str
) -> None:
    """A game's engine, containers, a server, a data set of its own: none of them is one prompt and one answer."""
    with pytest.raises(error, match=re.escape(said)):
        started.load()


# The library itself in several turns, 0.2.1 as it comes from an index: tools with state, a gym;
# none of its own code is changed, and nothing in the package knows of us.


@pytest.fixture(scope="module")
def locking(tmp_path_factory: pytest.TempPathFactory) -> Locking:
    wheel = boxes_wheel(tmp_path_factory.mktemp("wheels"))

    def locked(module: str, **arguments: object) -> PackageLock:
        return lock_package(data_folder(), wheel_requirement(wheel), module, arguments, wheels=(wheel,))

    return locked


def opening(box: str, name: str = "open") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {{"box": "{box}"}}}}</tool_call>'


def test_tools_with_state_answer_from_the_row(locking: Locking) -> None:
    environment = load(locking("boxes"), score_threshold=0)
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


def test_a_gym_plays_on_until_it_is_done(locking: Locking) -> None:
    environment = load(locking("guessing"), score_threshold=0)
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


def test_what_needs_a_container_is_not_locked(locking: Locking) -> None:
    """The library's own environment with a Python shell: it wants a sandbox of a provider's."""
    with pytest.raises((ConfigError, ScoringUnavailable)):
        locking("verifiers.envs.python_env:PythonEnv")
