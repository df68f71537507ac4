"""The worker's configuration file."""

from pydantic import Field

from runtime.process import KeyConfig, ProcessConfig
from sandbox.policy import MIB, Wanted


class WorkerConfig(ProcessConfig):
    """A worker: one node of one pool."""

    node: KeyConfig = Field(description="The node key: it signs submissions.")
    heartbeat_seconds: float = Field(60.0, gt=0, le=600, description="Longest pause between heartbeats.")
    isolation: Wanted = Field("auto", description="How the worker is kept apart from this machine.")
    isolation_image: str = Field("", description="The container image to run, named by its digest.")
    isolation_memory: int | None = Field(
        None, ge=512 * MIB, description="Bytes that the isolated worker may use; no limit without it."
    )
