"""The orchestrator's database: SQLite (WAL) or PostgreSQL. Times are Unix seconds, addresses checksum hex."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import BigInteger, Connection, Engine, Index, String, Text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from protocol.errors import ConfigError, UnreachableError

SCHEMA_VERSION = "2"
BUSY_SECONDS = 10.0
# Connections of one process to PostgreSQL, at most: half for those who write, half for those who read.
_POOL_SIZE = 16
# PostgreSQL's advisory lock while a replica creates the tables: "muster" in ASCII.
_CREATION_LOCK = 0x6D7573746572


class Base(DeclarativeBase):
    pass


class MetaRow(Base):
    """The schema's version, and what this database belongs to: chain, contract, pool."""

    __tablename__ = "meta"
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(Text)


class HeartbeatRow(Base):
    """The newest heartbeat of each address; `body` is JSON."""

    __tablename__ = "heartbeats"
    address: Mapped[str] = mapped_column(String(42), primary_key=True)
    last_seen: Mapped[float]
    body: Mapped[str] = mapped_column(Text)
    __table_args__ = (Index("heartbeats_last_seen", "last_seen"),)


class LeaseRow(Base):
    """Permission to make one file, `open` until it runs out or is replaced; `change` numbers its newest change."""

    __tablename__ = "leases"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    node: Mapped[str] = mapped_column(String(42))
    step: Mapped[int]
    counter: Mapped[int]
    granted: Mapped[float]
    expires: Mapped[float]
    limit: Mapped[float] = mapped_column("ends")
    open: Mapped[bool] = mapped_column(default=True)
    change: Mapped[int] = mapped_column(BigInteger)
    __table_args__ = (
        Index("leases_open", "open", "expires"),
        Index("leases_change", "change"),
        Index("leases_granted", "granted"),
    )


class LeaseChangeRow(Base):
    """One row: the number of the newest change to any lease. Whoever changes leases locks it until the end of the
    transaction, so changes become visible in the order of their numbers."""

    __tablename__ = "lease_changes"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(BigInteger)


class NonceRow(Base):
    """A nonce that an address used; `id` is a hash of both."""

    __tablename__ = "nonces"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    expires: Mapped[float]
    __table_args__ = (Index("nonces_expires", "expires"),)


class UploadRow(Base):
    """An upload ticket that was issued: who may put an object under which key."""

    __tablename__ = "tickets"
    key: Mapped[str] = mapped_column(String(160), primary_key=True)
    node: Mapped[str] = mapped_column(String(42), primary_key=True)
    issued: Mapped[float]
    used: Mapped[bool] = mapped_column(default=False)
    __table_args__ = (Index("tickets_node", "node", "issued"),)


class ReceiptRow(Base):
    """When a node was first given the receipt for a file in the bucket."""

    __tablename__ = "receipt_times"
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    node: Mapped[str] = mapped_column(String(42), primary_key=True)
    time: Mapped[int]


class SubmissionRow(Base):
    """A node's signed submission that the chain does not show yet; `body` is its SubmissionRequest. `reason`: why the
    contract refused it when it was last `tried`, empty for one that it did not."""

    __tablename__ = "submissions"
    node: Mapped[str] = mapped_column(String(42), primary_key=True)
    counter: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    received: Mapped[float]
    tried: Mapped[float] = mapped_column(default=0.0)
    reason: Mapped[str] = mapped_column(Text, default="")
    body: Mapped[str] = mapped_column(Text)


class MembershipRow(Base):
    """A node's newest signed wish to join or leave; `body` is its JoinRequest or LeaveRequest. `lent`: when stake was
    lent to it, 0 if none was. `reason`: why the wish could not be fulfilled at the last try."""

    __tablename__ = "memberships"
    node: Mapped[str] = mapped_column(String(42), primary_key=True)
    joins: Mapped[bool]
    received: Mapped[float]
    lent: Mapped[float] = mapped_column(default=0.0)
    done: Mapped[bool] = mapped_column(default=False)
    reason: Mapped[str] = mapped_column(Text, default="")
    body: Mapped[str] = mapped_column(Text)
    __table_args__ = (Index("memberships_done", "done", "received"),)


class StepReportRow(Base):
    """The trainer's report on one policy step; `body` is canonical JSON."""

    __tablename__ = "step_reports"
    step: Mapped[int] = mapped_column(primary_key=True)
    reported: Mapped[float]
    body: Mapped[str] = mapped_column(Text)


class ConsumedRow(Base):
    """A file that a step was trained on. `sha256` is the file that had this sequence when it was reported, empty if
    none had: after a reorganisation a file may return under another sequence, and another file under this one."""

    __tablename__ = "consumed"
    step: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    sha256: Mapped[str] = mapped_column(String(64), default="")


class Database:
    """Sessions over one engine whose tables have this version's schema. Raises ConfigError for an unusable URL or a
    database of another version, UnreachableError if it does not open."""

    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        # The dialect's `insert`, which knows ON CONFLICT.
        self.insert: Callable[..., Any] = sqlite.insert if self.is_sqlite else postgresql.insert
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)
        # Connections of their own: whoever reads within a change must not wait for those who wait for that change.
        self._reading_engine = _engine(url).execution_options(reading=True)
        self._readers = sessionmaker(self._reading_engine, expire_on_commit=False)
        with ExitStack() as stack:
            stack.callback(self.close)
            try:
                _create_tables(self.engine)
            except OperationalError as error:
                what = f"the database {_shown(url)} does not open: {error.orig}"
                raise UnreachableError(what, "check the URL") from None
            except DBAPIError as error:
                hint = "restore it from a copy, or move it away: all but heartbeats and reports comes from the chain"
                raise UnreachableError(f"the database {_shown(url)} is not usable: {error.orig}", hint) from None
            stack.pop_all()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Open one transaction: committed at the end, rolled back by an exception. On SQLite it takes the write lock
        at once, so that a read followed by a write never fails with a stale snapshot."""
        with self._sessions() as session, session.begin():
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open one transaction that writes nothing and waits for no writer."""
        with self._readers() as session, session.begin():
            yield session

    def check(self) -> None:
        """Raise UnreachableError unless the database answers."""
        try:
            with self.reading() as session:
                session.execute(sa.text("SELECT 1"))
        except SQLAlchemyError as error:
            raise UnreachableError(f"the database does not answer: {error}", "check the database") from None

    def bind_to(self, identity: dict[str, str]) -> None:
        """Bind a fresh database to a chain and pool. Raises ConfigError if it already belongs to another."""
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
        self._reading_engine.dispose()


def default_url(home: Path) -> str:
    """Return the URL of an SQLite database inside the process's home folder."""
    return f"sqlite:///{home / 'orchestrator.db'}"


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "postgresql":
            return sa.create_engine(parsed, pool_size=_POOL_SIZE // 2, max_overflow=0, pool_pre_ping=True)
        if parsed.get_backend_name() != "sqlite":
            raise ValueError("this kind is not supported")
        if parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        engine = sa.create_engine(parsed, connect_args={"timeout": BUSY_SECONDS})
    except (ArgumentError, NoSuchModuleError, ValueError, OSError) as error:
        raise ConfigError(f"database URL {_shown(url)}: {error}", "use sqlite:///path or postgresql://…") from None

    @sa.event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: Any) -> None:
        # The driver's own transaction control would begin lazily and break BEGIN IMMEDIATE.
        connection.isolation_level = None
        for setting in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {setting}").close()

    @sa.event.listens_for(engine, "begin")
    def on_begin(connection: Any) -> None:
        reading = connection.get_execution_options().get("reading")
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    return engine


def _create_tables(engine: Engine) -> None:
    """Create the tables, unless a replica has. Raises ConfigError for another version's."""
    with engine.execution_options(reading=True).connect() as connection:
        if _version(connection) == SCHEMA_VERSION:
            return
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _CREATION_LOCK})
        version = _version(connection)
        if version is None:
            Base.metadata.create_all(connection)
            connection.execute(sa.insert(MetaRow).values(key="schema", value=SCHEMA_VERSION))
            connection.execute(sa.insert(LeaseChangeRow).values(id=1, number=0))
        elif version != SCHEMA_VERSION:
            what = f"the database has schema {version}, this version of muster needs {SCHEMA_VERSION}"
            raise ConfigError(what, "use the version that made it, or another database")


def _version(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table(MetaRow.__tablename__):
        return None
    return connection.scalar(sa.select(MetaRow.value).where(MetaRow.key == "schema")) or "unknown"


def _shown(url: str) -> str:
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "(unreadable)"
