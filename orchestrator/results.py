"""What stays of a run: its record, summary and report, written from a running orchestrator's own account."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.report import build_report
from orchestrator.summary import build_summary
from protocol.errors import ConfigError, MusterError
from protocol.http.client import SignedClient
from protocol.waiting import wait_for


def save_results(
    url: str, folder: Path, *, seed: int, seconds: float, cheaters: Sequence[str] = (), timeout: float = 60.0
) -> dict[str, Any]:
    """Write `record.json`, `summary.json` and `report.html` into `folder`; returns the summary.

    Waits until the orchestrator at `url` has compared its ledger with the chain as it is now; when that does not happen
    within `timeout` seconds, the summary says that the books were not confirmed.
    """
    record = fetch_record(url, timeout)
    summary = build_summary(record, seed=seed, seconds=seconds, cheaters=cheaters)
    documents = {
        "record.json": json.dumps(record, indent=1, sort_keys=True),
        "summary.json": json.dumps(summary, indent=2),
        "report.html": build_report(summary, record),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in documents.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write into {folder}: {error.strerror}", "check the folder") from None
    return summary


def fetch_record(url: str, timeout: float = 60.0) -> dict[str, Any]:
    """The orchestrator's record, with an audit of the present state where one comes within `timeout` seconds."""
    # Reading needs no signature; the realm is not used.
    client = SignedClient(url, None, 1, "0x" + "00" * 20, patience=10.0)
    last: dict[str, Any] = {}

    def confirmed() -> dict[str, Any] | None:
        last.update(client.get("/v1/record"))
        audit = last["audit"]
        return last if audit is not None and audit["current"] else None

    try:
        return wait_for("the ledger to be compared with the chain", confirmed, timeout, poll=0.5)
    except MusterError:
        if not last:
            raise
        return last
    finally:
        client.close()
