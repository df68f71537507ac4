"""The figures of a run, from its record (`GET /v1/record`): what `summary.json` holds. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from protocol.api.run import RunRecord
from protocol.api.work import StepRequest


def build_summary(
    record: RunRecord,
    *,
    seed: int,
    seconds: float,
    cheaters: Sequence[str] = (),
    agreement: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The summary of a run of `seconds`; `cheaters` are the addresses of the nodes that were meant to cheat,
    `agreement` says how validators' verdicts compare, None where nobody compared them.

    Rewards are mean task rewards, first and last on held-out problems; amounts are grains as decimal strings.
    """
    heldout = [one.heldout for one in record.rewards if one.heldout is not None]
    audit = record.audit if record.audit and record.audit.current else None
    return {
        "seconds": round(seconds, 1),
        "seed": seed,
        "steps": record.step or 0,
        "reward_first": heldout[0] if heldout else None,
        "reward_last": heldout[-1] if heldout else None,
        "rewards": [one.reward for one in record.rewards if one.reward is not None],
        "cheaters": [cheater(record, address) for address in cheaters],
        "agreement": dict(agreement) if agreement is not None else None,
        **_files(record, set(cheaters)),
        "ledger_matches_chain": audit is not None and audit.ledger_matches_chain,
        "escrow_balanced": audit is not None and audit.escrow_balanced,
        "trainer_idle_share": idle_share(record.reports),
        **record.model_dump(mode="json", include={"audit", "slashes", "disputes", "canaries", "escrow", "ledger"}),
    }


def _files(record: RunRecord, cheaters: set[str]) -> dict[str, Any]:
    """What became of the files, by outcome and by whether they were trained on."""
    files, counts = record.submissions, record.counts
    trained = [one for one in files if one.trained is not None]
    refused = ("rejected", "malformed", "unavailable", "void", "canary")
    return {
        "honest_rejected": sum(one.status == "rejected" and one.node not in cheaters for one in files),
        "submissions": {
            "accepted": counts["accepted"],
            "rejected": sum(counts[status] for status in refused),
            "pending": counts["pending"],
            "total": len(files),
        },
        "accepted_untrained": sum(one.status == "accepted" and one.trained is None for one in files),
        "tokens_verified": sum(one.units for one in files if one.status == "accepted"),
        "trained_then_rejected": [one.sequence for one in trained if one.status not in ("accepted", "pending")],
        "trained_twice": [one.sequence for one in files if one.trained_twice],
    }


def cheater(record: RunRecord, address: str) -> dict[str, Any]:
    """What became of a node: slashed grains, ejection with its reason, rollouts of it that were trained on."""
    node = next((one for one in record.nodes if one.address.lower() == address.lower()), None)
    files = [one for one in record.submissions if one.node.lower() == address.lower()]
    return {
        "address": address,
        "slashed": node is not None and node.slashed > 0,
        "slashed_grains": str(node.slashed if node else 0),
        "ejected": node is not None and node.ejected is not None,
        "reason": node.ejected if node else None,
        "rollouts_trained": sum(one.rows for one in files if one.trained is not None),
        "submissions": len(files),
    }


def idle_share(reports: Sequence[StepRequest]) -> float | None:
    """Share of the trainer's time that it waited for accepted files (timing `wait`), over all reported timings."""
    waited = sum(report.timings.get("wait", 0.0) for report in reports)
    total = sum(sum(report.timings.values()) for report in reports)
    return round(waited / total, 4) if total > 0 else None
