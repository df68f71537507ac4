"""Making files and keeping them: the same order gives the same file; a kill leaves a whole entry or none."""

import json
from pathlib import Path

import pytest

from benchmarks.support.offline_pool import work_of
from protocol.accounts import Account
from protocol.api.work import ReceiptSigner
from protocol.encoding import load_document
from protocol.errors import ConfigError, IntegrityError
from protocol.identity import PoolId
from tests.runtime.test_isolation import PATHS, PUBLIC
from tests.validator import tiny
from worker.config import WorkerConfig
from worker.journal import Journal


def test_the_same_order_gives_the_same_bytes() -> None:
    assert tiny.producer().make(work_of(7)).data == tiny.producer().make(work_of(7)).data
    assert tiny.honest(7).data != tiny.honest(8).data


def test_a_finished_file_survives_a_restart(tmp_path: Path) -> None:
    entry = Journal(tmp_path).add(work_of(7), tiny.honest(7))
    again = Journal(tmp_path)
    assert again.all() == [entry]
    assert again.data(entry) == tiny.honest(7).data
    signer = ReceiptSigner(Account.create(), PoolId(1, "0x" + "11" * 20, 1))
    receipt = signer.sign("0x" + "22" * 20, entry.sha256.hex(), 1, 7)
    uploaded = again.change(entry, receipt=receipt)
    assert uploaded.receipt == receipt
    assert Journal(tmp_path).all() == [uploaded]


def test_a_file_without_its_note_is_no_entry_and_damage_is_noticed(tmp_path: Path) -> None:
    """Killed between the two writes."""
    Journal(tmp_path).add(work_of(7), tiny.honest(7))
    next(tmp_path.glob("*.json")).unlink()
    journal = Journal(tmp_path)
    assert journal.all() == []
    entry = journal.add(work_of(7), tiny.honest(7))
    next(tmp_path.glob("*.parquet")).write_bytes(b"rot")
    with pytest.raises(IntegrityError, match="made again"):
        journal.data(entry)
    assert journal.all() == []
    journal.add(work_of(7), tiny.honest(7))
    next(tmp_path.glob("*.json")).write_text("{")
    assert Journal(tmp_path).all() == []


def test_pruning_keeps_what_may_still_be_needed(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for counter in (1, 2, 3):
        journal.add(work_of(counter), tiny.honest(counter))
    journal.prune(3)
    assert [entry.counter for entry in Journal(tmp_path).all()] == [3]


def config(tmp_path: Path, **changes: object) -> Path:
    node = {"keystore": "key.json", "password_file": "password"}
    path = tmp_path / "worker.json"
    path.write_text(json.dumps({**PATHS, **PUBLIC, "pool": 1, "node": node, **changes}))
    return path


def test_configuration(tmp_path: Path) -> None:
    assert load_document(config(tmp_path), WorkerConfig).engine.name == "transformers"
    toml, node = tmp_path / "worker.toml", '[node]\nkeystore = "k"\n'
    toml.write_text(f'home = "h"\ndeployment = "d"\nrpc = ["u"]\npool = 1\norchestrator = "o"\ncache = "c"\n{node}')
    assert load_document(toml, WorkerConfig).node.password_file is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rpc": []}, "rpc"),
        ({"engine": {"name": "magic"}}, "engine.name"),
        ({"surprise": 1}, "surprise"),
        ({"confirmations": -1}, "confirmations"),
        ({"node": None}, "node"),
    ],
)
def test_wrong_configuration_names_the_field(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_document(config(tmp_path, **changes), WorkerConfig)
