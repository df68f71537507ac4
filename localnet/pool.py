"""What the demo's pool promises: its configuration document and its terms on chain."""

from chain.records import Terms
from protocol.amounts import GRAINS
from protocol.audit import AUDIT_EVERYTHING
from protocol.config import PoolConfig, WorkConfig
from protocol.environments import EnvironmentConfig
from protocol.training import AdamWConfig, OptimizerConfig, TrainConfig
from trainer.tiny_model import tiny_model_config

BUDGET = 2_000 * GRAINS
STEP_BUDGET = 4 * GRAINS
"""The most that one step's files can cost, with room: full length, every fee."""
STAKE = 200 * GRAINS
RATE = GRAINS // 10_000
FEE = GRAINS // 100
DEMO_ENVIRONMENT = EnvironmentConfig(
    name="reasoning_gym/chain_sum",
    params={"min_terms": 3, "max_terms": 4, "min_digits": 1, "max_digits": 1, "score_threshold": 1.0},
)
TOOL_ENVIRONMENT = EnvironmentConfig(name="lookup")


def training(steps: int) -> TrainConfig:
    """Rollouts up to four steps old hide most of a file's way through the chain. At twice this learning rate they make
    a run oscillate; four updates a step make up for the lower one."""
    optimizer = OptimizerConfig(method=AdamWConfig(learning_rate=1.5e-4))
    return TrainConfig(steps=steps, files_per_step=4, async_level=4, minibatches=4, optimizer=optimizer)


def pool_config(seed: int, steps: int) -> PoolConfig:
    """Sums of three or four one-digit numbers; four files of 16 problems × 8 samples make a training step."""
    return PoolConfig(
        name=f"demo-{seed}",
        model=tiny_model_config(),
        environments=(DEMO_ENVIRONMENT,),
        work=WorkConfig(problems_per_file=16, samples_per_problem=8, max_new_tokens=64, max_prompt_tokens=96),
        train=training(steps),
    )


def mixed_config(seed: int, steps: int) -> PoolConfig:
    """Three environments at once: a tool that is used in up to three turns, which the base model has been shown, and
    sums and words, which it has not."""
    words = EnvironmentConfig(name="reasoning_gym/spell_backward", params={"min_word_len": 3, "max_word_len": 4})
    work = WorkConfig(problems_per_file=16, samples_per_problem=8, max_new_tokens=64, max_prompt_tokens=128)
    environments = (TOOL_ENVIRONMENT, DEMO_ENVIRONMENT, words)
    return pool_config(seed, steps).model_copy(
        update={"name": f"mixed-{seed}", "environments": environments, "work": work}
    )


def budget(steps: int) -> int:
    """What the pool's owner escrows, in grains."""
    return max(BUDGET, steps * STEP_BUDGET)


def pool_terms(config: PoolConfig, patience: int = 1) -> Terms:
    """Windows of seconds, as a test pool may have, times `patience`; production values are in chain/networks/terms/."""
    return Terms(
        rate=RATE,
        fee=FEE,
        juryFee=10 * FEE,
        minStake=STAKE,
        leverage=2,
        maxUnits=config.work.rows * config.work.max_new_tokens,
        committee=3,
        jury=5,
        appealJury=0,
        laneBlocks=1,
        attestBlocks=6,
        maxLag=config.train.async_level + 2,
        auditRate=AUDIT_EVERYTHING,
        drawBlocks=64,
        commitWindow=25 * patience,
        revealWindow=20 * patience,
        challengeWindow=20 * patience,
        appealWindow=5 * patience,
        juryCommitWindow=25 * patience,
        juryRevealWindow=20 * patience,
        receiptWindow=20 * patience,
        class_=0,
        inviteOnly=False,
        configHash=config.digest,
    )
