"""A small image with nothing but Python, and which tools are here."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox import escapes
from tools.worker_image import load, python_files, shared_libraries, write_tar

SUITE = Path(escapes.__file__).parent
INSTALL = {"podman": "apt-get install podman runc", "bwrap": "apt-get install bubblewrap", "docker": "install Docker"}


def need(program: str) -> None:
    """Skip a test whose tool is missing."""
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program} on the PATH: {INSTALL[program]}")


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The id of an image of this machine's Python."""
    need("podman")
    tar = tmp_path_factory.mktemp("image") / "python.tar"
    write_tar(tar, python_files() | shared_libraries(()))
    made = load("podman", tar, "")
    yield made
    subprocess.run(["podman", "rmi", "--force", made], capture_output=True, timeout=60, check=False)


@pytest.fixture(scope="session")
def docker_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Something that answers the docker program: its own daemon, or podman in its place."""
    need("docker")
    if subprocess.run(["docker", "version"], capture_output=True, timeout=30, check=False).returncode == 0:
        pytest.skip("a real Docker daemon has not the image that podman imported")
    need("podman")
    path = tmp_path_factory.mktemp("docker") / "socket"
    server = subprocess.Popen(["podman", "system", "service", "--time=0", f"unix://{path}"])
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = f"unix://{path}"
    try:
        for _ in range(100):
            if subprocess.run(["docker", "version"], capture_output=True, timeout=30, check=False).returncode == 0:
                break
        yield
    finally:
        if before is None:
            del os.environ["DOCKER_HOST"]
        else:
            os.environ["DOCKER_HOST"] = before
        server.kill()
        server.wait()


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the escape suite that everybody may read, and links to nothing else."""
    folder = tmp_path_factory.mktemp("suite")
    shutil.copytree(SUITE, folder / SUITE.name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder, *folder.parents):
        if path.is_relative_to("/tmp") and path != Path("/tmp") and path.stat().st_uid == os.getuid():
            path.chmod(0o755)
    return folder
