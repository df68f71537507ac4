"""Where kept files are shown: a bucket of the validator's own on a real S3 server, or nowhere, which is said."""

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from storage.keys import object_key
from storage.s3 import Bucket
from tests.localnet.services.running import ServiceProcess, running, settings_of
from validator.config import RepublishConfig, ServeConfig
from validator.retention import BucketServing, RetentionStore, open_serving

DATA = b"rollouts"
DIGEST = hashlib.sha256(DATA).digest()


def test_a_disputed_file_goes_into_the_validators_bucket(tmp_path: Path) -> None:
    with running(ServiceProcess("s3", tmp_path / "data")) as service:
        settings = settings_of(service)
        shelf = BucketServing(RepublishConfig(**settings.model_dump(), public_url="https://seat.example/"))
        key = object_key("rollouts", DIGEST)
        assert shelf.url(DIGEST) == f"https://seat.example/{key}"
        for _ in range(2):  # a kill before the announcement has it shown again
            shelf.show(DIGEST, DATA)
        assert Bucket(settings).get(key) == DATA


def test_without_a_place_it_says_what_that_can_cost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config: Any = SimpleNamespace(serve=None, republish=None)
    assert open_serving(config, RetentionStore(tmp_path, 1)) is None
    assert "FINED unless they can show it" in caplog.text


@pytest.mark.parametrize("url", ["ftp://x", "x", "https://x/?a=b", "https://" + "x" * 500, "https://x/#a"])
def test_a_base_that_could_not_be_announced_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        ServeConfig(listen="127.0.0.1:1", public_url=url)
