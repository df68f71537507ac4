"""The trainer's configuration file."""

from pathlib import Path

from pydantic import Field

from runtime.process import KeyConfig, ProcessConfig
from storage.settings import S3Settings


class TrainerConfig(ProcessConfig):
    """`key` is the pool owner's: it signs manifests, publishes steps and opens canaries. `base` is the folder of policy
    step 0; without it the pool configuration's `model.source` is used (`seed` for the demo's own model).
    `carrier`: the key of a node of the owner's whose every file is a canary, and consents to that when it is opened.
    `keep_exports`: policy folders kept on disk. An accepted file that the bucket lacks for `missing_seconds` is
    skipped."""

    key: KeyConfig
    s3: S3Settings
    base: Path | None = None
    seed: int = Field(0, ge=0)
    heartbeat_seconds: float = Field(5.0, gt=0, le=60)
    keep_exports: int = Field(4, ge=2)
    carrier: KeyConfig | None = None
    missing_seconds: float = Field(60.0, ge=0)
