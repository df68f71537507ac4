"""The worker's configuration file."""

from pydantic import Field

from runtime.process import KeyConfig, ProcessConfig


class WorkerConfig(ProcessConfig):
    """`node` is the node key: it signs submissions and pays their gas. Pay vested is claimed every `claim_seconds`."""

    node: KeyConfig
    claim_seconds: float = Field(30.0, gt=0)
    heartbeat_seconds: float = Field(5.0, gt=0, le=60)
