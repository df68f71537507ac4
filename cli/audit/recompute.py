"""What `muster verify` recomputes: verdicts on files, a node's evidence, node challenges; as documents and texts."""

import math
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any

import typer

from chain.contracts import MOST_FILES
from chain.indexer.records import ChallengeOutcome, Submission, outcome_for
from chain.indexer.state import State
from cli.output import clock, fields, table
from protocol.config import PoolConfig
from protocol.errors import ConfigError, IntegrityError, MusterError, UnreachableError, printable
from protocol.evidence.figures import FIGURES
from protocol.evidence.null_model import LIMIT_NATS
from protocol.verdict import MAX_DOCUMENT_BYTES, BallotDocument, Code, Verdict, challenge_label
from runtime.pool_client import PoolClient
from runtime.process import ProcessConfig
from storage.keys import MissingObjectError, object_key
from validator import challenges
from validator.challenges import ChallengeRecord, ChallengeVerdict, Documents, FileEvidence, no_evidence
from validator.judging.pipeline import OtherEngines, others
from validator.judging.sources import Sources
from validator.replay import OpenedVotes, Replayed, Replayer, alike, differences, largest, replay

_CONFIG_SECONDS = 30.0


def _replayer(client: PoolClient, config: ProcessConfig) -> Replayer:
    """Return what measures files as jurors do, with the other engines of this machine."""
    typer.echo("loading the engine and the weights", err=True)
    return Replayer(client, config.engine.make(), OtherEngines(others(config.engine)))


# Files


def replayed_files(config: ProcessConfig, numbers: Sequence[int]) -> dict[str, Any]:
    """Judge files again, all decided ones if none is named, and compare. Raises MusterError."""
    typer.echo("loading the engine and the weights", err=True)
    rows = []
    for replayed in replay(config, numbers):
        rows.append(_row(replayed))
        typer.echo(f"file {rows[-1]['submission']}: {rows[-1]['ours']}, decided {rows[-1]['decided']}", err=True)
    return files_document(config.engine.model_dump(), rows)


def _row(replayed: Replayed) -> dict[str, Any]:
    """Return our verdict on a file beside its outcome and its members' votes."""
    votes = []
    for opened in replayed.opened:
        agrees = alike(opened.code, replayed.verdict.code)
        vote: dict[str, Any] = {"seat": opened.seat, "code": opened.code.label, "agrees": agrees}
        votes.append(vote)
        if opened.document is None:
            vote["note"] = "its verdict document is not published"
            continue
        try:
            theirs = BallotDocument.parse(opened.document, opened.digest).on(replayed.submission.sequence)
        except IntegrityError as error:
            vote["note"] = error.what
            continue
        vote["engine"] = theirs.engine.get("name", "?")[:32]
        vote["differences"] = differences(theirs, replayed.verdict)
        if not alike(theirs.code, opened.code):
            vote["note"] = f"it voted {opened.code.label}, but its verdict document says {theirs.code.label}"
    return {
        "submission": replayed.submission.sequence,
        "node": replayed.submission.node,
        "step": replayed.submission.step,
        "decided": replayed.voted.label,
        "ours": replayed.verdict.code.label,
        "agrees": replayed.agrees,
        "votes": votes,
        "why": "; ".join(f"{finding.check}: {finding.note}" for finding in replayed.verdict.findings if finding.note),
        "now": replayed.submission.status.value,
    }


def files_document(engine: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Count what differs. `largest_differences`: how far measurements lie apart at most, over all votes like ours."""
    votes = [vote for row in rows for vote in row["votes"]]
    apart = [difference for vote in votes if vote["agrees"] for difference in vote.get("differences", ())]
    return {
        "engine": engine,
        "replayed": rows,
        "differing": sum(not row["agrees"] for row in rows),
        "votes": len(votes),
        "votes_differing": sum(not vote["agrees"] for vote in votes),
        "largest_differences": largest(apart),
    }


def files_text(document: dict[str, Any]) -> str:
    """Return replayed files for people, and every vote that differs from ours."""
    rows, engine = document["replayed"], document["engine"]
    cells, lines = [], []
    for row in rows:
        agrees = "yes" if row["agrees"] else f"NO (now {row['now']})"
        labels = [str(row["submission"]), row["node"][:10], str(row["step"])]
        cells.append([*labels, row["decided"], row["ours"], agrees, row["why"][:80]])
        for vote in row["votes"]:
            note = vote.get("note", "")
            if not vote["agrees"] or "voted" in note:
                why = [note] * bool(note) + [str(difference) for difference in vote.get("differences", ())[:6]]
                differs = "; ".join(map(printable, why)) or "the figures are the same"
                lines.append(f"{row['submission']}: seat {vote['seat']} voted {vote['code']}: {differs}")
    with_engine = f"{engine['name']}, batch {engine['batch']}"
    lines.append(f"{len(rows)} verdicts replayed with {with_engine}: {document['differing']} differ")
    lines.append(f"{document['votes']} opened votes compared: {document['votes_differing']} differ")
    columns = ["submission", "node", "step", "decided", "ours", "agrees", "why"]
    return "\n".join([table(columns, cells), *lines])


# A node's history


def node_history(config: ProcessConfig, node: str, published: bool) -> dict[str, Any]:
    """Return a node's evidence: by our own replay, or by what is `published`, of which the least counts. Raises
    MusterError."""
    with closing(PoolClient(config, None)) as client:
        state = client.refresh()
        files = history_files(state, config.pool, node, client.pool_config())
        if published:
            votes = OpenedVotes(Sources(client.objects, announced_seconds=60.0))
            return history_document(node, files, lambda file: votes.verdicts(state, file))
        replayer = _replayer(client, config)
        return history_document(node, files, lambda file: [replayer.verdict(state, file)])


def history_files(state: State, pool: int, node: str, config: PoolConfig) -> list[Submission]:
    """Return a node's files. Raises ConfigError for a pool that judges no histories, MusterError if there are none."""
    if why := no_evidence(config.evidence):
        raise ConfigError(why, "nothing adds up this pool's evidence")
    files = state.submissions_of(pool, node)
    if not files:
        raise MusterError(f"{node} has submitted nothing to pool {pool}", "check the address")
    return files


def history_document(node: str, files: Sequence[Submission], documents: Documents) -> dict[str, Any]:
    """`left`: nats that each figure lacks to accuse alone; `engines`: what each pair measured, and the most that a bet
    takes for honest; `run`: what a challenge should name, None where no run shows an accused node."""
    evidence, shown = challenges.history_evidence(files, documents)
    nats = {name: evidence.nats(name) for name in evidence.wealth}
    alone = LIMIT_NATS + math.log(len(nats))
    # No run adds up to more than all files do.
    run = challenges.shortest_run(shown, MOST_FILES) if evidence.accused else None
    return {
        "node": node,
        "files": [
            {
                "submission": file.submission.sequence,
                "documents": file.documents,
                "notes": list(file.notes),
                "nats": {name: max(nats) for name, nats in file.nats.items()},
            }
            for file in shown
        ],
        "waiting": len(files) - len(shown),
        "nats": nats,
        "left": {name: alone - value for name, value in nats.items()},
        "engines": _engines(shown),
        "total": evidence.total,
        "peak": evidence.peak,
        "limit": LIMIT_NATS,
        "accused": evidence.accused,
        "run": asdict(run) if run else None,
    }


def _engines(files: Iterable[FileEvidence]) -> list[dict[str, Any]]:
    """Return what each pair of engines measured, the pairs in order of their names."""
    seen = [comparison for file in files for comparison in file.seen]
    out = []
    for worker, verifier in sorted({(comparison.worker, comparison.verifier) for comparison in seen}):
        own = [
            comparison.figures for comparison in seen if (comparison.worker, comparison.verifier) == (worker, verifier)
        ]
        rates = {}
        for name in {name: None for figures in own for name, figure in figures.items() if figure.nats is not None}:
            figures = [by_name[name] for by_name in own if name in by_name]
            count, total = math.fsum(figure.count for figure in figures), math.fsum(figure.total for figure in figures)
            honest = max(figure.honest or 0.0 for figure in figures)
            rates[name] = {"rate": total / count if count else 0.0, "honest": honest}
        out.append({"worker": worker, "verifier": verifier, "documents": len(own), "rates": rates})
    return out


def history_text(document: dict[str, Any]) -> str:
    """Return a node's evidence for people."""
    run, left = document["run"], document["left"]
    used = sum(file["documents"] > 0 for file in document["files"])
    facts = {
        "node": document["node"],
        "files": f"{len(document['files'])} decided, figures of {used} of them; {document['waiting']} wait",
        "evidence": f"e^{document['total']:.1f}, at most e^{document['peak']:.1f}; an honest node reaches "
        f"e^{document['limit']:.1f} once in a million lives",
        "verdict": "ACCUSED: it computes otherwise than was calibrated" if document["accused"] else "nothing shown",
    }
    if run is not None:
        where = f"muster challenge open --first {run['first']} --last {run['last']}"
        facts["challenge"] = f"{where}: {run['files']} files, e^{run['nats']:.1f}"
    elif document["accused"]:
        bound = f"passes the bound by {challenges.SPARE_NATS:g} nats"
        facts["challenge"] = f"no run of {MOST_FILES} files {bound}: no challenge shows it safely"
    rows = [[name, f"{nats:.1f}", f"{left[name]:.1f}", FIGURES[name]] for name, nats in document["nats"].items()]
    parts = [fields(facts), table(["figure", "nats", "to the bound", "what it adds up"], rows)]
    for pair in document["engines"]:
        own = [[name, f"{rates['rate']:.4g}", f"{rates['honest']:.4g}"] for name, rates in pair["rates"].items()]
        verifier, worker = printable(pair["verifier"]), printable(pair["worker"])
        title = f"{pair['documents']} documents by {verifier} on files of {worker}"
        parts.append(title + "\n" + table(["figure", "measured", "honest below"], own))
    if notes := sorted({note for file in document["files"] for note in file["notes"]}):
        parts.append("not counted: " + "; ".join(map(printable, notes)))
    return "\n\n".join(parts)


# A node challenge


def replayed_challenge(config: ProcessConfig, number: int, published: bool) -> dict[str, Any]:
    """Return what a challenge comes to, by our own measurements of the drawn rows (unless `published`) and by the
    jurors' documents; `faults`: all that is not as it should be. Raises MusterError."""
    with closing(PoolClient(config, None)) as client:
        record = _record(client, client.refresh(), number)
        challenge, trial = record.challenge, record.trial
        jurors = [_juror(client, record, member) for member in sorted(trial.reveals)]
        if published and jurors and not any(juror.judged or juror.fault for juror in jurors):
            what = f"nobody has the verdict documents of jury {trial.trial}"
            raise MusterError(what, "leave out --published: the files are measured again")
        ours = None if published else _ours(client, config, record)
    faults = [*challenges.faults_of(record), *(f"seat {juror.seat}: {juror.fault}" for juror in jurors if juror.fault)]
    if ours is not None and (why := challenges.contradicts(record, ours)):
        faults.append(why)
    votes = [
        {
            "seat": juror.seat,
            "vote": challenge_label(juror.code),
            "agrees": None if ours is None else outcome_for(juror.code) is outcome_for(ours.code),
            "document": _evidence(juror.judged),
            "note": juror.note or juror.fault,
        }
        for juror in jurors
    ]
    return {
        "challenge": challenge.challenge,
        "pool": challenge.pool,
        "node": challenge.node,
        "opened": challenge.time,
        "files": [
            {"submission": name, "rows": file.rows, "drawn": record.rows(name)} for name, file in record.named.items()
        ],
        "evidence": record.evidence is not None,
        "jury": {
            "trial": trial.trial,
            "seats": list(trial.seats),
            "block": challenge.block,
            "seed_block": trial.seed_block,
            "seed": trial.seed.hex(),
            "before": challenge.trials[:-1],
        },
        "ours": _evidence(ours),
        "votes": votes,
        "majority": challenge_label(Code.UNDECIDED if (code := challenges.majority(trial)) is Code.NONE else code),
        "outcome": challenge.outcome.name.lower(),
        "open": challenge.outcome is ChallengeOutcome.OPEN,
        "slashed": challenge.slashed,
        "faults": faults,
        "follows": not faults,
    }


def _record(client: PoolClient, state: State, number: int) -> ChallengeRecord:
    """Return a challenge with what it is judged by. Raises ConfigError if there is none, or it is another pool's."""
    if number not in state.challenges:
        raise ConfigError(f"there is no challenge {number}", "muster challenge show lists all")
    challenge = state.challenges[number]
    if challenge.pool != client.config.pool:
        raise ConfigError(f"challenge {number} belongs to pool {challenge.pool}", f"pass --pool {challenge.pool}")
    document, pool = client.pool_config(_CONFIG_SECONDS), state.pools[challenge.pool]
    return ChallengeRecord(
        challenge=challenge,
        files=state.submissions_of(challenge.pool, challenge.node),
        named={sequence: state.submissions[challenge.pool, sequence] for sequence in challenge.sequences},
        trial=state.trials[challenge.trial],
        evidence=document.evidence,
        audit_rate=pool.terms.auditRate,
        config_hash=pool.config_hash,
    )


def _juror(client: PoolClient, record: ChallengeRecord, member: int) -> challenges.JurorReplay:
    """Return an opened vote, with the document behind it if anybody has that."""
    code, digest = record.trial.reveals[member]
    seat = record.trial.seats[member]
    try:
        return challenges.juror_replay(
            record, member, client.objects(object_key("verdicts", digest), MAX_DOCUMENT_BYTES)
        )
    except (MissingObjectError, UnreachableError):
        return challenges.JurorReplay(seat, Code(code), note="its verdict document is not published")
    except IntegrityError as error:
        return challenges.JurorReplay(
            seat, Code(code), fault=f"its verdict document is not the one it voted with: {error.what}"
        )


def _ours(client: PoolClient, config: ProcessConfig, record: ChallengeRecord) -> ChallengeVerdict | None:
    """Return what we would have voted, None without a jury or a file. Raises MusterError for a file that has gone."""
    if record.evidence is None:
        return ChallengeVerdict(Code.ACCEPT, "the pool names no null model for its terms: it convicts nobody")
    if not record.trial.drawn:
        return None
    verdicts = _measured(client, config, record)
    gone = [sequence for sequence, verdict in verdicts.items() if verdict.code is Code.UNAVAILABLE]
    if gone and challenges.majority(record.trial) is not Code.UNAVAILABLE:
        what = f"the bytes of files {', '.join(map(str, gone))} cannot be had from {config.orchestrator}"
        raise MusterError(what, "another source may have them; or pass --published: by the jurors' documents")
    return challenges.judge_challenge(record.challenge, record.files, record.evidence, verdicts)


def _measured(client: PoolClient, config: ProcessConfig, record: ChallengeRecord) -> dict[int, Verdict]:
    """Return our verdicts on the named files, by steps so that each step's weights are loaded once."""
    replayer, out = _replayer(client, config), {}
    for file in sorted(record.named.values(), key=lambda submission: (submission.step, submission.sequence)):
        out[file.sequence] = replayer.verdict(client.state, file, record.trial.seed)
        rows = len(record.rows(file.sequence))
        typer.echo(f"file {file.sequence}: {rows} of {file.rows} rows drawn, {out[file.sequence].code.label}", err=True)
    return out


def _evidence(judged: ChallengeVerdict | None) -> dict[str, Any] | None:
    """Return a verdict on the challenge as JSON; nats by figure where something was added up."""
    if judged is None:
        return None
    out: dict[str, Any] = {"code": challenge_label(judged.code), "why": judged.why, "limit": LIMIT_NATS}
    if (summed := judged.evidence) is not None:
        out["notes"] = sorted({note for file in judged.found for note in file.notes})
        out["nats"] = {name: summed.nats(name) for name in summed.wealth}
        out["engines"] = sorted({seen.verifier for file in judged.found for seen in file.seen})
        out |= {"total": summed.total, "peak": summed.peak, "accused": summed.accused}
    return out


def challenge_text(document: dict[str, Any]) -> str:
    """Return a recomputed challenge for people."""
    jury, ours = document["jury"], document["ours"]
    named = [f"{file['submission']} ({len(file['drawn'])} of {file['rows']} rows)" for file in document["files"]]
    head = {
        "challenge": f"{document['challenge']}, against node {document['node']} of pool {document['pool']}",
        "opened": f"{clock(document['opened'])}, in block {jury['block']}",
        "files": ", ".join(named),
        "jury": f"{jury['trial']}, drawn by block {jury['seed_block']}" if jury["seats"] else "not drawn",
    }
    if not document["evidence"]:
        head["evidence"] = "none in the pool's configuration: no challenge can convict"
    if ours is not None:
        head["by us"] = f"{ours['code']}: {ours['why']}"
    parts = [fields(head | {"votes": document["majority"], "outcome": document["outcome"]})]
    judged = {"ours": ours} | {f"seat {vote['seat']}": vote["document"] for vote in document["votes"]}
    if ballots := {who: ballot for who, ballot in judged.items() if ballot and "nats" in ballot}:
        first = next(iter(ballots.values()))
        rows = [[name, *(f"{ballot['nats'][name]:.1f}" for ballot in ballots.values())] for name in first["nats"]]
        rows.append(["together", *(f"{ballot['peak']:.1f}" for ballot in ballots.values())])
        limit = f"an honest node reaches {first['limit']:.1f} nats once in a million lives"
        parts.append(table(["nats", *ballots], rows) + "\n" + limit)
    agrees, votes = {None: "-", True: "yes", False: "NO"}, []
    for vote in document["votes"]:
        own = vote["document"] or {}
        engines = printable(", ".join(own.get("engines", ())))
        votes.append([str(vote["seat"]), vote["vote"], own.get("code", "-"), agrees[vote["agrees"]], engines])
    parts.append(table(["seat", "vote", "its document", "like ours", "engine"], votes))
    if notes := [f"seat {vote['seat']}: {printable(vote['note'])}" for vote in document["votes"] if vote["note"]]:
        parts.append("\n".join(notes))
    if document["faults"]:
        return "\n\n".join([*parts, "\n".join(f"WRONG: {printable(fault, 300)}" for fault in document["faults"])])
    conclusion = "it is open: nothing to compare yet" if document["open"] else "the outcome follows from the votes"
    return "\n\n".join([*parts, f"{conclusion}; nothing is wrong"])
