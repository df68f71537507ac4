"""The figures of a run, from its record (`GET /v1/record`): what `summary.json` holds. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]


def build_summary(
    record: Record,
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
    files, rewards = record["submissions"], record["rewards"]
    heldout = [one["heldout"] for one in rewards if one["heldout"] is not None]
    counts = record["counts"]
    audit = record["audit"] or {}
    refused = counts["rejected"] + counts["malformed"] + counts["unavailable"] + counts["void"] + counts["canary"]
    known = set(cheaters)
    return {
        "seconds": round(seconds, 1),
        "seed": seed,
        "steps": record["step"] or 0,
        "reward_first": heldout[0] if heldout else None,
        "reward_last": heldout[-1] if heldout else None,
        "rewards": [one["reward"] for one in rewards if one["reward"] is not None],
        "cheaters": [cheater(record, address) for address in cheaters],
        "agreement": dict(agreement) if agreement is not None else None,
        "honest_rejected": sum(one["status"] == "rejected" and one["node"] not in known for one in files),
        "submissions": {
            "accepted": counts["accepted"],
            "rejected": refused,
            "pending": counts["pending"],
            "total": len(files),
        },
        "accepted_untrained": sum(one["status"] == "accepted" and one["trained"] is None for one in files),
        "tokens_verified": sum(one["units"] for one in files if one["status"] == "accepted"),
        "ledger_matches_chain": bool(audit.get("ledger_matches_chain")) and bool(audit.get("current")),
        "escrow_balanced": bool(audit.get("escrow_balanced")) and bool(audit.get("current")),
        "audit": audit or None,
        "trainer_idle_share": idle_share(record["reports"]),
        "trained_then_rejected": [
            one["sequence"]
            for one in files
            if one["trained"] is not None and one["status"] not in ("accepted", "pending")
        ],
        "trained_twice": [one["sequence"] for one in files if one["trained_twice"]],
        "slashes": record["slashes"],
        "disputes": record["disputes"],
        "canaries": record["canaries"],
        "escrow": record["escrow"],
        "ledger": record["ledger"],
    }


def cheater(record: Record, address: str) -> dict[str, Any]:
    """What became of a node: slashed grains, ejection with its reason, rollouts of it that were trained on."""
    node = next((one for one in record["nodes"] if one["address"].lower() == address.lower()), None)
    files = [one for one in record["submissions"] if one["node"].lower() == address.lower()]
    return {
        "address": address,
        "slashed": node is not None and int(node["slashed"]) > 0,
        "slashed_grains": node["slashed"] if node else "0",
        "ejected": node is not None and node["ejected"] is not None,
        "reason": node["ejected"] if node else None,
        "rollouts_trained": sum(one["rows"] for one in files if one["trained"] is not None),
        "submissions": len(files),
    }


def idle_share(reports: Sequence[Mapping[str, Any]]) -> float | None:
    """Share of the trainer's time that it waited for accepted files (timing `wait`), over all reported timings."""
    waited = sum(report["timings"].get("wait", 0.0) for report in reports)
    total = sum(sum(report["timings"].values()) for report in reports)
    return round(waited / total, 4) if total > 0 else None
