"""The library itself, as it comes from an index: 0.2.1 with an environment of its own, 0.4.0 with a taskset."""

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from environments.data import data_folder
from environments.errors import ScoringUnavailable
from environments.verifiers.environment import VerifiersEnvironment
from environments.verifiers.install import installed, wheel_requirement
from environments.verifiers.lock import PackageLock
from environments.verifiers.locking import AskedPackage, lock_package
from environments.verifiers.process import PackageProcess
from protocol.errors import ConfigError, MusterError
from tests.environments.verifiers.wheels import make_wheel

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
    return lock_package(AskedPackage(wheel_requirement(sums), "sums", {"count": 4}, wheels=(sums,)), data_folder())


@pytest.fixture
def started(taskset: PackageLock, request: pytest.FixtureRequest) -> Iterator[PackageProcess]:
    load = {"load": request.param, "arguments": {}, "split": "train"}
    process = PackageProcess("sums", installed(taskset, data_folder()), load)
    yield process
    process.close()


def test_an_environment_of_the_older_library(tmp_path: Path) -> None:
    """The library's own adapter of reasoning_gym, which nobody here wrote, with its own system prompt and rubric."""
    load = "verifiers.envs.integrations.reasoninggym_env:ReasoningGymEnv"
    sizes = {"num_train_examples": 40, "num_eval_examples": 7}
    asked = AskedPackage("verifiers[rg]==0.2.1", load, {"gym": "chain_sum"} | sizes, build=True)
    lock = lock_package(asked, data_folder())
    assert (lock.rows, lock.library) == (40, "0.2.1")
    environment = VerifiersEnvironment(data_folder() / lock.content, lock.content, {"score_threshold": 0})
    for row in (0, 17, 39):
        problem = environment.problem(row)
        right = eval(problem.question.rsplit(":", 1)[1].removesuffix("="))
        said = [f"I think.\n<answer>\n{right}\n</answer>", f"<answer>{right + 1}</answer>", str(right), ""]
        assert [environment.score(problem, text) for text in said] == [1.0, 0.0, 0.0, 0.0]


def test_a_taskset_of_the_newer_library(taskset: PackageLock) -> None:
    assert (taskset.rows, taskset.library) == (4, "0.4.0")
    environment = VerifiersEnvironment(data_folder() / taskset.content, taskset.content, {"score_threshold": 0})
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
    with pytest.raises(ConfigError) as error:
        started.load()
    assert said in error.value.what


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
def test_tasksets_that_the_library_brings_need_more_than_an_answer(
    started: PackageProcess, error: type[MusterError], said: str
) -> None:
    """A game's engine, containers, a server, a data set of its own: none of them is one prompt and one answer."""
    with pytest.raises(error) as found:
        started.load()
    assert said in found.value.what
