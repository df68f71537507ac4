from collections.abc import Iterator

import pytest

from storage.s3 import Bucket
from tests.localnet.services.running import ServiceProcess, running, settings_of


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running(ServiceProcess("s3", tmp_path_factory.mktemp("swift") / "data")) as service:
        yield service


@pytest.fixture(scope="module")
def bucket(s3: ServiceProcess) -> Bucket:
    return Bucket(settings_of(s3))
