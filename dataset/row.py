"""One row of a data set: a rollout with its scores, and everything that ties it to the chain."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Self

import pyarrow as pa
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from protocol.api.base import Hex64
from protocol.encoding import canonical_json, parse_json
from protocol.errors import IntegrityError, first_problem
from protocol.proofs.codec import PROOF_BYTES
from protocol.rollouts import merkle
from protocol.rollouts.rowbytes import encode_row
from protocol.rollouts.schema import Rollout

Small = Annotated[int, Field(ge=0, lt=1 << 31)]
Word = Annotated[int, Field(ge=0, lt=1 << 64)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Proof = Annotated[bytes, Field(min_length=PROOF_BYTES, max_length=PROOF_BYTES)]


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """Hashes are hex without 0x, addresses EIP-55. `problem`: the environment's own seed of the problem that
    `problem_seed` stands for. `finish`: 0 for EOS, 1 for the length limit. `row` counts in the file that the node
    submitted; `leaf` and `siblings` lead from it to `file_root`. `verdict`: the outcome; `votes`: those that were
    opened, and `verdicts`: the hashes of the documents behind them. docs/datasets.md describes every column."""

    environment: str
    problem: Word
    prompt: str
    completion: str
    task_reward: Finite
    length_penalty: Finite
    reward: Finite
    finish: Small
    target_length: Small
    prompt_tokens: tuple[Small, ...]
    output_tokens: tuple[Small, ...]
    logprobs: tuple[Finite, ...]
    problem_seed: Word
    slot: Small
    sample: Small
    chain_id: Word
    pools: str
    pool: Word
    policy_step: Small
    manifest: Hex64
    node: str
    submission: Word
    counter: Small
    verdict: str
    votes: tuple[str, ...]
    verdicts: tuple[Hex64, ...]
    file_sha256: Hex64
    file_root: Hex64
    row: Small
    leaf: Hex64
    siblings: tuple[Hex64, ...]
    proofs: tuple[Proof, ...]

    __pydantic_config__ = ConfigDict(extra="forbid")

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands: rows are in order of this."""
        return self.submission, self.row

    def computed_leaf(self) -> bytes:
        """The Merkle leaf of what the row says. Raises IntegrityError if no rollout says such a thing."""
        shared = {field.name: getattr(self, field.name) for field in fields(Rollout)}
        try:
            return merkle.leaf(encode_row(Rollout(**shared)))
        except Exception as error:  # struct and numpy refuse what does not fit in many ways
            raise IntegrityError(f"it is no rollout: {type(error).__name__}", "") from None

    def line(self) -> bytes:
        """The row as one line of JSONL."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["proofs"] = [base64.b64encode(proof).decode() for proof in self.proofs]
        return canonical_json(values) + b"\n"

    @classmethod
    def parse_line(cls, line: bytes) -> Self:
        """The inverse for hostile bytes. Raises IntegrityError."""
        try:
            values = parse_json(line)
            values["proofs"] = [base64.b64decode(proof, validate=True) for proof in values["proofs"]]
        except (ValueError, TypeError, KeyError):
            raise IntegrityError("it is not JSON with the columns of a row", "") from None
        return cls.of(values)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """A row from a stranger's columns. Raises IntegrityError naming the column."""
        try:
            return _ROW.validate_python(values)  # type: ignore[return-value]
        except ValidationError as error:
            field, problem = first_problem(error.errors())
            raise IntegrityError(f"column `{field}`: {problem}", "") from None


_ROW = TypeAdapter(DatasetRow)


def _list(of: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", of, nullable=False))


_KINDS: dict[str, pa.DataType] = {
    **dict.fromkeys(("task_reward", "length_penalty", "reward"), pa.float32()),
    **dict.fromkeys(("finish", "target_length", "slot", "sample", "policy_step", "counter", "row"), pa.int32()),
    **dict.fromkeys(("problem", "problem_seed", "chain_id", "pool", "submission"), pa.uint64()),
    **dict.fromkeys(("prompt_tokens", "output_tokens"), _list(pa.int32())),
    **dict.fromkeys(("votes", "verdicts", "siblings"), _list(pa.string())),
    "logprobs": _list(pa.float32()),
    "proofs": _list(pa.binary()),
}
SCHEMA = pa.schema(
    [pa.field(one.name, _KINDS.get(one.name, pa.string()), nullable=False) for one in fields(DatasetRow)]
)
