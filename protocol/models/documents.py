"""The JSON files of a stranger's model folder, before any library reads them.

transformers and vLLM read them with `json`, which a hundred kilobytes of brackets can make end the process.
"""

from pathlib import Path
from typing import Any

from protocol.encoding import parse_json
from protocol.errors import IntegrityError

MAX_JSON_BYTES = 64 << 20
REFETCH = "fetch the weights again"


def check_documents(folder: Path) -> None:
    """Raise IntegrityError unless every `*.json` of the folder is JSON of bounded size and depth."""
    for path in sorted(folder.glob("*.json")):
        read_document(path)


def read_object(path: Path, limit: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """The same, if it is an object."""
    value = read_document(path, limit)
    if not isinstance(value, dict):
        raise IntegrityError(f"{path} holds no JSON object", REFETCH)
    return value


def read_document(path: Path, limit: int = MAX_JSON_BYTES) -> Any:
    """What a JSON file holds. Raises IntegrityError if it is missing, larger than `limit` bytes, or not JSON."""
    try:
        if path.stat().st_size > limit:
            raise IntegrityError(f"{path} is larger than {limit >> 10} KiB", REFETCH)
        return parse_json(path.read_bytes())
    except OSError as error:
        what = f"{path.parent} is not a model folder: {error.strerror or error} ({path.name})"
        raise IntegrityError(what, REFETCH) from None
    except ValueError as error:
        raise IntegrityError(f"{path} is not JSON: {str(error)[:200]}", REFETCH) from None
