"""The swarm's document: what all its members have in common. Model, tokenizer and training are each member's own."""

import hashlib
from typing import Literal, Self

from pydantic import Field, model_validator

from protocol.config import ModelConfig, PoolConfig, WorkConfig
from protocol.encoding import Document, canonical_json
from protocol.environments import MAX_ENVIRONMENTS, EnvironmentConfig
from protocol.training import TrainConfig

MAX_ENVELOPE_BYTES = 32 << 20
"""Every member holds one in memory as a whole, and what it is parsed into."""
_ESCAPED = 6
"""Bytes that JSON may take for one byte of text: a control character is written as \\u and four digits."""
_AROUND_COMPLETION, _AROUND_GROUP, _AROUND_ENVELOPE = 128, 256, 1024


class SwarmDocument(Document):
    """`environments`: the problems, as in a pool's document, without targets, curricula and length penalties: a length
    in tokens means something else under every tokenizer. Of a completion's text what stands after the last
    `answer_after` is scored (all of it where that is empty).

    An envelope holds at most `groups` question groups of exactly `samples` completions of at most `text_bytes` bytes of
    UTF-8; a document that allows one of more than MAX_ENVELOPE_BYTES is refused. Its SHA-256 names the swarm in every
    envelope.
    """

    version: Literal[2] = 2
    kind: Literal["swarm"] = "swarm"
    name: str = Field(min_length=1, max_length=64)
    environments: tuple[EnvironmentConfig, ...] = Field(min_length=1, max_length=MAX_ENVIRONMENTS)
    answer_after: str = Field("", max_length=64)
    groups: int = Field(8, ge=1, le=256)
    samples: int = Field(8, ge=2, le=64)
    text_bytes: int = Field(4096, ge=1, le=1 << 16)

    @model_validator(mode="after")
    def _means_the_same_to_all(self) -> Self:
        names = [one.called for one in self.environments]
        if len(set(names)) < len(names):
            raise ValueError("two environments have one name; give them `label`s that differ")
        for one in self.environments:
            if one.targets or one.length_alpha or one.curriculum is not None:
                raise ValueError(
                    f"environment {one.called}: leave `targets`, `length_alpha` and `curriculum` out; in a swarm every "
                    "member has tokens and training of its own"
                )
        return self

    @model_validator(mode="after")
    def _fits_into_memory(self) -> Self:
        if self.envelope_bytes > MAX_ENVELOPE_BYTES:
            raise ValueError(
                f"an envelope could have {self.envelope_bytes} bytes, {MAX_ENVELOPE_BYTES} at most; lower `groups`, "
                "`samples` or `text_bytes`"
            )
        return self

    @property
    def envelope_bytes(self) -> int:
        """The longest that an envelope can be."""
        completion = _ESCAPED * self.text_bytes + _AROUND_COMPLETION
        return self.groups * (self.samples * completion + _AROUND_GROUP) + _AROUND_ENVELOPE

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical document."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).digest()

    def pool_config(self, model: ModelConfig, max_new_tokens: int, max_prompt_tokens: int) -> PoolConfig:
        """The environments as one member's model meets them. The answer's mark is the swarm's, not the model's."""
        work = WorkConfig(
            problems_per_file=self.groups,
            samples_per_problem=self.samples,
            max_new_tokens=max_new_tokens,
            max_prompt_tokens=max_prompt_tokens,
        )
        own = model.model_copy(update={"answer_after": self.answer_after})
        train = TrainConfig(files_per_step=1)
        return PoolConfig(name=self.name, model=own, environments=self.environments, work=work, train=train)
