"""What a worker says of a file whose transaction fails."""

import logging
import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from chain.errors import TransactionError
from worker.submit import Submitter, WorkerProgress


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TransactionError("the endpoint asks 20 gwei", "wait"), "file 3 is not submitted yet: the endpoint asks"),
        (TransactionError("not mined in time", tx_hash="0xab"), "whether file 3 was submitted is unknown: not mined"),
    ],
)
def test_what_was_never_sent_is_not_called_unknown(
    error: TransactionError, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stopping = threading.Event()
    stopping.set()  # it pauses for nobody
    parts: Any = SimpleNamespace(pool_client=None, journal=None)
    progress = WorkerProgress(stopping)
    submitter = Submitter(parts, progress, stopping, 60.0)

    monkeypatch.setattr(submitter, "_counts", lambda receipt: True)
    monkeypatch.setattr(submitter, "_send", MagicMock(side_effect=error))
    entry: Any = SimpleNamespace(counter=3, receipt=None)
    with caplog.at_level(logging.INFO, "muster.worker"):
        submitter.submit(entry)
    assert said in caplog.text
    assert progress.phase == "submitting"
