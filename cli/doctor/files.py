"""Are the files in order: keys and their passwords, caches, configurations."""

import stat
from collections.abc import Iterator
from pathlib import Path

from cli.doctor.base import Prerequisite, failed, judged, note, ok
from protocol.errors import ConfigError


def look(keystores: list[Path], caches: list[Path], pool_configs: list[Path]) -> Iterator[Prerequisite]:
    for path in keystores:
        yield _keystore(path)
    for folder in caches:
        yield _cache(folder)
    for path in pool_configs:
        yield judged("pool config", lambda path=path: _pool_config(path))  # type: ignore[misc]


def _keystore(path: Path) -> Prerequisite:
    from runtime import keystore

    found = judged("keystore", lambda: keystore.address_of(path))
    if found.state == "ok" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return failed("keystore", f"{path} is open to other users", f"chmod 600 {path}")
    return ok("keystore", f"{path} holds {found.detail}") if found.state == "ok" else found


def _cache(folder: Path) -> Prerequisite:
    """Every complete version of weights in the cache against its manifest."""
    if not folder.is_dir():
        return note("cache", f"{folder} is not there yet, it is made when needed")
    from storage.weights.cache import WeightCache

    cache, damaged = WeightCache(folder), []
    versions = cache.versions()
    for digest in versions:
        manifest = cache.manifest(digest)
        if manifest is None or not cache.is_intact(manifest):
            damaged.append(digest.hex()[:12])
    if damaged:
        hint = f"remove those folders from {folder}; they are fetched again"
        return failed("cache", f"damaged versions of weights: {', '.join(damaged)}", hint)
    return ok("cache", f"{len(versions)} versions of weights intact in {folder}")


def _pool_config(path: Path) -> str:
    from protocol.config import PoolConfig

    config = PoolConfig.load(path)
    if config.work.rows > 65535:
        raise ConfigError(f"{path}: a file has {config.work.rows} rollouts, at most 65535 fit", "make files smaller")
    return f"{path}: {config.name}, SHA-256 {config.digest.hex()}"
