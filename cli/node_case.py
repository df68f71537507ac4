"""The case against a node, recomputed from chain and bucket: `muster verify node ADDRESS`, `muster node status`."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cli.output import fields, table
from protocol.errors import ConfigError, MusterError, printable

if TYPE_CHECKING:
    from chain.indexer.records import Terms
    from chain.indexer.state import State
    from protocol.config import PoolConfig
    from protocol.evidence.null_model import NodeEvidence
    from runtime.process import ProcessConfig
    from validator.challenges import FileEvidence, NullModel

_DOCUMENT_SECONDS = 10.0


def case_of(config: "ProcessConfig", node: str, model_file: Path | None, published: bool) -> dict[str, Any]:
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
            raise MusterError(f"the chain has no pool {config.pool}", "see muster pool list")
        terms = state.pools[config.pool].terms
        model = (
            _calibrated(model_file, pool_client) if model_file else named_null_model(pool_client.pool_config(), terms)
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
    return case_document(node, config.pool, case, found, len(files), model)


def published_case(state: "State", pool: int, node: str, service: str) -> dict[str, Any]:
    """The same for a node that looks at itself: by its pool's own model, from what judges published and the service at
    `service` has. Raises MusterError."""
    from cli.up.pool_document import fetch_pool_config
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
    return case_document(node, pool, case, found, len(files), model)


def named_null_model(config: "PoolConfig", terms: "Terms") -> "NullModel":
    """The model that a pool's configuration names. Raises ConfigError if it names none, or one of another audit
    rate."""
    from validator.challenges import no_null_model, null_model_of

    model = null_model_of(config, terms)
    if model is None:
        raise ConfigError(
            no_null_model(config, terms.auditRate), "pass --model, its owner's calibration of the terms' audit rate"
        )
    return model


def case_document(
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


def case_text(document: dict[str, Any]) -> str:
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
    where = f"muster case open --first {run['first']} --last {run['last']}"
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


def _calibrated(path: Path, pool_client: Any) -> "NullModel":
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
        raise ConfigError(f"{path} has no model of evidence", "measure anew")
    return NullModel(document.evidence, config.work.samples_per_problem)


def _file(one: "FileEvidence") -> dict[str, Any]:
    file = one.submission
    best = {name: max(nats) for name, nats in one.nats.items()}
    return {"submission": file.sequence, "documents": one.documents, "notes": list(one.notes), "nats": best}
