"""The database says whose it is, and by which URL; PostgreSQL behaves the same."""

import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.db import Database, HeartbeatRow, default_url
from protocol.errors import ConfigError, MusterError
from tests.conftest import free_port

BINARIES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


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
        with pytest.raises(ConfigError, match="belongs to pool 1"):
            db.bind_to({"pool": "2"})
        for seen in (1_700_000_000.125, 1_700_000_001.5):
            with db.session() as session:
                session.merge(HeartbeatRow(address="0x1", last_seen=seen, body="{}"))
        with db.session() as session:
            found = session.get(HeartbeatRow, "0x1")
            assert found is not None
            assert found.last_seen == 1_700_000_001.5
        db.close()
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(home, ignore_errors=True)
