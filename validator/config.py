"""The validator's configuration file."""

from pydantic import Field

from runtime.process import KeyConfig, ProcessConfig


class ValidatorConfig(ProcessConfig):
    """One process serves every seat of its `voters` (the chain says which), and judges each submission once for all.

    A ballot is committed at the latest `deadline_margin` seconds before the window closes, or not at all.
    """

    voters: tuple[KeyConfig, ...] = Field(min_length=1)
    deadline_margin: float = Field(3.0, ge=0)
    heartbeat_seconds: float = Field(5.0, gt=0, le=60)
    keep_steps: int = Field(4, ge=1, le=64)
