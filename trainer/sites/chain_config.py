"""Where a run of sites stands on a chain, and what a process of it does there."""

from pathlib import Path

from pydantic import Field

from protocol.documents import Document


class RunOnChain(Document):
    """Number `run` of a deployment's runs. What the chain says is read every `refresh_seconds`. `accuse`: whether two
    signed statements that contradict one another are shown to the contract by this process's key, which pays the
    gas and gets the reward."""

    run: int = Field(ge=1, lt=1 << 256)
    refresh_seconds: float = Field(5.0, gt=0, le=3600)
    accuse: bool = True


class RunChainConfig(RunOnChain):
    """The same with the deployment's file and the chain's endpoints."""

    deployment: Path
    rpc: tuple[str, ...] = Field(min_length=1)
