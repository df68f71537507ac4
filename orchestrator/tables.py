"""Tables of the orchestrator's database. Money is text, times are Unix seconds, addresses checksum hex."""

from typing import Any

from sqlalchemy import Index, String, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

LIMIT = 1 << 256


class Grains(TypeDecorator[int]):
    """A non-negative integer below 2²⁵⁶, stored as decimal text.

    SQLite rounds NUMERIC beyond 15 digits and its integers end at 2⁶³, so neither may carry money. Raises ValueError
    for anything that is not such an integer, in either direction.
    """

    impl = String(78)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        if value is None:
            return None
        if type(value) is not int or not 0 <= value < LIMIT:
            raise ValueError(f"an amount is an integer from 0 to 2^256 - 1, not {value!r}")
        return str(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> int | None:
        if value is None:
            return None
        if not isinstance(value, str) or not value.isascii() or not value.isdigit():
            raise ValueError(f"the database holds {value!r} where an amount should be")
        return int(value)


class Base(DeclarativeBase):
    pass


class MetaRow(Base):
    """What this database belongs to: chain, contract, pool."""

    __tablename__ = "meta"
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(Text)


class HeartbeatRow(Base):
    """The newest heartbeat of each address."""

    __tablename__ = "heartbeats"
    address: Mapped[str] = mapped_column(String(42), primary_key=True)
    role: Mapped[str] = mapped_column(String(16))
    name: Mapped[str] = mapped_column(String(64), default="")
    version: Mapped[str] = mapped_column(String(32), default="")
    engine: Mapped[str] = mapped_column(String(64), default="")
    phase: Mapped[str] = mapped_column(String(64), default="")
    step: Mapped[int | None]
    waits: Mapped[str] = mapped_column(Text, default="[]")
    metrics: Mapped[str] = mapped_column(Text, default="{}")
    first_seen: Mapped[float]
    last_seen: Mapped[float]
    beats: Mapped[int] = mapped_column(default=0)


class LeaseRow(Base):
    """A place for one file. `open` ends when the file is on chain, the lease runs out or another replaces it."""

    __tablename__ = "slots"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    node: Mapped[str] = mapped_column(String(42))
    step: Mapped[int]
    counter: Mapped[int]
    granted: Mapped[float]
    expires: Mapped[float]
    limit: Mapped[float] = mapped_column("ends")
    open: Mapped[bool] = mapped_column(default=True)
    __table_args__ = (Index("slots_open", "open", "node"),)


class UploadRow(Base):
    """An upload ticket that was issued: who may have put which bytes under which key."""

    __tablename__ = "uploads"
    key: Mapped[str] = mapped_column(String(160), primary_key=True)
    node: Mapped[str] = mapped_column(String(42), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    sha256: Mapped[str] = mapped_column(String(64))
    size: Mapped[int]
    issued: Mapped[float]
    used: Mapped[bool] = mapped_column(default=False)


class ReceiptRow(Base):
    """A signed statement that a file was in the bucket."""

    __tablename__ = "receipts"
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    node: Mapped[str] = mapped_column(String(42), primary_key=True)
    size: Mapped[int]
    time: Mapped[int]
    signature: Mapped[str] = mapped_column(String(132))


class StepReportRow(Base):
    """The trainer's report on one policy step; `body` is canonical JSON."""

    __tablename__ = "steps"
    step: Mapped[int] = mapped_column(primary_key=True)
    reported: Mapped[float]
    body: Mapped[str] = mapped_column(Text)


class ConsumedRow(Base):
    """What a step was trained on. `sha256` is the file that had this sequence when it was reported, empty if none had:
    after a reorganisation a file may return under another sequence, and another file under this one."""

    __tablename__ = "consumed"
    step: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    sha256: Mapped[str] = mapped_column(String(64), default="")


class LedgerRow(Base):
    """One account of the ledger as of the last indexed block."""

    __tablename__ = "ledger"
    address: Mapped[str] = mapped_column(String(42), primary_key=True)
    role: Mapped[str] = mapped_column(String(16), primary_key=True)
    payee: Mapped[str] = mapped_column(String(42))
    earned: Mapped[int] = mapped_column(Grains)
    pending: Mapped[int] = mapped_column(Grains)
    locked: Mapped[int] = mapped_column(Grains)
    vested: Mapped[int] = mapped_column(Grains)
    claimed: Mapped[int] = mapped_column(Grains)
    fees: Mapped[int] = mapped_column(Grains)
    slashed: Mapped[int] = mapped_column(Grains)
    block: Mapped[int]
