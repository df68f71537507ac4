"""Files of environments: from the owner's machine to the pool's bucket, from there to every node."""

from collections.abc import Callable, Iterator
from typing import Protocol

from environments.registry import carried_files, data_folder, needs_file
from protocol.config import MAX_FILE_BYTES, EnvironmentConfig, PoolConfig
from protocol.errors import ConfigError
from protocol.files import read_bounded, write_file
from storage.keys import object_key


class EnvironmentStore(Protocol):
    """The part of a bucket that is used here."""

    def put(self, key: str, data: bytes) -> bool: ...
    def size(self, key: str) -> int | None: ...


def fetch_files(config: PoolConfig, objects: Callable[[str, int], bytes]) -> None:
    """Fetch every file that this machine lacks. `objects` checks what it fetches against the hash in the key. Raises
    what it raises, and ConfigError for an invalid lock file."""
    folder = data_folder()

    def fetch(content: str) -> None:
        path = folder / content
        if not path.is_file():
            data = objects(object_key("environments", bytes.fromhex(content)), MAX_FILE_BYTES)
            write_file(path, data, "check the folder and the room on its disk, or set XDG_CACHE_HOME")

    for one in _with_files(config):
        fetch(one.content)
        for content in carried_files(folder, one):
            fetch(content)


def publish_files(config: PoolConfig, store: EnvironmentStore) -> None:
    """Upload every file that the pool's bucket lacks. Raises ConfigError for one that neither the bucket nor this
    machine has."""
    folder = data_folder()

    def publish(called: str, content: str) -> None:
        key, path = object_key("environments", bytes.fromhex(content)), folder / content
        if store.size(key) is not None:
            return
        if not path.is_file():
            raise ConfigError(
                f"environment {called}: neither the bucket nor {folder} has the file {content[:16]}…",
                "put it there under the name of its SHA-256",
            )
        store.put(key, read_bounded(path, MAX_FILE_BYTES))

    for one in _with_files(config):
        publish(one.called, one.content)
        if (folder / one.content).is_file():
            for content in carried_files(folder, one):
                publish(one.called, content)


def _with_files(config: PoolConfig) -> Iterator[EnvironmentConfig]:
    asked = (one.environment for one in config.evaluation.sets if one.environment is not None)
    yield from (one for one in (*config.environments, *asked) if needs_file(one) and one.content)
