"""The registry: every check, in the order in which it runs. The first refusal before the prefill ends the judgement."""

from validator.checks import (
    assignment,
    commitment,
    distribution,
    duplicates,
    eos,
    header,
    logprobs,
    prompts,
    proofs,
    rewards,
    sampling,
    schema,
    termination,
    toploc,
)
from validator.checks.base import Check

CHECKS: tuple[Check, ...] = tuple(
    module.CHECK
    for module in (
        schema,
        header,
        commitment,
        assignment,
        prompts,
        termination,
        rewards,
        proofs,
        duplicates,
        logprobs,
        toploc,
        eos,
        sampling,
        distribution,
    )
)
