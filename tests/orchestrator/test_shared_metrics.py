"""Requests are counted by all processes of a service together, whatever becomes of one of them."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from filelock import FileLock
from prometheus_client import CollectorRegistry, Histogram, values
from prometheus_client.multiprocess import MultiProcessCollector

from orchestrator.config import OrchestratorConfig
from orchestrator.main import daemon_of
from orchestrator.shared_metrics import FOLDER, ROOM, share_metrics
from protocol.errors import ConfigError
from runtime.http_server import held
from tests.conftest import free_port


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)
    monkeypatch.setenv(FOLDER, "")


def count(home: Path, number: int) -> None:
    """One request, as a new process of that number."""
    share_metrics(home, number)
    Histogram("asked", "Requests.", ["route"], registry=None).labels("/ready").observe(0.1)


def counted() -> float | None:
    registry = CollectorRegistry(auto_describe=False)
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry.get_sample_value("asked_count", {"route": "/ready"})


def test_whoever_follows_one_that_died_goes_on_with_its_file(tmp_path: Path) -> None:
    for number in (0, 1, 1, 1):
        count(tmp_path, number)

    assert counted() == 4
    assert {path.name for path in (tmp_path / "metrics").iterdir()} == {"histogram_0.db", "histogram_1.db"}


def test_the_disk_has_room_for_all_that_is_counted_or_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count(tmp_path, 0)
    found = (tmp_path / "metrics" / "histogram_0.db").stat()
    assert found.st_size == ROOM
    assert found.st_blocks * 512 >= ROOM

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ConfigError, match="No space left on device; make room on its disk"):
        count(tmp_path, 1)


def test_a_second_start_leaves_what_the_first_counts(tmp_path: Path) -> None:
    count(tmp_path, 0)
    port = free_port()
    given = {"home": tmp_path, "host": "127.0.0.1", "port": port, "processes": 2}
    config = cast(OrchestratorConfig, SimpleNamespace(**given))

    with held("127.0.0.1", port), pytest.raises(ConfigError, match="cannot listen"):
        daemon_of(config)
    assert counted() == 1
    with FileLock(tmp_path / "events.sqlite.lock"), pytest.raises(ConfigError, match="another process works in"):
        daemon_of(config)
    assert counted() == 1
