"""How good a policy step is: what was measured on held-out problems, signed by the pool's owner."""

import hashlib
from typing import Annotated

from pydantic import Field

from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.base import Hex64, Name, Rows, Signature, SignedBody, StepNumber, Text, UnixTime, at_most
from protocol.encoding import canonical_json
from protocol.errors import IntegrityError
from protocol.identity import PoolId

DOMAIN = "muster-evaluations"
STRUCT = "Evaluation(uint256 pool,uint256 step,bytes32 digest)"
Share = Annotated[float, Field(ge=0, le=1)]


class SetResult(SignedBody):
    """One held-out set: `average` is the mean task reward over `samples` tries at each of `problems` (avg@k), `error`
    its standard error, `by_environment` its parts where there are several environments, `passed` the chance of a
    success among k tries by k (pass@k), `length` the mean output tokens. `seconds`: what it took."""

    name: Name
    problems: int = Field(ge=1)
    samples: int = Field(ge=1)
    average: float
    error: float = Field(ge=0)
    by_environment: Annotated[dict[str, float], at_most(64)] = Field(default_factory=dict)
    passed: Annotated[dict[str, Share], at_most(16)] = Field(default_factory=dict)
    length: float = Field(ge=0)
    seconds: float = Field(ge=0)


class Evaluation(SignedBody):
    """The results of policy step `step`, whose weights are those of `manifest`, on the sets of the pool's
    configuration. An evaluation that did not happen has no results, and `skipped` says why."""

    step: StepNumber
    manifest: Hex64
    config_hash: Hex64
    time: UnixTime
    results: Rows[SetResult] = Field(default_factory=list, max_length=16)
    skipped: Text = ""


class SignedEvaluation(SignedBody):
    """`signature` is the EIP-712 signature of STRUCT, digest being SHA-256 of the canonical evaluation."""

    evaluation: Evaluation
    signature: Signature

    def check(self, pool: PoolId, owner: str) -> None:
        """Raise IntegrityError unless `owner` signed this about that pool."""
        signer = signing.recover(_digest(pool, self.evaluation), bytes.fromhex(self.signature[2:]))
        if signer != owner:
            raise IntegrityError(f"the evaluation is signed by {signer}, not by {owner}", "sign as the pool's owner")


def sign_evaluation(account: LocalAccount, pool: PoolId, evaluation: Evaluation) -> SignedEvaluation:
    """The evaluation as the owner of a pool publishes it."""
    signature = signing.sign(account, _digest(pool, evaluation))
    return SignedEvaluation(evaluation=evaluation, signature="0x" + signature.hex())


def _digest(pool: PoolId, evaluation: Evaluation) -> bytes:
    digest = hashlib.sha256(canonical_json(evaluation.model_dump(mode="json"))).digest()
    return signing.digest(pool.domain(DOMAIN), STRUCT, pool.pool, evaluation.step, digest)
