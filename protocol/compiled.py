"""Loops that numpy has no words for, compiled by numba on their first call and kept in the user's cache.

The folder there is named by a hash of the sources of the function's package: numba itself would not notice that a
function inlined from another file has changed.
"""

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from protocol.files import user_cache

F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def _folder(package: Path) -> str:
    digest = hashlib.sha256()
    for source in (Path(__file__), *sorted(package.glob("*.py"))):
        digest.update(source.read_bytes())
    return str(user_cache("compiled") / digest.hexdigest()[:16])


def compiled(function: F, **options: Any) -> F:
    """Compile for one thread, without the interpreter's lock. As in C, integers wrap and indices are not checked."""
    folder = _folder(Path(function.__code__.co_filename).parent)
    kept, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folder
    try:
        return cast(F, numba.njit(function, cache=True, nogil=True, **options))
    except RuntimeError:  # no writable cache: compile in every process
        return cast(F, numba.njit(function, nogil=True, **options))
    finally:
        numba.config.CACHE_DIR = kept
