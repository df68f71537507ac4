"""What an installed package is, as a hash: the same wherever the same files are installed."""

import hashlib
import importlib.util
from functools import cache
from pathlib import Path

from protocol.errors import ConfigError

_MAX_BYTES = 1 << 28


@cache
def content_hash(package: str) -> str:
    """Hex SHA-256 over path and SHA-256 of each of a package's files, in order of their paths; what Python compiled
    does not count. Raises ConfigError where it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(f"the package {package} is not installed", f"pip install {package}")
    folder, total, size = Path(spec.submodule_search_locations[0]), hashlib.sha256(), 0
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    for name, path in sorted((path.relative_to(folder).as_posix(), path) for path in files):
        size += path.stat().st_size
        if size > _MAX_BYTES:
            raise ConfigError(f"the package {package} has more than {_MAX_BYTES} bytes", "install it anew")
        total.update(f"{name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()
