"""Where kept files are shown to whoever asks: by this process itself, or in a bucket of the validator's own."""

import logging
from abc import ABC, abstractmethod
from typing import BinaryIO

from storage.keys import object_key
from validator.config import RepublishConfig, ServeConfig, ValidatorConfig
from validator.file_server import FileServer
from validator.kept_files import KeptFiles

log = logging.getLogger("muster.validator")


class FileShelf(ABC):
    """`public_url`: the base under which strangers find what is on it, by object keys. `shown`: SHA-256 of the files
    that they may have now."""

    def __init__(self, public_url: str) -> None:
        self.public_url, self.shown = public_url.rstrip("/"), frozenset[bytes]()

    def url(self, sha256: bytes) -> str:
        return f"{self.public_url}/{object_key('rollouts', sha256)}"

    @abstractmethod
    def show(self, sha256: bytes, data: bytes) -> None:
        """Make a file reachable at its `url`. Raises MusterError."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what showing took."""


class ServedShelf(FileShelf):
    """What is disputed of all that is kept, served by this process: whether it has a file on which the votes are still
    hidden is nobody's business, and nor is its line. Raises ConfigError when it cannot listen."""

    def __init__(self, config: ServeConfig, files: KeptFiles) -> None:
        super().__init__(config.public_url)
        self._files = files
        self._server = FileServer(config.listen, self._open)
        log.info("showing kept files at %s, which has to lead to %s", self.public_url, config.listen)

    def show(self, sha256: bytes, data: bytes) -> None:
        """It is there already."""

    def _open(self, sha256: bytes) -> BinaryIO | None:
        return self._files.open(sha256) if sha256 in self.shown else None

    def close(self) -> None:
        self._server.stop()


class BucketShelf(FileShelf):
    """What was asked for, in a bucket that anybody can read."""

    def __init__(self, config: RepublishConfig) -> None:
        super().__init__(config.public_url)
        from storage.s3 import Bucket  # slow to import, and rarely needed

        self._bucket = Bucket(config)

    def show(self, sha256: bytes, data: bytes) -> None:
        self._bucket.put(object_key("rollouts", sha256), data)

    def close(self) -> None:
        """The bucket goes on without us."""


def open_shelf(config: ValidatorConfig, files: KeptFiles) -> FileShelf | None:
    """The one that the configuration names, if any. Raises ConfigError."""
    if config.serve is not None:
        return ServedShelf(config.serve, files)
    if config.republish is not None:
        return BucketShelf(config.republish)
    log.warning(
        "nothing names where this process can show the files that it judged (`serve` or `republish`): when a pool's "
        "owner stops serving one, the seats that accepted it are FINED unless they can show it"
    )
    return None
