"""What status commands show, as pure functions of the projected state: JSON-ready dictionaries."""

from typing import Any


def picked(record: object, *names: str) -> dict[str, Any]:
    """The attributes of a record that a view shows as they are."""
    return {name: getattr(record, name) for name in names}
