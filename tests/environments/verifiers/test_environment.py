"""From a package to its lock, from the lock to problems and scores on another machine, and whatever differs there."""

import hashlib
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from environments.checking import check_environment
from environments.registry import data_folder
from environments.verifiers.environment import lock_package
from environments.verifiers.install import read_lock
from localnet.plan import pool_config
from protocol.config import EnvironmentConfig
from protocol.errors import ConfigError, IntegrityError, ScoringUnavailable
from runtime.environment_files import fetch_files, publish_files
from tests.environments.verifiers.conftest import Locking, load
from tests.environments.verifiers.small import ROWS, make_wheel

SCORE = "\n    def score(answer):\n        return 0.6 * (answer == '1') + 0.9 * (answer == '2')\n"


@pytest.fixture
def locking(lock: Locking) -> Locking:
    return lambda body=SCORE, **arguments: lock(ROWS + body, **arguments)


def test_from_a_wheel_to_problems_and_scores(locking: Locking) -> None:
    lock = locking(count=4)
    assert (lock.rows, lock.library, lock.licence) == (4, "0.2.1", "MIT")
    assert all(one.carried for one in lock.wheels)
    assert hashlib.sha256((data_folder() / lock.content).read_bytes()).hexdigest() == lock.content
    environment = load(lock, score_threshold=0)
    assert environment.rows == 4
    assert (environment.declared.content, environment.declared.licence) == (lock.content, "MIT")
    problem = environment.problem(3)
    assert (problem.question, problem.answer) == ("Say 3.", "3")
    assert [environment.score(problem, text) for text in ("1", "2", "3", "\ud800", "1" * 70_000)] == [0.6, 0.9, 0, 0, 0]
    with pytest.raises(ValueError, match="row 4 of 4"):
        environment.problem(4)
    strict, full = load(lock), load(lock, full_reward=0.9)
    assert [strict.score(strict.problem(0), text) for text in ("1", "2")] == [0.0, 0.0]
    assert [full.score(full.problem(0), text) for text in ("1", "2")] == [0.0, 1.0]
    for wrong in ({"full_reward": 0}, {"full_reward": True}, {"count": 3}):
        with pytest.raises(ConfigError):
            load(lock, **wrong)


def test_other_bytes_or_another_machine_or_wheel(locking: Locking, cache: Path) -> None:
    lock = locking()
    other = lock.model_copy(update={"machine": "plan9-mips"})
    (data_folder() / other.content).write_bytes(other.document)
    with pytest.raises(ConfigError, match="locked for Python"):
        load(other)
    shutil.rmtree(cache / "muster" / "packages")
    wheel = data_folder() / lock.carried[0]
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    with pytest.raises(ConfigError, match="the wheel"):
        load(lock)
    path = data_folder() / lock.content
    path.write_bytes(other.document)
    with pytest.raises(IntegrityError):
        load(lock)
    path.unlink()
    with pytest.raises(ConfigError, match="there is no lock"):
        load(lock)


def test_rows_that_chance_decides_are_refused(locking: Locking) -> None:
    drawn = "\n    def rows(count):\n        import uuid\n        return [{'prompt': uuid.uuid4().hex, 'answer': ''}]\n"
    with pytest.raises(ConfigError, match="other ones than"):
        load(locking(SCORE + drawn))


def test_a_score_that_chance_decides_is_found_before_a_pool_has_it(locking: Locking) -> None:
    lock = locking("\n    def score(answer):\n        import os\n        return os.urandom(1)[0] / 255\n")
    partial = {"score_threshold": 0}
    config = EnvironmentConfig(name="verifiers", content=lock.content, rows=lock.rows, params=partial)
    found = check_environment(config, load(lock, **partial), data_folder(), [0, 1, 2], hostile_problems=1)
    assert found.disagreements == 3
    assert found.findings


def test_a_pool_carries_lock_and_wheels_to_another_machine(locking: Locking, cache: Path) -> None:
    lock = locking()
    one = EnvironmentConfig(name="verifiers", content=lock.content, rows=lock.rows)
    config = pool_config(7, 30).model_copy(update={"environments": (one,)})
    bucket: dict[str, bytes] = {}
    publish_files(config, Mock(put=bucket.__setitem__, size=lambda key: len(bucket[key]) if key in bucket else None))
    assert {key.rsplit("/", 1)[-1] for key in bucket} == {lock.content, *lock.carried}
    shutil.rmtree(cache)
    fetch_files(config, lambda key, limit: bucket[key])
    assert read_lock(data_folder() / lock.content, lock.content) == lock
    assert load(lock).problem(1).question == "Say 1."


def test_what_is_no_package_of_the_library_is_refused(tmp_path: Path, locking: Locking) -> None:
    own = make_wheel(tmp_path, "own", "0.1", {"own.py": ""})
    with pytest.raises(ConfigError, match="does not need verifiers"):
        lock_package(data_folder(), "own==0.1", wheels=(own,))
    with pytest.raises(ConfigError, match="is not NAME==VERSION"):
        lock_package(data_folder(), "own")
    with pytest.raises(ScoringUnavailable, match="ZeroDivisionError"):
        locking("\n    1 / 0\n")
