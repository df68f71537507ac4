"""The pool that trains a real pretrained model on this machine, and the network that does it."""

from pathlib import Path

from localnet.plan import DemoPlan, cast
from protocol.config import ChatTurn, ChecksConfig, EvaluationConfig, EvaluationSet, ModelConfig, PoolConfig, WorkConfig
from protocol.environments import EnvironmentConfig
from protocol.training import AdamWConfig, AlgorithmConfig, OptimizerConfig, TrainConfig

# Weights far enough off that thresholds as wide as bf16 arithmetic's leave no doubt.
CHEAT, CANARY = "weights-noise=0.05", "weights-noise=0.1"
ENVIRONMENT = EnvironmentConfig(
    name="reasoning_gym/basic_arithmetic",
    params={
        "min_terms": 2,
        "max_terms": 2,
        "min_digits": 2,
        "max_digits": 2,
        "operators": ["+"],
        "allow_parentheses": False,
        "allow_negation": False,
        # Of the text after the equals sign at least half is the right number: a full stop may follow it.
        "score_threshold": 0.5,
    },
)
TURNS = (
    ChatTurn(role="system", content="You are a calculator."),
    ChatTurn(role="user", content="Calculate 20 + 14."),
    ChatTurn(role="assistant", content="20 + 14 = 34"),
)


def real_config(source: str, seed: int, steps: int, checks: ChecksConfig) -> PoolConfig:
    """Sums of two numbers up to 100, after one worked example; a step takes four files of 4 problems × 8."""
    return PoolConfig(
        name=f"real-{seed}",
        model=ModelConfig(
            source=source,
            license="Apache-2.0",
            dtype="bfloat16",
            chat_template=True,
            turns=TURNS,
            answer_after="= ",
        ),
        environments=(ENVIRONMENT,),
        work=WorkConfig(problems_per_file=4, samples_per_problem=8, max_new_tokens=16, max_prompt_tokens=96),
        checks=checks,
        train=TrainConfig(
            steps=steps,
            files_per_step=4,
            async_level=1,
            optimizer=OptimizerConfig(method=AdamWConfig(learning_rate=2.5e-5)),
            # Without it the policy is nearly deterministic after ten steps, and most groups carry no signal.
            algorithm=AlgorithmConfig(entropy_coefficient=0.005),
        ),
        evaluation=EvaluationConfig(sets=(EvaluationSet(name="held-out", problems=256),)),
    )


def real_plan(root: Path, seed: int, steps: int, ports: tuple[int, int, int]) -> DemoPlan:
    """The demo's participants in bf16, with longer windows. ports: of chain, S3 and HTTP."""
    nodes, validators = cast(CHEAT, CANARY)
    return DemoPlan(
        root,
        seed,
        steps,
        *ports,
        nodes,
        validators,
        dtype="bfloat16",
        trainer_threads=2,
        trainer_row_tokens=1024,
        patience=4,
    )
