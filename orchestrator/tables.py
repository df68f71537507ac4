"""Tables of the orchestrator's database. Times are Unix seconds, addresses checksum hex."""

from sqlalchemy import BigInteger, Index, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class MetaRow(Base):
    """What this database belongs to: chain, contract, pool."""

    __tablename__ = "meta"
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(Text)


class HeartbeatRow(Base):
    """The newest heartbeat of each address; `body` is JSON."""

    __tablename__ = "newest_heartbeats"
    address: Mapped[str] = mapped_column(String(42), primary_key=True)
    last_seen: Mapped[float]
    body: Mapped[str] = mapped_column(Text)


class LeaseRow(Base):
    """A place for one file. `open` ends when the file is on chain, the lease runs out or another replaces it; `change`
    is the number of the newest change to it (`LeaseChangeRow`)."""

    __tablename__ = "slots"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    node: Mapped[str] = mapped_column(String(42))
    step: Mapped[int]
    counter: Mapped[int]
    granted: Mapped[float]
    expires: Mapped[float]
    limit: Mapped[float] = mapped_column("ends")
    open: Mapped[bool] = mapped_column(default=True)
    change: Mapped[int] = mapped_column(BigInteger, default=1, server_default="1")
    __table_args__ = (Index("slots_open", "open", "node"), Index("slots_change", "change"))


class LeaseChangeRow(Base):
    """One row: the number of the newest change to any lease. Who changes leases holds a lock on it until the end of the
    transaction, so changes become visible in the order of their numbers."""

    __tablename__ = "lease_changes"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(BigInteger)


class NonceRow(Base):
    """A nonce that an address used; `id` is a hash of both."""

    __tablename__ = "nonces"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    expires: Mapped[float]
    __table_args__ = (Index("nonces_expiry", "expires"),)


class UploadRow(Base):
    """An upload ticket that was issued: who may have put an object under which key."""

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


class StepReportRow(Base):
    """The trainer's report on one policy step; `body` is canonical JSON."""

    __tablename__ = "steps"
    step: Mapped[int] = mapped_column(primary_key=True)
    reported: Mapped[float]
    body: Mapped[str] = mapped_column(Text)


class FileTriesRow(Base):
    """What an accepted file says of its problems; `tries` is canonical JSON: [environment, number, tried, solved] of
    each. A function of the file alone, so it never changes; which files count is the chain's word."""

    __tablename__ = "file_tries"
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    tries: Mapped[str] = mapped_column(Text)


class ConsumedRow(Base):
    """What a step was trained on. `sha256` is the file that had this sequence when it was reported, empty if none had:
    after a reorganisation a file may return under another sequence, and another file under this one."""

    __tablename__ = "consumed"
    step: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    sha256: Mapped[str] = mapped_column(String(64), default="")
