"""A pool with a curriculum whose files are judged on a real chain, with its bucket on a real S3 server; the trainer's
own code makes the tables."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dataset.curriculum import CheckedMask, check_mask
from engines.base import FINISH_EOS
from environments.pool import PoolEnvironments
from protocol.accounts import LocalAccount
from protocol.config import Curriculum, PoolConfig, ProblemFilter, WorkConfig
from protocol.curriculum import MASK_FILE, CurriculumMask
from protocol.models import load_tokenizer
from protocol.rollout_file.file import write
from protocol.rollout_file.rows import Commitment, Rollout, RolloutHeader, commit
from protocol.seeds import Work, assignments
from protocol.verdict import Code
from storage.keys import object_key
from storage.weights.fetch import OpenObject
from tests.dataset.world import JudgedPool
from tests.validator.world import CONFIG as PLAIN
from tests.validator.world import tokenizer_folder
from trainer.data.curriculum import MaskWriter

LEARN = Curriculum(tries=4, lowest=250, highest=750, window=2, most=900)
ENVIRONMENT = PLAIN.environments[0].model_copy(
    update={"problems": ProblemFilter.of(14, tuple(range(1, 13))), "curriculum": LEARN}
)
CONFIG = PoolConfig(
    name="learning",
    model=PLAIN.model,
    environments=(ENVIRONMENT,),
    work=WorkConfig(problems_per_file=12, samples_per_problem=4, max_new_tokens=40),
)
RIGHT = {0: 4, 1: 0, 2: 2}
"""Of four answers to a problem, how many are right, by its number modulo three: easy, hard, fitting."""


@dataclass
class LearningPool(JudgedPool):
    """`folder` holds policy steps as a trainer keeps them; `node` joined before step 0."""

    folder: Path
    digests: list[bytes] = field(default_factory=list)
    node: LocalAccount = field(init=False)

    def __post_init__(self) -> None:
        self.bucket.put(object_key("configs", CONFIG.digest), CONFIG.canonical())

    def tables(self, objects: OpenObject | None = None, **waits: Any) -> MaskWriter:
        """A trainer's that has just begun, with the pool's bucket unless it is to have another."""
        waits = {"confirmations": 0, "patience": 0.0} | waits
        return MaskWriter(CONFIG, self.game.pool, lambda: self.game.state, objects or self.bucket.get, **waits)

    def step_folder(self, step: int) -> Path:
        return self.folder / f"step-{step}"

    def publish(self, forged: CurriculumMask | None = None) -> int:
        """The next policy step with its table, or a forged one."""
        step = len(self.digests)
        folder = self.step_folder(step)
        shutil.copytree(tokenizer_folder(), folder)
        (folder / "weights").write_text(json.dumps(step))
        self.tables().write(step, folder)
        if forged is not None:
            (folder / MASK_FILE).write_bytes(forged.encoded(CONFIG))
        self.digests.append(self.publish_folder(folder, step, self.digests[-1] if self.digests else None))
        return step

    def table(self, step: int) -> CurriculumMask:
        found = CurriculumMask.load(CONFIG, self.step_folder(step))
        assert found is not None
        return found

    def masked(self, step: int) -> dict[int, int]:
        """Number of a problem → 1 if it is masked as too hard, 2 as too easy."""
        return {number: code for number, code in enumerate(self.table(step).codes[0]) if code}

    def file(self, work: Work, table: CurriculumMask) -> tuple[bytes, Commitment]:
        """A file whose answers are right as `RIGHT` says, drawn by `table`."""
        rows = rows_of(work, table)
        data = write(RolloutHeader(work, "hf 1", "float32", "cpu"), rows)
        return data, commit(data, rows)

    def submit(self, node: LocalAccount, step: int, code: Code) -> None:
        """A file of the node's, on chain and judged with this vote."""
        sub = self.hand_in(node, step, *self.file(self.work(node, step), self.table(step)))
        self.game.vote(sub.lane, {0: int(code)})

    def check(self, step: int) -> CheckedMask:
        """What a stranger finds who has chain and bucket."""
        return check_mask(self.source, self.bucket.get, step)


def environment(folder: Path) -> PoolEnvironments:
    return PoolEnvironments.of(CONFIG, tokenizer_folder()).at(folder)


def rows_of(work: Work, table: CurriculumMask) -> list[Rollout]:
    book = PoolEnvironments.of(CONFIG, tokenizer_folder())
    tokenizer, rows = load_tokenizer(tokenizer_folder()), []
    for task in assignments(work, CONFIG, table):
        right = RIGHT[ENVIRONMENT.number(task.problem_seed) % 3]
        for sample in range(CONFIG.work.samples_per_problem):
            answer = book.problem(task.problem_seed).answer if sample < right else "x"
            output = (*tokenizer.encode(f"</think>{answer}"), book.eos_ids[0])
            score = book.score(task.problem_seed, 0, output)
            assert (score.task_reward == 1.0) == (sample < right)
            prompt, logs = book.prompt(task.problem_seed, 0), (-1.5,) * len(output)
            proofs = (b"\xff\xd9" + bytes(256),) * -(-len(output) // 32)
            what = (task.slot, sample, task.problem_seed, 0, prompt, output, FINISH_EOS, logs)
            rows.append(Rollout(*what, score.task_reward, score.length_penalty, score.reward, proofs))
    return rows
