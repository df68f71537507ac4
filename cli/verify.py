"""`muster verify`: recompute files, nodes, challenges and curricula from chain and bucket, and compare."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import Commands, EngineOptions, PoolReading
from cli.output import clock, emit, fields, table
from protocol.errors import ConfigError, IntegrityError, MusterError, UnreachableError, printable

if TYPE_CHECKING:
    from chain.indexer.records import Terms
    from chain.indexer.state import State
    from protocol.config import PoolConfig
    from protocol.evidence.null_model import NodeEvidence
    from protocol.verdict import Verdict
    from runtime.pool_client import PoolClient
    from runtime.process import ProcessConfig
    from validator.challenges import ChallengeRecord, ChallengeVerdict, FileEvidence, JurorReplay, NullModel
    from validator.replay import Opened, Replayed


app = Commands(help="Recompute what was decided, from public data alone.", no_args_is_help=True)
_CONFIG_SECONDS, _DOCUMENT_SECONDS = 30.0, 10.0

PublishedOption = Annotated[
    bool, typer.Option("--published", help="By the verdict documents of judges, not by measuring again.")
]


@dataclass(frozen=True)
class ReplayOptions:
    """Options of a command that measures files again."""

    cache: Annotated[Path | None, typer.Option(help="Folder for weights and chain events.")] = None
    allow_private_sources: Annotated[
        bool, typer.Option("--allow-private-sources", help="Follow URLs that others chose into private networks too.")
    ] = False

    def config(self, look: PoolReading, engine: EngineOptions) -> "ProcessConfig":
        """Return what a process without a key needs to know. Raises ConfigError, UnreachableError."""
        from protocol.files import user_cache

        home = self.cache or user_cache("verify")
        return look.observer(engine.config(), home, home / "weights", self.allow_private_sources)


@app.command("files", "muster verify files 17 33 --pool https://pool.example")
def files(
    look: PoolReading,
    engine: EngineOptions,
    replay: ReplayOptions,
    numbers: Annotated[
        list[int] | None, typer.Argument(metavar="[FILE]...", min=0, help="Files; all decided ones if none is named.")
    ] = None,
) -> None:
    """Judge decided files again from chain and bucket, and compare with outcome and votes.

    Exit code 1 if any outcome differs from ours."""
    engine.set_threads()
    document = _replayed(replay.config(look, engine), numbers or [])
    emit(document, look.json, lambda: _text(document))
    if document["differing"]:
        raise typer.Exit(1)


@app.command("node", "muster verify node ADDRESS --pool https://pool.example --published")
def node(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Address of the node.")],
    look: PoolReading,
    engine: EngineOptions,
    replay: ReplayOptions,
    published: PublishedOption = False,
    null_model: Annotated[
        Path | None, typer.Option(help="A calibration of the pool's owner, if the pool names no null model.")
    ] = None,
) -> None:
    """Add up the evidence of all files of a node, by the pool's null model.

    Exit code 1 if they are together not an honest node's."""
    from protocol.signing import checked_address

    try:
        node = checked_address(address)
    except ValueError as error:
        raise ConfigError(f"ADDRESS: {error}", "copy it again, with its checksum") from None
    if not published:
        engine.set_threads()
    found = node_history(replay.config(look, engine), node, null_model, published)
    emit(found, look.json, lambda: history_text(found))
    if found["accused"]:
        raise typer.Exit(1)


@app.command("challenge", "muster verify challenge 3 --pool https://pool.example")
def challenge(
    number: Annotated[int, typer.Argument(metavar="CHALLENGE", min=1, help="Number of the node challenge.")],
    look: PoolReading,
    engine: EngineOptions,
    replay: ReplayOptions,
    published: PublishedOption = False,
) -> None:
    """Recompute a node challenge: files, drawn rows, votes and outcome.

    Exit code 1 if anything is wrong with it."""
    if not published:
        engine.set_threads()
    found = replayed_challenge(replay.config(look, engine), number, published)
    emit(found, look.json, lambda: challenge_text(found))
    if not found["follows"]:
        raise typer.Exit(1)


@app.command("curriculum", "muster verify curriculum 20 --pool https://pool.example")
def curriculum(step: Annotated[int, typer.Argument(min=0, help="Policy step.")], look: PoolReading) -> None:
    """Recompute which problems a policy step's curriculum masks, and compare with what the owner published.

    Exit code 1 if it differs."""
    from cli.dataset import check_curriculum

    check_curriculum(step, look)


# ---- Files


def _replayed(config: "ProcessConfig", sequences: Sequence[int]) -> dict[str, Any]:
    """Return what a replay of the files found."""
    from validator.replay import replay

    typer.echo("loading the engine and the weights", err=True)
    rows = []
    for one in replay(config, sequences):
        rows.append(_row(one))
        typer.echo(f"file {rows[-1]['submission']}: {rows[-1]['ours']}, decided {rows[-1]['decided']}", err=True)
    return {
        "engine": config.engine.model_dump(),
        "replayed": rows,
        "differing": sum(not row["agrees"] for row in rows),
        "votes": sum(len(row["votes"]) for row in rows),
        "votes_differing": sum(not vote["agrees"] for row in rows for vote in row["votes"]),
        "largest_differences": _largest_differences(rows),
    }


def _row(one: "Replayed") -> dict[str, Any]:
    return {
        "submission": one.submission.sequence,
        "node": one.submission.node,
        "step": one.submission.step,
        "decided": one.voted.label,
        "ours": one.verdict.code.label,
        "agrees": one.agrees,
        "votes": [_vote(one, opened) for opened in one.opened],
        "why": "; ".join(f"{finding.check}: {finding.note}" for finding in one.verdict.findings if finding.note),
        "now": one.submission.status.value,
    }


def _vote(one: "Replayed", opened: "Opened") -> dict[str, Any]:
    """A member's vote beside ours: with its published verdict, check by check and measurement by measurement."""
    from protocol.verdict import BallotDocument
    from validator.replay import alike, differences

    row: dict[str, Any] = {
        "seat": opened.seat,
        "code": opened.code.label,
        "agrees": alike(opened.code, one.verdict.code),
    }
    if opened.document is None:
        return row | {"note": "its verdict document is not published"}
    try:
        theirs = BallotDocument.parse(opened.document, opened.digest).on(one.submission.sequence)
    except IntegrityError as error:
        return row | {"note": error.what}
    found = [vars(difference) for difference in differences(theirs, one.verdict)]
    row |= {"engine": theirs.engine.get("name", "?")[:32], "differences": found}
    if not alike(theirs.code, opened.code):
        row["note"] = f"it voted {opened.code.label}, but its verdict document says {theirs.code.label}"
    return row


def _largest_differences(rows: list[dict[str, Any]]) -> dict[str, float]:
    """How far two engines' measurements lie apart at most, over all votes like ours whose verdict is published."""
    from validator.replay import Difference, largest

    like = [vote for row in rows for vote in row["votes"] if vote["agrees"]]
    return largest(Difference(**found) for vote in like for found in vote.get("differences", ()))


def _text(document: dict[str, Any]) -> str:
    rows, engine = document["replayed"], document["engine"]
    columns = ["submission", "node", "step", "decided", "ours", "agrees", "why"]
    lines = [table(columns, _cells(rows)), *_disagreements(rows)]
    lines += [
        f"{len(rows)} verdicts replayed with {engine['name']}, batch {engine['batch']}: {document['differing']} differ",
        f"{document['votes']} opened votes compared: {document['votes_differing']} differ",
    ]
    return "\n".join(lines)


def _disagreements(rows: list[dict[str, Any]]) -> list[str]:
    """Who came to another code, and by which check and measurements."""
    from validator.replay import Difference

    lines = []
    for row in rows:
        for vote in row["votes"]:
            if not vote["agrees"] or "voted" in vote.get("note", ""):
                found = [printable(str(Difference(**one))) for one in vote.get("differences", ())][:6]
                why = (
                    "; ".join([*([printable(vote["note"])] if "note" in vote else []), *found])
                    or "the figures are the same"
                )
                lines.append(f"{row['submission']}: seat {vote['seat']} voted {vote['code']}: {why}")
    return lines


def _cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            str(row["submission"]),
            row["node"][:10],
            str(row["step"]),
            row["decided"],
            row["ours"],
            "yes" if row["agrees"] else f"NO (now {row['now']})",
            row["why"][:80],
        ]
        for row in rows
    ]


def node_history(config: "ProcessConfig", node: str, null_model_file: Path | None, published: bool) -> dict[str, Any]:
    """The case of one node: from the figures of our own replay of its files, or from what validators `published`, of
    which the least counts; by the model in a calibration, or by the one that the pool's configuration names. Raises
    MusterError."""
    from runtime.pool_client import PoolClient
    from validator.challenges import history_evidence
    from validator.judging.pipeline import OtherEngines, others
    from validator.judging.sources import Sources
    from validator.replay import OpenedVotes, Replayer

    pool_client = PoolClient(config, None)
    try:
        state = pool_client.refresh()
        if config.pool not in state.pools:
            raise MusterError(f"the chain has no pool {config.pool}", "see: muster pool list")
        terms = state.pools[config.pool].terms
        model = (
            _calibrated_null_model(null_model_file, pool_client)
            if null_model_file
            else named_null_model(pool_client.pool_config(), terms)
        )
        files = state.submissions_of(config.pool, node)
        if not files:
            raise MusterError(f"{node} has submitted nothing to pool {config.pool}", "check the address")
        if published:
            votes = OpenedVotes(Sources(pool_client.objects, announced_seconds=60.0))
            case, found = history_evidence(files, model, lambda file: votes.verdicts(state, file))
        else:
            typer.echo("loading the engine and the weights", err=True)
            replayer = Replayer(pool_client, config.engine.make(), OtherEngines(others(config.engine)))
            case, found = history_evidence(files, model, lambda file: [replayer.verdict(state, file)])
    finally:
        pool_client.close()
    return history_document(node, config.pool, case, found, len(files), model)


def published_history(state: "State", pool: int, node: str, service: str) -> dict[str, Any]:
    """The same for a node that looks at itself: by its pool's own model, from what judges published and the service at
    `service` has. Raises MusterError."""
    from cli.pool_document import fetch_pool_config
    from protocol.api.endpoints import OBJECTS
    from storage.transfers import HttpObjects
    from validator.challenges import history_evidence
    from validator.judging.sources import Sources
    from validator.replay import OpenedVotes

    known = state.pools[pool]
    model = named_null_model(fetch_pool_config(service, known.config_hash), known.terms)
    files = state.submissions_of(pool, node)
    objects = HttpObjects([service.rstrip("/") + OBJECTS], timeout=_DOCUMENT_SECONDS, allow_private=True)
    try:
        votes = OpenedVotes(Sources(objects))
        case, found = history_evidence(files, model, lambda file: votes.verdicts(state, file))
    finally:
        objects.close()
    return history_document(node, pool, case, found, len(files), model)


def named_null_model(config: "PoolConfig", terms: "Terms") -> "NullModel":
    """The model that a pool's configuration names. Raises ConfigError if it names none, or one of another audit
    rate."""
    from validator.challenges import no_null_model, null_model_of

    model = null_model_of(config, terms)
    if model is None:
        raise ConfigError(
            no_null_model(config, terms.auditRate),
            "pass --null-model, its owner's calibration of the terms' audit rate",
        )
    return model


def history_document(
    node: str, pool: int, case: "NodeEvidence", found: "Sequence[FileEvidence]", files: int, model: "NullModel"
) -> dict[str, Any]:
    """`left`: nats that an accumulator alone would need to accuse, beyond what it has; `engines`: by pair of engines,
    with versions, each accumulator's measured rate and the least that a bet takes for honest; `run`: of an accused node
    the run to name in a case, None where none shows it."""
    from chain.contracts import MOST_FILES
    from protocol.evidence.null_model import LIMIT_NATS
    from validator.challenges import shortest_run

    alone = LIMIT_NATS + math.log(len(case.wealth))
    # No run adds up to more than the whole life does.
    run = shortest_run(found, MOST_FILES) if case.accused else None
    return {
        "node": node,
        "pool": pool,
        "files": [_file(one) for one in found],
        "waiting": files - len(found),
        "nats": {name: case.nats(name) for name in case.wealth},
        "left": {name: alone - case.nats(name) for name in case.wealth},
        "engines": _engines(found, model),
        "total": case.total,
        "peak": case.peak,
        "limit": LIMIT_NATS,
        "accused": case.accused,
        "run": asdict(run) if run else None,
    }


def history_text(document: dict[str, Any]) -> str:
    """The same for people."""
    from protocol.evidence.null_model import ACCUMULATORS, BLOCK_ACCUMULATORS

    about = {**ACCUMULATORS, **BLOCK_ACCUMULATORS}
    used = sum(one["documents"] > 0 for one in document["files"])
    notes = sorted({note for one in document["files"] for note in one["notes"]})
    facts = {
        "node": document["node"],
        "files": f"{len(document['files'])} decided, figures of {used} of them; {document['waiting']} wait",
        "evidence": f"e^{document['total']:.1f}, at most e^{document['peak']:.1f}; an honest node reaches "
        f"e^{document['limit']:.1f} once in a million lives",
        "verdict": "ACCUSED: no honest node's figures add up to this" if document["accused"] else "nothing shown",
    }
    head = fields(facts | ({"case": _named(document["run"])} if document["accused"] else {}))
    left = document["left"]
    rows = [[name, f"{nats:.1f}", f"{left[name]:.1f}", about[name]] for name, nats in document["nats"].items()]
    parts = [head, table(["accumulator", "nats", "to the bound", "what it adds up"], rows)]
    for pair in document["engines"]:
        own = [[name, f"{one['rate']:.4g}", f"{one['honest']:.4g}"] for name, one in pair["rates"].items()]
        title = (
            f"{pair['documents']} documents by {printable(pair['verifier'])} on files of {printable(pair['worker'])}"
        )
        parts.append(title + "\n" + table(["accumulator", "measured", "honest below"], own))
    return "\n\n".join([*parts, *(["not counted: " + "; ".join(map(printable, notes))] if notes else [])])


def _named(run: dict[str, Any] | None) -> str:
    """What a case should name."""
    from chain.contracts import MOST_FILES
    from validator.challenges import SPARE_NATS

    if run is None:
        return f"no run of at most {MOST_FILES} files passes the bound by {SPARE_NATS:g} nats: no case shows it safely"
    where = f"muster challenge open --first {run['first']} --last {run['last']}"
    return f"{where}: {run['files']} files, e^{run['nats']:.1f}"


def _engines(found: "Sequence[FileEvidence]", model: "NullModel") -> list[dict[str, Any]]:
    """What each pair of engines measured, the pairs in order of their names."""
    seen = [one for file in found for one in file.seen]
    out = []
    for worker, verifier in sorted({(one.worker, one.verifier) for one in seen}):
        own = [one for one in seen if (one.worker, one.verifier) == (worker, verifier)]
        rates = {}
        for name, honest in model.rates(own[0]).items():
            count = math.fsum(one.sums[name].count for one in own)
            total = math.fsum(one.sums[name].total for one in own)
            rates[name] = {"rate": total / count if count else 0.0, "honest": honest}
        out.append({"worker": worker, "verifier": verifier, "documents": len(own), "rates": rates})
    return out


def _calibrated_null_model(path: Path, pool_client: Any) -> "NullModel":
    """The pool's model out of its owner's calibration. Raises ConfigError unless it is of this pool, and IntegrityError
    unless its owner signed it and it follows from the measurements."""
    from calibration.document import Calibration, subject
    from validator.challenges import NullModel

    document, pool, config = Calibration.load(path), pool_client.pool(), pool_client.pool_config()
    document.check(pool.owner)
    if document.pool != subject(config) or document.audit_rate != pool.terms.auditRate:
        what = f"{path} is a calibration of another model, task, work or audit rate than pool {pool.pool}'s"
        raise ConfigError(what, "ask the pool's owner for its calibration")
    if not document.evidence:
        raise ConfigError(f"{path} has no null model", "measure again")
    return NullModel(document.evidence, config.work.samples_per_problem)


def _file(one: "FileEvidence") -> dict[str, Any]:
    file = one.submission
    best = {name: max(nats) for name, nats in one.nats.items()}
    return {"submission": file.sequence, "documents": one.documents, "notes": list(one.notes), "nats": best}


def challenge_view(
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


def challenge_text(document: dict[str, Any]) -> str:
    """The same as text."""
    jury, ours = document["jury"], document["ours"]
    head = {
        "case": f"{document['case']}, against node {document['node']} of pool {document['pool']}",
        "opened": f"{clock(document['opened'])}, in block {jury['block']}",
        "files": ", ".join(map(_challenge_file, document["files"])),
        "jury": f"{jury['trial']}, drawn by block {jury['seed_block']}" if jury["seats"] else "not drawn",
        "null model": "the pool's own"
        if document["null_model"]
        else "none that holds for the pool's terms: no challenge can convict",
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


def _challenge_file(one: dict[str, Any]) -> str:
    return f"{one['submission']} ({len(one['drawn'])} of {one['rows']} rows)"


def replayed_challenge(config: "ProcessConfig", number: int, published: bool) -> dict[str, Any]:
    """What a case comes to: by our own measurements of the rows that its jury's seed drew, and by what the jurors
    `published`; or by the latter alone. Raises MusterError."""
    from runtime.pool_client import PoolClient
    from validator.challenges import faults_of, juror_replay

    client = PoolClient(config, None)
    try:
        record = _record(client, client.refresh(), number)
        block = client.client.block(record.trial.seed_block)
        faults = faults_of(record, block.hash if block else None)
        jurors = [_juror(client, record, member, juror_replay) for member in sorted(record.trial.reveals)]
        if published and jurors and not any(one.judged for one in jurors) and not any(one.fault for one in jurors):
            what = f"nobody has the verdict documents of jury {record.trial.trial}"
            raise MusterError(what, "leave out --published: the files are measured again")
        ours = None if published else _ours(client, config, record)
    finally:
        client.close()
    return challenge_view(record, jurors, ours, faults)


def _record(client: "PoolClient", state: "State", number: int) -> "ChallengeRecord":
    """Raises ConfigError for a case that there is not, or that is another pool's."""
    from validator.challenges import ChallengeRecord, null_model_of

    if number not in state.cases:
        have = f"challenges are 1 to {len(state.cases)}" if state.cases else "no node was ever accused"
        raise ConfigError(f"there is no challenge {number}", f"{have}; see: muster challenge show")
    case = state.cases[number]
    if case.pool != client.config.pool:
        raise ConfigError(f"challenge {number} is of pool {case.pool}", f"pass --pool {case.pool}")
    document, pool = client.pool_config(_CONFIG_SECONDS), state.pools[case.pool]
    return ChallengeRecord(
        case=case,
        files=state.submissions_of(case.pool, case.node),
        named={sequence: state.submissions.get((case.pool, sequence)) for sequence in case.sequences},
        trials=[state.trials[trial] for trial in case.trials],
        account=state.accounts.get((case.pool, case.node)),
        model=null_model_of(document, pool.terms),
        audit_rate=pool.terms.auditRate,
        config_hash=pool.config_hash,
    )


def _juror(client: "PoolClient", record: "ChallengeRecord", member: int, replay: Any) -> "JurorReplay":
    """An opened vote, with the document behind it if anybody has that."""
    from protocol.verdict import MAX_DOCUMENT_BYTES, Code
    from storage.keys import MissingObjectError, object_key
    from validator.challenges import JurorReplay

    code, digest = record.trial.reveals[member]
    seat = record.trial.seats[member]
    try:
        document = client.objects(object_key("verdicts", digest), MAX_DOCUMENT_BYTES)
        found: JurorReplay = replay(record, member, document)
    except (MissingObjectError, UnreachableError):
        return JurorReplay(seat, Code(code), note="its verdict document is not published")
    except IntegrityError as error:
        return JurorReplay(seat, Code(code), fault=f"its verdict document is not the one it voted with: {error.what}")
    return found


def _ours(client: "PoolClient", config: "ProcessConfig", record: "ChallengeRecord") -> "ChallengeVerdict | None":
    """What we would have voted; None where no jury was drawn, or a named file is not on chain. Raises MusterError where
    a file that the jury had cannot be had any more."""
    from protocol.verdict import Code
    from validator.challenges import ChallengeVerdict, judge_challenge, majority

    if record.model is None:
        return ChallengeVerdict(Code.ACCEPT, "the pool names no null model for its terms: it convicts nobody")
    if not record.trial.drawn or None in record.named.values():
        return None
    verdicts = _measured(client, config, record)
    gone = [sequence for sequence, one in verdicts.items() if one.code is Code.UNAVAILABLE]
    if gone and majority(record.trial) is not Code.UNAVAILABLE:
        what = f"the bytes of files {', '.join(map(str, gone))} cannot be had from {config.orchestrator}"
        raise MusterError(what, "another source may have them; or pass --published: by the jurors' documents")
    return judge_challenge(record.case, record.files, record.model, verdicts)


def _measured(client: "PoolClient", config: "ProcessConfig", record: "ChallengeRecord") -> "dict[int, Verdict]":
    """Our own verdicts on the named files, by steps so that each step's weights are loaded once."""
    from validator.judging.pipeline import OtherEngines, others
    from validator.replay import Replayer

    typer.echo("loading the engine and the weights", err=True)
    replayer = Replayer(client, config.engine.make(), OtherEngines(others(config.engine)))
    state, out = client.state, {}
    known = [file for file in record.named.values() if file is not None]
    for file in sorted(known, key=lambda one: (one.step, one.sequence)):
        out[file.sequence] = replayer.verdict(state, file, record.trial.seed)
        rows = len(record.rows(file.sequence))
        typer.echo(f"file {file.sequence}: {rows} of {file.rows} rows drawn, {out[file.sequence].code.label}", err=True)
    return out
