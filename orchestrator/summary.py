"""The measurements of a run, from its record (`GET /v1/record`): what `summary.json` holds. Pure."""

from collections import defaultdict
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from protocol.api import judged, run
from protocol.api.base import Amount

REFUSALS = ("rejected", "malformed", "unavailable", "void", "canary", "late")


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
    slashed_grains: Amount
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
    """A submission on which validators differ. `codes`: validator → its code; `differences`: the checks and
    measurements that differ from the first validator's."""

    submission: int
    codes: dict[str, str]
    differences: list[str]


class Agreement(BaseModel):
    """How the verdicts of several validators compare. `compared`: files that two or more of them judged on the same
    facts; `largest_differences`: of every measurement, over these files."""

    validators: list[ValidatorSummary]
    compared: int
    differing: list[VerdictDifference]
    checks_differing: int
    largest_differences: dict[str, float]


class SilentCommittee(BaseModel):
    """A lane whose first committee left it undecided by keeping silent: the `absent` seats paid `fined`, and the next
    committee decided its files."""

    lane: int
    absent: list[int]
    fined: Amount


class DodgedCanary(BaseModel):
    """A canary, of a decoy node, that an accused seat's owner disputed before it was opened, and what that seat lost to
    the canaries of its lane."""

    submission: int
    seat: int
    slashed: Amount


class Safeguards(BaseModel):
    """What the chain says of a run's rules. `attested`: files whose upload the service attested before their draw;
    `late`: those that were not, whose nodes paid `late_fines`; `opted_in`: seats that chose the pool's class, of the
    `needed` ones."""

    attested: int
    late: list[int]
    late_fines: Amount
    opted_in: int
    needed: int
    silent: list[SilentCommittee]
    dodged: list[DodgedCanary]


class DilocoWorkerSummary(BaseModel):
    """A DiLoCo worker: how many files it trained on, and in how many outer steps its contribution counted; `killed`:
    the outer steps (by the state they lead to) during which it was killed."""

    name: str
    address: str
    files: int
    outer_steps: int
    killed: list[int]


class DilocoSummary(BaseModel):
    """What a DiLoCo run's log says of its workers, compared with the trainer's records and the manifests.

    `used_once`: every file was assigned to exactly one worker whose contribution counts, in one outer step; `repeated`:
    outer steps that began again, as another attempt; `named`: policy steps whose manifest names the workers that made
    it."""

    workers: list[DilocoWorkerSummary]
    outer_steps: int
    files: int
    used_once: bool
    repeated: list[int]
    named: int


class RunSummary(BaseModel):
    """A run of `seconds`. Rewards are mean task rewards, the first and the last on held-out problems.

    honest_rejected: rejected files of nodes that were not meant to cheat; accepted_untrained: files that were paid for
    and never used; agreement: how validators' verdicts compare, safeguards: what the chain's rules did, null where
    nobody looked;
    ledger_matches_chain, escrow_balanced: true only if compared at the end of the run; trained_then_rejected,
    trained_twice: sequences of files, which should be none.
    """

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
    """Null where the trainer trained alone."""
    honest_rejected: int
    submissions: FileCounts
    accepted_untrained: int
    tokens_verified: int
    ledger_matches_chain: bool
    escrow_balanced: bool
    reconciliation: run.ReconciliationEntry | None
    trainer_idle_share: float | None
    trainer_idle_running: float | None = None
    """The same without the first step, for whose files everything has to start."""
    trainer_idle_seconds: dict[str, float] = {}
    """Seconds by what was waited for."""
    weights_overlap: float | None = None
    """Share of the time in which nodes fetched a policy step's weights that they made files meanwhile."""
    swap_pause: float | None = None
    """The longest time, in seconds, that a node's making of files stood still when it last changed its weights, besides
    what the engine took to load them."""
    trained_then_rejected: list[int]
    trained_twice: list[int]
    slashes: list[judged.SlashEntry]
    disputes: list[judged.DisputeEntry]
    canaries: list[judged.CanaryEntry]
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
    """The summary of a run; `cheaters`: addresses of the nodes that were meant to cheat; `decoys`: of those whose
    files are canaries, which are rejected where they were not opened in time."""
    files, counts = record.submissions, record.counts
    heldout = [one.heldout for one in record.rewards if one.heldout is not None]
    accepted = [one for one in files if one.status == "accepted"]
    found = record.reconciliation
    return RunSummary(
        seconds=round(seconds, 1),
        seed=seed,
        steps=record.step or 0,
        reward_first=heldout[0] if heldout else None,
        reward_last=heldout[-1] if heldout else None,
        rewards=[one.reward for one in record.rewards if one.reward is not None],
        cheaters=[_cheater(record, address) for address in cheaters],
        agreement=agreement,
        safeguards=safeguards,
        diloco=diloco,
        honest_rejected=sum(one.status == "rejected" and one.node not in (*cheaters, *decoys) for one in files),
        submissions=FileCounts(
            accepted=counts["accepted"],
            rejected=sum(counts[status] for status in REFUSALS),
            pending=counts["pending"],
            total=len(files),
        ),
        accepted_untrained=sum(one.trained is None for one in accepted),
        tokens_verified=sum(one.units for one in accepted),
        ledger_matches_chain=found is not None and found.current and found.ledger_matches_chain,
        escrow_balanced=found is not None and found.current and found.escrow_balanced,
        trainer_idle_share=_idle_share(record.reports),
        trainer_idle_running=_idle_share([one for one in record.reports if one.step > 1]),
        trainer_idle_seconds=_idle_seconds(record.reports),
        weights_overlap=_overlap(record.nodes),
        swap_pause=max((one.metrics["swap_pause"] for one in record.nodes if one.metrics.get("swaps")), default=None),
        trained_then_rejected=[one.sequence for one in files if one.trained is not None and one.status in REFUSALS],
        trained_twice=[one.sequence for one in files if one.trained_twice],
        **{name: getattr(record, name) for name in _AS_RECORDED},
    )


_IDLE = "idle_seconds/"
_AS_RECORDED = ("reconciliation", "slashes", "disputes", "canaries", "escrow", "ledger")


def _cheater(record: run.RunRecord, address: str) -> CheaterSummary:
    node = next((one for one in record.nodes if one.address.lower() == address.lower()), None)
    files = [one for one in record.submissions if one.node.lower() == address.lower()]
    return CheaterSummary(
        address=address,
        slashed=node is not None and node.slashed > 0,
        slashed_grains=node.slashed if node else 0,
        ejected=node is not None and node.ejected is not None,
        reason=node.ejected if node else None,
        rollouts_trained=sum(one.rows for one in files if one.trained is not None),
        submissions=len(files),
    )


def _idle_share(reports: Sequence[run.ReportEntry]) -> float | None:
    """Share of the trainer's time that it waited for accepted files (timing `wait`), over all reported timings."""
    waited = sum(report.timings.get("wait", 0.0) for report in reports)
    total = sum(sum(report.timings.values()) for report in reports)
    return round(waited / total, 4) if total > 0 else None


def _overlap(nodes: Sequence[run.NodeEntry]) -> float | None:
    """Of all nodes together, by what each says of itself."""
    fetched = sum(one.metrics.get("weights_fetched", 0.0) for one in nodes)
    overlapped = sum(one.metrics.get("weights_overlapped", 0.0) for one in nodes)
    return round(overlapped / fetched, 4) if fetched > 0 else None


def _idle_seconds(reports: Sequence[run.ReportEntry]) -> dict[str, float]:
    seconds: dict[str, float] = defaultdict(float)
    for report in reports:
        for name, value in report.metrics.items():
            if name.startswith(_IDLE):
                seconds[name.removeprefix(_IDLE)] += value
    return {cause: round(value, 1) for cause, value in sorted(seconds.items(), key=lambda one: -one[1])}
