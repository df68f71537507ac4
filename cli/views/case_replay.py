"""A recomputed node case, as JSON and as text."""

from typing import TYPE_CHECKING, Any

from cli.output import clock, fields, table
from protocol.errors import printable

if TYPE_CHECKING:
    from validator.challenges import ChallengeRecord, ChallengeVerdict, JurorReplay


def case_view(
    record: "ChallengeRecord", jurors: "list[JurorReplay]", ours: "ChallengeVerdict | None", faults: list[str]
) -> dict[str, Any]:
    """A recomputed case as JSON. `faults`: everything that is not as it should be; `follows`: whether nothing is."""
    from chain.indexer.records import CaseOutcome
    from protocol.verdict import Code
    from validator.challenges import contradicts, majority, outcome_for

    case, trial = record.case, record.trial
    faults = faults + [f"seat {one.seat}: {one.fault}" for one in jurors if one.fault]
    if ours is not None and (why := contradicts(record, ours)):
        faults.append(why)
    return {
        "case": case.case,
        "pool": case.pool,
        "node": case.node,
        "opened": case.time,
        "files": [
            {"submission": name, "rows": file.rows if file else 0, "drawn": record.rows(name)}
            for name, file in record.named.items()
        ],
        "null_model": record.model is not None,
        "jury": {
            "trial": trial.trial,
            "seats": list(trial.seats),
            "block": case.block,
            "seed_block": trial.seed_block,
            "seed": trial.seed.hex(),
            "replaced": [one.trial for one in record.trials[:-1]],
        },
        "ours": _evidence(ours),
        "votes": [
            {
                "seat": one.seat,
                "vote": one.code.label,
                "agrees": None if ours is None else outcome_for(one.code) is outcome_for(ours.code),
                "document": _evidence(one.judged),
                "note": one.note or one.fault,
            }
            for one in jurors
        ],
        "majority": (Code.UNDECIDED if (code := majority(trial)) is Code.NONE else code).label,
        "outcome": case.outcome.name.lower(),
        "open": case.outcome is CaseOutcome.OPEN,
        "slashed": case.slashed,
        "faults": faults,
        "follows": not faults,
    }


def _evidence(judged: "ChallengeVerdict | None") -> dict[str, Any] | None:
    """A verdict on the case as JSON; nats by accumulator where something was added up."""
    from protocol.evidence.null_model import LIMIT_NATS

    if judged is None:
        return None
    summed = judged.evidence
    out: dict[str, Any] = {"code": judged.code.label, "why": judged.why, "limit": LIMIT_NATS}
    if summed is None:
        return out
    notes = sorted({note for one in judged.found for note in one.notes})
    nats = {name: summed.nats(name) for name in summed.wealth}
    out["engines"] = sorted({seen.verifier for one in judged.found for seen in one.seen})
    return out | {"nats": nats, "total": summed.total, "peak": summed.peak, "accused": summed.accused, "notes": notes}


def case_replay_text(document: dict[str, Any]) -> str:
    """The same as text."""
    jury, ours = document["jury"], document["ours"]
    head = {
        "case": f"{document['case']}, against node {document['node']} of pool {document['pool']}",
        "opened": f"{clock(document['opened'])}, in block {jury['block']}",
        "files": ", ".join(map(_file, document["files"])),
        "jury": f"{jury['trial']}, drawn by block {jury['seed_block']}" if jury["seats"] else "not drawn",
        "null_model": "the pool's own"
        if document["null_model"]
        else "none that holds for the pool's terms: no case can convict",
    }
    if ours is not None:
        head["by us"] = f"{ours['code']}: {ours['why']}"
    head["votes"] = document["majority"]
    head["outcome"] = document["outcome"]
    parts = [
        fields(head),
        *_evidence_table(document),
        table(["seat", "vote", "its document", "like ours", "engine"], _votes(document)),
    ]
    notes = [f"seat {one['seat']}: {printable(one['note'])}" for one in document["votes"] if one["note"]]
    parts += ["\n".join(notes)] if notes else []
    if document["faults"]:
        return "\n\n".join([*parts, "\n".join(f"WRONG: {printable(one, 300)}" for one in document["faults"])])
    done = "it is open: nothing to compare yet" if document["open"] else "the outcome follows from the votes"
    return "\n\n".join([*parts, f"{done}; nothing is wrong"])


def _evidence_table(document: dict[str, Any]) -> list[str]:
    """Accumulators by who measured; nothing where nobody's figures are known."""
    read = {"ours": document["ours"]} | {f"seat {one['seat']}": one["document"] for one in document["votes"]}
    known = {who: one for who, one in read.items() if one and "nats" in one}
    if not known:
        return []
    names = list(next(iter(known.values()))["nats"])
    rows = [[name, *(f"{one['nats'][name]:.1f}" for one in known.values())] for name in names]
    rows.append(["together", *(f"{one['peak']:.1f}" for one in known.values())])
    limit = next(iter(known.values()))["limit"]
    return [table(["nats", *known], rows) + f"\nan honest node reaches {limit:.1f} nats once in a million lives"]


def _votes(document: dict[str, Any]) -> list[list[str]]:
    said, rows = {None: "-", True: "yes", False: "NO"}, []
    for one in document["votes"]:
        found = one["document"] or {}
        engines = printable(", ".join(found.get("engines", ())))
        rows.append([str(one["seat"]), one["vote"], found.get("code", "-"), said[one["agrees"]], engines])
    return rows


def _file(one: dict[str, Any]) -> str:
    return f"{one['submission']} ({len(one['drawn'])} of {one['rows']} rows)"
