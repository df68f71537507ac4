"""The worker's configuration file."""

from pydantic import Field

from runtime.process import IsolatedConfig, KeyConfig


class WorkerConfig(IsolatedConfig):
    """A worker: one node of one pool."""

    node: KeyConfig = Field(description="The node key: it signs submissions.")
    heartbeat_seconds: float = Field(60.0, gt=0, le=600, description="Longest pause between heartbeats.")

    @property
    def keys(self) -> tuple[KeyConfig, ...]:
        return (self.node,)
