"""What a worker says of a file that it submits itself."""

import logging
import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from chain.errors import ContractError, TransactionError
from worker.submit import Submitter, WorkerProgress


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TransactionError("0xN has 0 ETH", "send some"), "send ether to 0xN, or tell the pool's owner (0xN has 0 ETH"),
        (TransactionError("not mined in time", tx_hash="0xab"), "its fate is unknown (not mined in time"),
    ],
)
def test_what_to_do_for_a_file_that_the_service_does_not_relay(
    error: TransactionError, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stopping = threading.Event()
    stopping.set()  # it pauses for nobody
    client: Any = MagicMock()
    client.suite.pools.submit_lane.return_value.send.side_effect = error
    progress = WorkerProgress(stopping)
    submitter = Submitter(SimpleNamespace(pool_client=client, journal=None), progress, stopping)  # type: ignore[arg-type]
    asked = list[Any]()
    monkeypatch.setattr(submitter, "ask", asked.append)
    monkeypatch.setattr(submitter, "_signed", lambda entry, size: SimpleNamespace(node="0xN"))
    entry: Any = SimpleNamespace(counter=3, receipt=SimpleNamespace(size=1))
    with caplog.at_level(logging.INFO, "muster.worker"):
        submitter.submit(entry)
    assert f"the service does not relay file 3: {said}" in caplog.text
    assert progress.phase == "submitting"
    assert asked == [entry], "the service may have lost it"


def test_a_file_whose_receipt_ran_out_is_handed_in_again_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service was down, or its relay stood still: later files wait for this one, whose number no other can have."""
    stopping = threading.Event()
    stopping.set()
    client, journal = MagicMock(), MagicMock()
    refusal = ContractError("Pools.submitLane", b"")
    refusal.name = "ReceiptOutOfTime"
    client.suite.pools.submit_lane.return_value.send.side_effect = refusal
    collaborators: Any = SimpleNamespace(pool_client=client, journal=journal)
    submitter = Submitter(collaborators, WorkerProgress(stopping), stopping)
    monkeypatch.setattr(submitter, "_signed", lambda entry, size: SimpleNamespace(node="0xN"))
    submitter.handed_in = {"3-aa", "4-bb"}
    entry: Any = SimpleNamespace(counter=3, stem="3-aa", receipt=SimpleNamespace(size=1))
    submitter.submit(entry)
    journal.change.assert_called_once_with(entry, overdue=True)
    assert submitter.handed_in == {"4-bb"}
