"""Files of environments: from the owner's machine to the pool's bucket, from there to every node."""

from collections.abc import Callable, Iterator
from pathlib import Path

from environments.registry import carried_files, data_folder, needs_file
from protocol.config import MAX_FILE_BYTES, EnvironmentConfig, PoolConfig
from protocol.errors import ConfigError
from protocol.files import read_bounded, write_file
from storage.keys import object_key
from storage.s3 import Bucket


def fetch_files(config: PoolConfig, objects: Callable[[str, int], bytes]) -> None:
    """Fetch every file that this machine lacks. `objects` checks what it fetches against the hash in the key. Raises
    what it raises, and ConfigError for an invalid lock file."""
    folder = data_folder()
    for _, content in _contents(config, folder):
        path = folder / content
        if not path.is_file():
            data = objects(object_key("environments", bytes.fromhex(content)), MAX_FILE_BYTES)
            write_file(path, data, "check the folder and the room on its disk, or set XDG_CACHE_HOME")


def publish_files(config: PoolConfig, store: Bucket) -> None:
    """Upload every file that the pool's bucket lacks. Raises ConfigError for one that neither the bucket nor this
    machine has."""
    folder = data_folder()
    for environment, content in _contents(config, folder):
        key, path = object_key("environments", bytes.fromhex(content)), folder / content
        if store.size(key) is not None:
            continue
        if not path.is_file():
            what = f"environment {environment.called}: neither the bucket nor {folder} has the file {content[:16]}…"
            raise ConfigError(what, "put it there under the name of its SHA-256")
        store.put(key, read_bounded(path, MAX_FILE_BYTES))


def _contents(config: PoolConfig, folder: Path) -> Iterator[tuple[EnvironmentConfig, str]]:
    """Yield every environment's file by its hash, then the files that it names, if it is in `folder` by then."""
    asked = (
        evaluation_set.environment
        for evaluation_set in config.evaluation.sets
        if evaluation_set.environment is not None
    )
    for environment in (*config.environments, *asked):
        if needs_file(environment) and environment.content:
            yield environment, environment.content
            if (folder / environment.content).is_file():
                yield from ((environment, content) for content in carried_files(folder, environment))
