"""The results of a run: its record, summary, details of some files and the report, from a running orchestrator."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.dashboard.documents import shown_source, tallies
from orchestrator.dashboard.page import report_page
from orchestrator.dashboard.views import chain_entry, history, newest_rewards, step_views
from protocol.api import run, views
from protocol.api.base import Amount, ResponseBody, Rows
from protocol.api.endpoints import RECORD, ROLLOUTS, SUBMISSION, VERDICTS, Get
from protocol.errors import ConfigError, MusterError, first_problem
from protocol.files import explained
from protocol.waits import wait_for
from runtime.signed_client import ClientLimits, SignedClient

A = TypeVar("A")
D = TypeVar("D", bound=BaseModel)
FOLLOW_SECONDS = 3.0
MOST_DETAILS = 48
REFUSALS = ("rejected", "malformed", "unavailable", "void", "canary")


class FileCounts(BaseModel):
    """Submitted files by outcome; `rejected` counts every refusal, for whatever reason."""

    accepted: int
    rejected: int
    pending: int
    total: int


class CheaterSummary(BaseModel):
    """What became of a node that was meant to cheat; `reason`: why it was ejected, `submissions`: how many files."""

    address: str
    slashed: bool
    slashed_base_units: Amount
    ejected: bool
    reason: str | None
    rollouts_trained: int
    submissions: int


class ValidatorSummary(BaseModel):
    """A validator: how many files it `judged`, by which engine, with how many rollouts in a pass."""

    name: str
    engine: str
    batch: int
    judged: int


class VerdictDifference(BaseModel):
    """A submission on which validators (by name) differ, and in what from the first one's verdict."""

    submission: int
    codes: dict[str, str]
    differences: list[str]


class Agreement(BaseModel):
    """How the verdicts of several validators compare, over the files that two or more judged on the same facts."""

    validators: list[ValidatorSummary]
    compared: int
    differing: list[VerdictDifference]
    checks_differing: int
    largest_differences: dict[str, float]


class SilentCommittee(BaseModel):
    """A lane whose first committee left it undecided by silence: the `absent` seats paid `fined`."""

    lane: int
    absent: list[int]
    fined: Amount


class DodgedCanary(BaseModel):
    """A canary that an accused seat's owner disputed before it was opened, and what that seat lost in its lane."""

    submission: int
    seat: int
    slashed: Amount


class Safeguards(BaseModel):
    """What the chain says of a run's rules. `relayed`: files that the service relayed; `by_receipt`: those that a node
    submitted itself, as the one that is `censored` has to; `without_ether`: how many of the other nodes and operators,
    `members` in all, never held any; `opted_in`: seats that chose the pool's group, of the `needed` ones."""

    relayed: int
    by_receipt: list[int]
    censored: bool
    without_ether: int
    members: int
    opted_in: int
    needed: int
    silent: list[SilentCommittee]
    dodged: list[DodgedCanary]


class DilocoWorkerSummary(BaseModel):
    """A DiLoCo worker: its files, and the outer steps in which it counted or during which it was `killed`."""

    name: str
    address: str
    files: int
    outer_steps: int
    killed: list[int]


class DilocoSummary(BaseModel):
    """What a DiLoCo run's log says of its workers. `used_once`: every file was assigned to exactly one worker whose
    contribution counts, in one outer step; `repeated`: outer steps that began again, as another attempt; `named`:
    policy steps whose manifest names the workers that made it."""

    workers: list[DilocoWorkerSummary]
    outer_steps: int
    files: int
    used_once: bool
    repeated: list[int]
    named: int


class RunSummary(BaseModel):
    """A run of `seconds`. Rewards are mean task rewards, the first and the last on held-out problems. honest_rejected:
    rejected files of nodes that were not meant to cheat; accepted_untrained: files that were paid for and never used;
    ledger_matches_chain, escrow_balanced: true only if compared at the end of the run; trained_then_rejected,
    trained_twice: sequences of files, which should be none; trainer_idle_running: without the first step;
    trainer_idle_seconds: by what was waited for; weights_overlap: share of the time in which nodes fetched weights that
    they made files meanwhile; swap_pause: the longest time, in seconds, without files when a node last changed its
    weights, besides loading them."""

    model_config = ConfigDict(frozen=True)

    seconds: float
    seed: int
    steps: int
    reward_first: float | None
    reward_last: float | None
    rewards: list[float]
    cheaters: list[CheaterSummary]
    agreement: Agreement | None
    safeguards: Safeguards | None
    diloco: DilocoSummary | None = None
    honest_rejected: int
    submissions: FileCounts
    accepted_untrained: int
    tokens_verified: int
    ledger_matches_chain: bool
    escrow_balanced: bool
    reconciliation: run.ReconciliationEntry | None
    trainer_idle_share: float | None
    trainer_idle_running: float | None = None
    trainer_idle_seconds: dict[str, float] = {}
    weights_overlap: float | None = None
    swap_pause: float | None = None
    trained_then_rejected: list[int]
    trained_twice: list[int]
    slashes: list[run.SlashEntry]
    disputes: list[run.DisputeEntry]
    canaries: list[run.CanaryEntry]
    escrow: run.EscrowEntry | None
    ledger: list[run.LedgerEntry]


def build_summary(
    record: run.RunRecord,
    *,
    seed: int,
    seconds: float,
    cheaters: Sequence[str] = (),
    decoys: Sequence[str] = (),
    agreement: Agreement | None = None,
    safeguards: Safeguards | None = None,
    diloco: DilocoSummary | None = None,
) -> RunSummary:
    """Return the summary of a run. `cheaters`: addresses of nodes that were meant to cheat; `decoys`: of nodes whose
    files are rejected where their canaries were not opened in time."""
    files, counts, nodes = record.submissions, record.counts, record.nodes
    heldout = [entry.heldout for entry in record.rewards if entry.heldout is not None]
    accepted = [file for file in files if file.status == "accepted"]
    refused = sum(counts[status] for status in REFUSALS)
    compared = record.reconciliation if record.reconciliation is not None and record.reconciliation.current else None
    swaps = [node.metrics["swap_pause"] for node in nodes if node.metrics.get("swaps")]
    fetched = sum(node.metrics.get("weights_fetched", 0.0) for node in nodes)
    overlapped = sum(node.metrics.get("weights_overlapped", 0.0) for node in nodes)
    idle = defaultdict[str, float](float)
    for name, value in (item for report in record.reports for item in report.metrics.items()):
        if name.startswith("idle_seconds/"):
            idle[name.removeprefix("idle_seconds/")] += value
    idle_seconds = {cause: round(idle[cause], 1) for cause in sorted(idle, key=idle.__getitem__, reverse=True)}
    copied = ("slashes", "disputes", "canaries", "escrow", "ledger", "reconciliation")
    return RunSummary(
        **{name: getattr(record, name) for name in copied},
        seconds=round(seconds, 1),
        seed=seed,
        steps=record.step or 0,
        reward_first=heldout[0] if heldout else None,
        reward_last=heldout[-1] if heldout else None,
        rewards=[entry.reward for entry in record.rewards if entry.reward is not None],
        cheaters=[_cheater(record, address) for address in cheaters],
        agreement=agreement,
        safeguards=safeguards,
        diloco=diloco,
        honest_rejected=sum(file.status == "rejected" and file.node not in (*cheaters, *decoys) for file in files),
        submissions=FileCounts(
            accepted=counts["accepted"], rejected=refused, pending=counts["pending"], total=len(files)
        ),
        accepted_untrained=sum(file.trained is None for file in accepted),
        tokens_verified=sum(file.units for file in accepted),
        ledger_matches_chain=compared is not None and compared.ledger_matches_chain,
        escrow_balanced=compared is not None and compared.escrow_balanced,
        trainer_idle_share=_idle_share(record.reports),
        trainer_idle_running=_idle_share([report for report in record.reports if report.step > 1]),
        trainer_idle_seconds=idle_seconds,
        weights_overlap=round(overlapped / fetched, 4) if fetched > 0 else None,
        swap_pause=max(swaps, default=None),
        trained_then_rejected=[file.sequence for file in files if file.trained is not None and file.status in REFUSALS],
        trained_twice=[file.sequence for file in files if file.trained_twice],
    )


def _cheater(record: run.RunRecord, address: str) -> CheaterSummary:
    node = next((node for node in record.nodes if node.address.lower() == address.lower()), None)
    files = [file for file in record.submissions if file.node.lower() == address.lower()]
    return CheaterSummary(
        address=address,
        slashed=node is not None and node.slashed > 0,
        slashed_base_units=node.slashed if node else 0,
        ejected=node is not None and node.ejected is not None,
        reason=node.ejected if node else None,
        rollouts_trained=sum(file.rows for file in files if file.trained is not None),
        submissions=len(files),
    )


def _idle_share(reports: Sequence[run.ReportEntry]) -> float | None:
    """Return the share of the trainer's time that it waited for accepted files (timing `wait`)."""
    waited = sum(report.timings.get("wait", 0.0) for report in reports)
    total = sum(sum(report.timings.values()) for report in reports)
    return round(waited / total, 4) if total > 0 else None


class FileDetails(ResponseBody):
    """Verdicts and rollouts of some files, for the report."""

    submissions: Rows[views.SubmissionView] = Field(default_factory=list)
    verdicts: Rows[views.VerdictsView] = Field(default_factory=list)
    rollouts: Rows[views.RolloutsView] = Field(default_factory=list)


class ReportDocuments(ResponseBody):
    """What a report embeds of a finished run: the documents that its pages would ask the service for."""

    summary: RunSummary | None
    record: run.RunRecord
    overview: views.Overview
    history: views.History
    steps: Rows[views.StepView]
    details: FileDetails


def documents(summary: RunSummary | None, record: run.RunRecord, details: FileDetails | None = None) -> ReportDocuments:
    """Return everything that the pages of a report show."""
    by_step = tallies(
        (submission.step, submission.status, submission.units, submission.time, submission.decided or 0)
        for submission in record.submissions
    )
    return ReportDocuments(
        summary=summary,
        record=record,
        overview=_overview(record, sum(tally.tokens for tally in by_step.values())),
        history=history(record.published, by_step, record.reports),
        steps=step_views(record.published, by_step, record.reports),
        details=details or FileDetails(),
    )


def _overview(record: run.RunRecord, tokens: int) -> views.Overview:
    decided = sum(bool(file.decided) for file in record.submissions)
    seconds = max(0, int(record.time - record.started))
    copied = views.Overview.model_fields.keys() & run.RunRecord.model_fields.keys()
    fields = {field: getattr(record, field) for field in copied} | {
        "model": shown_source(record.model),
        "nodes": Counter(node.state.value for node in record.nodes),
        "validators": Counter(owner.state.value for owner in record.validators),
        "disputes": len(record.disputes),
        "canaries": len(record.canaries),
    }
    return views.Overview(
        **fields,
        chain=chain_entry(record.chain_id, head=record.head, age=0.0, head_age=0.0, error=record.chain_error),
        **newest_rewards(record.reports),
        tokens=tokens,
        throughput=views.ThroughputEntry(seconds=seconds, files=decided, tokens=tokens),
        map="".join(node.state.value[0] for node in record.nodes),
        held=[],
        slashed=sum(slash.amount for slash in record.slashes),
        terms=None,
    )


def save_results(url: str, folder: Path, summarise: Callable[[run.RunRecord], RunSummary]) -> RunSummary:
    """Write `record.json`, `summary.json`, `details.json` and `report.html` into `folder`; return the summary. The
    ledger counts as confirmed if the orchestrator at `url` compares it with the chain within a minute."""
    record = fetch_record(url)
    summary, details = summarise(record), fetch_details(url, record)
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


def read_results(folder: Path) -> tuple[RunSummary, run.RunRecord, FileDetails]:
    """Return what `save_results` wrote into a folder, perhaps without details. Raises ConfigError."""
    details = folder / "details.json"
    return (
        _read(folder / "summary.json", RunSummary),
        _read(folder / "record.json", run.RunRecord),
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


def fetch_record(url: str, block: int = 0, timeout: float = 60.0) -> run.RunRecord:
    """Return the orchestrator's record at `block` or later, compared with the chain if that happens within `timeout`
    seconds. Without a block it is asked for some seconds, so that what happened just before is in it."""
    newest: list[run.RunRecord] = []
    earliest = time.monotonic() + (0.0 if block else FOLLOW_SECONDS)
    with closing(SignedClient(url, limits=ClientLimits(patience=10.0))) as client:

        def confirmed() -> run.RunRecord | None:
            record = client.get(RECORD)
            newest[:] = [record]
            compared = record.reconciliation is not None and record.reconciliation.current and record.head >= block
            return record if compared and time.monotonic() >= earliest else None

        try:
            return wait_for("the ledger to be compared with the chain", confirmed, timeout, poll=0.5)
        except MusterError:
            if not newest:
                raise
            return newest[0]


def fetch_details(url: str, record: run.RunRecord) -> FileDetails:
    """Return what there is on the files that are worth keeping."""
    details = FileDetails()
    with closing(SignedClient(url, limits=ClientLimits(patience=10.0))) as client:
        for sequence in notable(record):
            with suppress(MusterError):
                details.submissions.append(client.get(_of(SUBMISSION, sequence)))
                details.verdicts.append(client.get(_of(VERDICTS, sequence)))
                details.rollouts.append(client.get(_of(ROLLOUTS, sequence)))
    return details


def notable(record: run.RunRecord, most: int = MOST_DETAILS) -> list[int]:
    """Choose at most `most` files: the two that the overview shows, those that were refused or disputed, the newest."""
    accepted = [submission for submission in record.submissions if submission.status == "accepted"]
    base = [submission for submission in accepted if submission.step == 0]
    shown = {max((submission.sequence for submission in some), default=-1) for some in (base, accepted)}
    quiet = {submission.sequence for submission in accepted if not submission.disputed}
    order = sorted(
        (submission.sequence not in shown, submission.sequence in quiet, -submission.sequence)
        for submission in record.submissions
    )
    return [-negated for _, _, negated in order[:most]]


def _of(endpoint: Get[A], sequence: int) -> Get[A]:
    return replace(endpoint, path=endpoint.path.format(sequence=sequence))
