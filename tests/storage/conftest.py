from collections.abc import Iterator

import pytest

from storage.s3 import Bucket
from tests.localnet.services.running import ServiceProcess, running, settings_of
from tests.storage.weights.stepping import Origin


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running(ServiceProcess("s3", tmp_path_factory.mktemp("swift") / "data")) as service:
        yield service


@pytest.fixture(scope="module")
def bucket(s3: ServiceProcess) -> Bucket:
    return Bucket(settings_of(s3))


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Origin:
    return Origin(tmp_path_factory.mktemp("steps"), steps=6, snapshots=(0, 4))


@pytest.fixture
def origin(published: Origin) -> Iterator[Origin]:
    """Six steps, of which nothing was read yet; whatever a test does to the objects is undone."""
    kept = dict(published.objects)
    published.read.clear()
    yield published
    published.objects, published.before = kept, lambda key: None
