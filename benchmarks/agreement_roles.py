"""`python -m benchmarks.agreement_roles ROLE FOLDER FIRST COUNT`: files of benchmarks/agreement.py by one role.

A line of JSON for each file of each pool: the scores that this role found (hex of three float32 a row), what the
validator refuses a file for, and, of the worker, which environment each row is of.
"""

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.environments import types
from chain.indexer.records import Submission
from engines.base import Completion, EngineInfo
from environments.base import Problem
from environments.checking.probe import answers_to
from environments.data import data_folder
from environments.pool import PoolEnvironments, Score
from protocol.config import ModelConfig, PoolConfig, WorkConfig
from protocol.identity import PoolId, WorkId
from protocol.models import load_tokenizer, save_byte_tokenizer
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits, commit
from protocol.seeds import AUDIT_EVERYTHING, Work
from protocol.toploc.codec import PROOF_BYTES, proof_count
from storage.keys import object_key
from trainer.data import Loader
from trainer.tiny_model import PHRASES
from validator.checks import FILE_CHECKS, rewards
from validator.context import CheckContext, SubmissionFacts
from worker.produce import FileMaker, Planned

ROLES = ("worker", "validator", "trainer")
WORK = WorkConfig(problems_per_file=16, samples_per_problem=8, max_new_tokens=768, max_prompt_tokens=32768)
ROWS_PER_FILE = WORK.rows
_ROWS, _PER_POOL = 240, 40
_NODE = "0x" + "11" * 20


class NoWeights:
    """In the place of an engine, where completions are given."""

    info = EngineInfo("transformers", "given", "float32", "cpu")

    def load(self, weights: Path) -> None:
        """Nothing is computed with them."""


class Answerer(FileMaker):
    """A worker whose completions are given: sample s of a problem is the s-th of its answers."""

    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        made = []
        for one in plan:
            texts = list(_answers(self.environment.problem(one.assignment.problem_seed)).values())
            tokens = _tokenizer().encode(texts[one.sample % len(texts)])[: self.config.work.max_new_tokens - 1]
            made.append(_completion((*tokens, self.environment.eos_ids[0])))
        return made


def _completion(tokens: tuple[int, ...]) -> Completion:
    proofs = (bytes(PROOF_BYTES),) * proof_count(len(tokens))
    return Completion(tokens, (-1.0,) * len(tokens), 0, proofs)


def _answers(problem: Problem) -> dict[str, str]:
    """Without what no tokenizer takes."""
    return {name: text.encode(errors="replace").decode() for name, text in answers_to(problem).items()}


@cache
def pools() -> tuple[PoolConfig, ...]:
    """All that is offered, in pools of as many environments as fit; their files lie where this user's do."""
    folder = data_folder()
    folder.mkdir(parents=True, exist_ok=True)
    offered = [config() for _, config in types(folder, _ROWS)]
    parts = [offered[start : start + _PER_POOL] for start in range(0, len(offered), _PER_POOL)]
    model = ModelConfig(source="given", license="none", prompt_template="{question}", answer_after="")
    return tuple(
        PoolConfig(name=f"agreement-{number}", model=model, environments=tuple(part), work=WORK)
        for number, part in enumerate(parts)
    )


@cache
def _model() -> Path:
    """A folder with a tokenizer of bytes: every text comes back as it was."""
    folder = data_folder().with_name("agreement-model")
    folder.mkdir(parents=True, exist_ok=True)
    save_byte_tokenizer(folder, PHRASES)
    tokenizer: Any = load_tokenizer(folder)
    about = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id}
    (folder / "config.json").write_text(json.dumps(about))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": tokenizer.eos_token_id}))
    return folder


@cache
def _tokenizer() -> Any:
    return load_tokenizer(_model())


def work_of(pool: int, number: int) -> Work:
    """File `number` of a pool that no chain has."""
    seed = hashlib.sha256(f"agreement {pool} {number}".encode()).digest()
    return Work(WorkId(PoolId(31337, "0x" + "22" * 20, pool), _NODE, 0, number), seed, bytes(32))


def worker(config: PoolConfig, works: Sequence[Work], folder: Path) -> Iterator[dict[str, Any]]:
    """Makes the files."""
    producer = Answerer(config, NoWeights())
    producer.load(_model())
    for work in works:
        made = producer.make(work)
        _path(folder, work).write_bytes(made.data)
        where = [producer.environment.settings(row.problem_seed).called for row in made.rollouts]
        scores = [_hex(Score(row.task_reward, row.length_penalty, row.reward)) for row in made.rollouts]
        yield {"scores": scores, "where": where}


def validator(config: PoolConfig, works: Sequence[Work], folder: Path) -> Iterator[dict[str, Any]]:
    """Checks them as before a prefill, as far as the rewards; and says what it finds the scores to be."""
    environment = PoolEnvironments.of(config, _model())
    checks = FILE_CHECKS[: FILE_CHECKS.index(rewards.judge) + 1]
    for work in works:
        content = _path(folder, work).read_bytes()
        header, rollouts = read(content, Limits.of(config.work))
        facts = SubmissionFacts(work, commit(content, rollouts), work.id.counter, bytes(32), AUDIT_EVERYTHING)
        context = CheckContext(facts, config, environment, content, header, tuple(rollouts))
        found = [check(context) for check in checks]
        refused = [f"{one.check}: {one.note}" for one in found if not one.code.is_accept]
        scores = [environment.score(row.problem_seed, row.target_length, row.output_tokens) for row in rollouts]
        yield {"scores": list(map(_hex, scores)), "refused": "; ".join(refused)}


def trainer(config: PoolConfig, works: Sequence[Work], folder: Path) -> Iterator[dict[str, Any]]:
    """Loads them as training groups, and removes them."""
    files = {hashlib.sha256(_path(folder, work).read_bytes()).digest(): _path(folder, work) for work in works}
    keys = {object_key("rollouts", digest): path for digest, path in files.items()}
    loader = Loader(config, lambda key, limit: keys[key].read_bytes(), _model())
    for work, digest in zip(works, files, strict=True):
        sub = Submission(work.id.pool.pool, work.id.counter, _NODE, 0, work.id.counter, 1, 1, digest, digest, 0, 0, "")
        scores = [Score(one.task_reward, 0.0, one.reward) for group in loader.groups(sub) for one in group]
        yield {"scores": list(map(_hex, scores))}
        files[digest].unlink()


def _path(folder: Path, work: Work) -> Path:
    return folder / f"{work.id.pool.pool}-{work.id.counter}.parquet"


def _hex(score: Score) -> str:
    return np.array([score.task_reward, score.length_penalty, score.reward], dtype="<f4").tobytes().hex()


def main(role: str, name: str, first: str, count: str) -> None:
    folder, does = Path(name), {"worker": worker, "validator": validator, "trainer": trainer}[role]
    for pool, config in enumerate(pools()):
        works = [work_of(pool, number) for number in range(int(first), int(first) + int(count))]
        for work, told in zip(works, does(config, works, folder), strict=True):
            print(json.dumps({"file": _path(folder, work).name} | told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
