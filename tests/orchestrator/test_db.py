"""Amounts survive any size exactly; the database says whose it is; PostgreSQL behaves the same."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, text
from sqlalchemy.exc import StatementError

from orchestrator.db import Database, default_url
from orchestrator.tables import LedgerRow
from protocol.errors import ConfigError, MusterError
from tests.conftest import free_port

BINARIES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    db = Database(default_url(tmp_path_factory.mktemp("db")))
    yield db
    db.close()


def row(amount: int) -> LedgerRow:
    names = ("earned", "pending", "locked", "vested", "claimed", "fees", "slashed")
    return LedgerRow(address="0x1", role="worker", payee="0x2", block=1, **dict.fromkeys(names, amount))


def round_trip(db: Database, amount: int) -> int:
    with db.session() as session:
        session.execute(delete(LedgerRow))
        session.add(row(amount))
    with db.session() as session:
        found = session.get(LedgerRow, ("0x1", "worker"))
        assert found is not None
        return found.earned


@settings(max_examples=40, deadline=None)
@given(st.one_of(st.integers(0, 2**256 - 1), st.sampled_from([2**53 + 1, 2**63, 2**64 - 1, 2**256 - 1])))
def test_amounts_are_exact(sqlite: Database, amount: int) -> None:
    assert round_trip(sqlite, amount) == amount


@pytest.mark.parametrize("amount", [-1, 2**256, 1.0, True, "5"])
def test_what_is_no_amount_is_refused(sqlite: Database, amount: object) -> None:
    with pytest.raises(StatementError), sqlite.session() as session:
        session.add(row(amount))  # type: ignore[arg-type]


def test_a_spoilt_amount_is_not_read(sqlite: Database) -> None:
    assert round_trip(sqlite, 5) == 5
    with sqlite.session() as session:
        session.execute(text("UPDATE ledger SET earned = '1e3'"))
    with pytest.raises(ValueError, match="where an amount should be"), sqlite.session() as session:
        session.get(LedgerRow, ("0x1", "worker"))


def test_a_database_belongs_to_one_pool(tmp_path: Path) -> None:
    db = Database(default_url(tmp_path))
    db.bind_to({"chain": "1", "pool": "1"})
    db.bind_to({"chain": "1", "pool": "1"})
    with pytest.raises(ConfigError, match="belongs to pool 1"):
        db.bind_to({"chain": "1", "pool": "2"})
    db.close()


@pytest.mark.parametrize(
    "url",
    ["nonsense", "mysql://host/x", "sqlite:////proc/nowhere/x.db", "postgresql://nobody:secret@127.0.0.1:9/x"],
)
def test_urls_that_cannot_work_are_named(url: str) -> None:
    with pytest.raises(MusterError) as caught:
        Database(url)
    assert caught.value.hint
    assert "secret" not in str(caught.value)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "orchestrator.db").write_bytes(b"not a database" * 100)
    with pytest.raises(MusterError, match=r"not usable|does not open"):
        Database(default_url(tmp_path))


@pytest.mark.slow
@pytest.mark.skipif(BINARIES is None or shutil.which("runuser") is None, reason="needs PostgreSQL's server programs")
def test_postgresql(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert BINARIES is not None
    home = Path(subprocess.run(["mktemp", "-d"], check=True, capture_output=True, text=True).stdout.strip())
    port = free_port()
    subprocess.run(["chown", "nobody", home], check=True)
    as_nobody = ["runuser", "-u", "nobody", "--"]
    subprocess.run([*as_nobody, BINARIES / "initdb", "-A", "trust", "-U", "muster", home / "data"], check=True)
    options = f"-p {port} -k {home} -c listen_addresses=127.0.0.1 -c fsync=off"
    control: list[str | Path] = [*as_nobody, BINARIES / "pg_ctl", "-D", home / "data", "-w", "-l", home / "log"]
    subprocess.run([*control, "-o", options, "start"], check=True, stdout=subprocess.DEVNULL)
    try:
        db = Database(f"postgresql://muster@127.0.0.1:{port}/postgres")
        db.bind_to({"pool": "1"})
        assert round_trip(db, 2**256 - 1) == 2**256 - 1
        db.close()
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(home, ignore_errors=True)
