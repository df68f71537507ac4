"""The orchestrator's database: SQLite (WAL) by default, PostgreSQL by URL."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError
from sqlalchemy.orm import Session, sessionmaker

from orchestrator.tables import Base, MetaRow
from protocol.errors import ConfigError, UnreachableError

BUSY_SECONDS = 10.0


class Database:
    """Sessions over one engine. `write` sessions on SQLite take the write lock at once, so that a read followed by a
    write in one transaction never fails with a stale snapshot."""

    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)
        try:
            Base.metadata.create_all(self.engine)
        except OperationalError as error:
            self.engine.dispose()
            raise UnreachableError(f"the database {_shown(url)} does not open: {error.orig}", "check the URL") from None
        except DBAPIError as error:
            self.engine.dispose()
            hint = "restore the file from a copy, or move it away: all but heartbeats and reports comes from the chain"
            raise UnreachableError(f"the database {_shown(url)} is not usable: {error.orig}", hint) from None

    @contextmanager
    def session(self) -> Iterator[Session]:
        """One transaction: committed at the end, rolled back by an exception."""
        with self._sessions() as session, session.begin():
            yield session

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
        options: dict[str, Any] = {"connect_args": {"timeout": BUSY_SECONDS}} if sqlite else {"pool_pre_ping": True}
        engine = create_engine(parsed, **options)
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise ConfigError(f"database URL {_shown(url)}: {error}", "use sqlite:///path or postgresql://…") from None
    except OSError as error:
        raise ConfigError(f"cannot create the folder of {_shown(url)}: {error.strerror}", "check the path") from None
    if sqlite:
        event.listen(engine, "connect", _on_connect)
        event.listen(engine, "begin", _on_begin)
    return engine


def _on_connect(connection: Any, _record: Any) -> None:
    # The driver's own transaction control would begin lazily and break BEGIN IMMEDIATE.
    connection.isolation_level = None
    for setting in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {setting}").close()


def _on_begin(connection: Any) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _shown(url: str) -> str:
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "(unreadable)"
