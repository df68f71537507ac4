"""The orchestrator's database: SQLite (WAL) by default, PostgreSQL by URL."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError, NoSuchModuleError, OperationalError
from sqlalchemy.orm import Session, sessionmaker

from orchestrator.schema import migrate
from orchestrator.tables import MetaRow
from protocol.errors import ConfigError, UnreachableError

BUSY_SECONDS = 10.0
_POOL = 16
"""Connections of a replica to PostgreSQL, at most."""
_IDLE_SECONDS = 1.0
"""A connection that nobody used for so long is asked whether it still lives, before it is used."""
Row = Sequence[str | int | float]
_text = lru_cache(maxsize=64)(text)


class Database:
    """Sessions over one engine, whose tables have this version's layout. Several replicas may share it."""

    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)
        self._readers = sessionmaker(self.engine.execution_options(reading=True), expire_on_commit=False)
        try:
            migrate(self.engine)
        except OperationalError as error:
            self.engine.dispose()
            raise UnreachableError(f"the database {_shown(url)} does not open: {error.orig}", "check the URL") from None
        except DBAPIError as error:
            self.engine.dispose()
            hint = "restore the file from a copy, or move it away: all but heartbeats and reports comes from the chain"
            raise UnreachableError(f"the database {_shown(url)} is not usable: {error.orig}", hint) from None
        except ConfigError:
            self.engine.dispose()
            raise

    @contextmanager
    def session(self) -> Iterator[Session]:
        """One transaction: committed at the end, rolled back by an exception. On SQLite it takes the write lock at
        once, so that a read followed by a write never fails with a stale snapshot."""
        with self._sessions() as session, session.begin():
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """One transaction that writes nothing, and waits for nobody who does."""
        with self._readers() as session, session.begin():
            yield session

    def rows(self, columns: Mapping[str, str]) -> str:
        """A subquery `given` with these columns (name → `text`, `int` or `float`), out of the parameter `rows` that
        `bulk` makes: many rows by one statement that never changes."""
        places = enumerate(columns.items())
        if self.is_sqlite:
            parts = [f"json_extract(value, '$[{place}]') AS {name}" for place, (name, _) in places]
            return f"(SELECT {', '.join(parts)} FROM json_each(:rows)) AS given"
        kinds = {"text": "text", "int": "bigint", "float": "float8"}
        parts = [f"CAST(value ->> {place} AS {kinds[kind]}) AS {name}" for place, (name, kind) in places]
        return f"(SELECT {', '.join(parts)} FROM json_array_elements(CAST(:rows AS json)) AS each(value)) AS given"

    @staticmethod
    def bulk(session: Session, statement: str, rows: Sequence[Row], **values: Any) -> Sequence[Any]:
        """Execute a statement over `rows`; what it returns, if it returns rows."""
        found = session.execute(_text(statement), {"rows": json.dumps(rows), **values})
        return found.all() if found.returns_rows else ()  # type: ignore[attr-defined]

    def answers(self) -> None:
        """Raise UnreachableError unless the database answers."""
        try:
            with self.reading() as session:
                session.execute(text("SELECT 1"))
        except DBAPIError as error:
            raise UnreachableError(f"the database does not answer: {error.orig}", "check the database") from None

    def bind_to(self, identity: dict[str, str]) -> None:
        """Bind a fresh database to a chain and pool; ConfigError if it already belongs to another."""
        with self.session() as session:
            for key, value in identity.items():
                row = session.get(MetaRow, key)
                if row is None:
                    session.add(MetaRow(key=key, value=value))
                elif row.value != value:
                    what = f"the database belongs to {key} {row.value}, the configuration says {value}"
                    raise ConfigError(what, "use another database URL or home folder")

    def close(self) -> None:
        self.engine.dispose()


def default_url(home: Path) -> str:
    """SQLite inside the process's home folder."""
    return f"sqlite:///{home / 'orchestrator.db'}"


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
        if backend not in ("sqlite", "postgresql"):
            raise ConfigError(f"the database {backend} is not supported", "use sqlite:///path or postgresql://…")
        sqlite = backend == "sqlite"
        if sqlite and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        shared = {"pool_size": _POOL, "max_overflow": 0}
        options: dict[str, Any] = {"connect_args": {"timeout": BUSY_SECONDS}} if sqlite else shared
        engine = create_engine(parsed, **options)
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise ConfigError(f"database URL {_shown(url)}: {error}", "use sqlite:///path or postgresql://…") from None
    except OSError as error:
        raise ConfigError(f"cannot create the folder of {_shown(url)}: {error.strerror}", "check the path") from None
    if sqlite:
        event.listen(engine, "connect", _on_connect)
        event.listen(engine, "begin", _on_begin)
    else:
        event.listen(engine, "checkout", partial(_on_checkout, engine))
        event.listen(engine, "checkin", _on_checkin)
    return engine


def _on_connect(connection: Any, _record: Any) -> None:
    # The driver's own transaction control would begin lazily and break BEGIN IMMEDIATE.
    connection.isolation_level = None
    for setting in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {setting}").close()


def _on_checkout(engine: Engine, connection: Any, record: Any, _proxy: Any) -> None:
    # SQLAlchemy's own ping comes before every transaction: another round trip for each request.
    if time.monotonic() - record.info.get("used", 0.0) < _IDLE_SECONDS:
        return
    try:
        engine.dialect.do_ping(connection)
    except engine.dialect.loaded_dbapi.Error:
        raise DisconnectionError("the connection ended while nobody used it") from None


def _on_checkin(_connection: Any, record: Any) -> None:
    record.info["used"] = time.monotonic()


def _on_begin(connection: Any) -> None:
    reading = connection.get_execution_options().get("reading")
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _shown(url: str) -> str:
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "(unreadable)"
