"""The worker's configuration file."""

from pydantic import Field

from runtime.process import KeyConfig, ProcessConfig
from sandbox.policy import MIB, Wanted


class WorkerConfig(ProcessConfig):
    """`node` is the node key: it signs submissions and pays their gas. Pay vested is claimed every `claim_seconds`.
    `isolation`: how it is kept apart from this machine (docs/design/sandbox.md); containers run `isolation_image`, named by
    its digest; `isolation_memory`: bytes, None for no limit."""

    node: KeyConfig
    claim_seconds: float = Field(30.0, gt=0)
    heartbeat_seconds: float = Field(60.0, gt=0, le=600)
    isolation: Wanted = "auto"
    isolation_image: str = ""
    isolation_memory: int | None = Field(None, ge=512 * MIB)
