"""What is kept of a run: record, summary, details of files and report, from the answers of a running orchestrator."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.page import report_page
from orchestrator.report import FileDetails, documents
from orchestrator.summary import Agreement, DilocoSummary, RunSummary, Safeguards, build_summary
from protocol.api.endpoints import RECORD, ROLLOUTS, SUBMISSION, VERDICTS, Get
from protocol.api.run import RunRecord
from protocol.errors import ConfigError, MusterError, first_problem
from protocol.files import explained
from protocol.waits import wait_for
from runtime.signed_client import ClientLimits, SignedClient

A = TypeVar("A")
D = TypeVar("D", bound=BaseModel)
FOLLOW_SECONDS = 3.0
MOST_DETAILS = 48


def save_results(
    url: str,
    folder: Path,
    *,
    seed: int,
    seconds: float,
    cheaters: Sequence[str] = (),
    decoys: Sequence[str] = (),
    agreement: Agreement | None = None,
    safeguards: Safeguards | None = None,
    diloco: DilocoSummary | None = None,
) -> RunSummary:
    """Write `record.json`, `summary.json`, `details.json` and `report.html` into `folder`; returns the summary.

    Waits until the orchestrator at `url` has compared its ledger with the chain; when that does not happen within a
    minute, the summary says that the ledger was not confirmed.
    """
    record = fetch_record(url)
    summary = build_summary(
        record,
        seed=seed,
        seconds=seconds,
        cheaters=cheaters,
        decoys=decoys,
        agreement=agreement,
        safeguards=safeguards,
        diloco=diloco,
    )
    details = fetch_details(url, record)
    written = {
        "record.json": record.model_dump_json(indent=1),
        "summary.json": summary.model_dump_json(indent=2),
        "details.json": details.model_dump_json(),
        "report.html": report_page(documents(summary, record, details)),
    }
    with explained(f"write into {folder}", "check the folder"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in written.items():
            (folder / name).write_text(text, encoding="utf-8")
    return summary


def read_results(folder: Path) -> tuple[RunSummary, RunRecord, FileDetails]:
    """What `save_results` wrote into a folder. Raises ConfigError if it is not there or not of this version. A run may
    have been kept without details."""
    details = folder / "details.json"
    return (
        _read(folder / "summary.json", RunSummary),
        _read(folder / "record.json", RunRecord),
        _read(details, FileDetails) if details.exists() else FileDetails(),
    )


def _read(path: Path, kind: type[D]) -> D:
    with explained(f"read {path}", "name the folder of a run that was finished"):
        data = path.read_bytes()
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        field, problem = first_problem(error.errors())
        raise ConfigError(f"{path}: `{field}`: {problem}", "use the version of muster that wrote it") from None


def fetch_record(url: str, block: int = 0, timeout: float = 60.0) -> RunRecord:
    """The orchestrator's record at `block` or later, compared with the chain if that happens within `timeout` seconds.

    Without a block it is asked again for a few seconds, so that what happened just before the call is in it.
    """
    client = SignedClient(url, limits=ClientLimits(patience=10.0))
    newest: list[RunRecord] = []
    earliest = time.monotonic() + (0.0 if block else FOLLOW_SECONDS)

    def confirmed() -> RunRecord | None:
        record = client.get(RECORD)
        newest[:] = [record]
        found = record.reconciliation
        settled = found is not None and found.current and record.head >= block
        return record if settled and time.monotonic() >= earliest else None

    try:
        return wait_for("the ledger to be compared with the chain", confirmed, timeout, poll=0.5)
    except MusterError:
        if not newest:
            raise
        return newest[0]
    finally:
        client.close()


def fetch_details(url: str, record: RunRecord, most: int = MOST_DETAILS) -> FileDetails:
    """What there is on some files: all that were refused or disputed, then the newest, at most `most`. A file whose
    verdicts or rollouts cannot be had is kept without them."""
    notable = sorted(record.submissions, key=lambda one: (one.status == "accepted" and not one.disputed, -one.sequence))
    client = SignedClient(url, limits=ClientLimits(patience=10.0))
    found = FileDetails()
    try:
        for one in notable[:most]:
            with suppress(MusterError):
                found.submissions.append(client.get(_of(SUBMISSION, one.sequence)))
                found.verdicts.append(client.get(_of(VERDICTS, one.sequence)))
                found.rollouts.append(client.get(_of(ROLLOUTS, one.sequence)))
    finally:
        client.close()
    return found


def _of(endpoint: Get[A], sequence: int) -> Get[A]:
    return replace(endpoint, path=endpoint.path.format(sequence=sequence))
