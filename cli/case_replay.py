"""A node case recomputed from chain and bucket: `muster verify case NUMBER`."""

from typing import TYPE_CHECKING, Any

import typer

from cli.views.case_replay import case_view
from protocol.errors import ConfigError, IntegrityError, MusterError, UnreachableError

if TYPE_CHECKING:
    from chain.indexer.state import State
    from protocol.verdict import Verdict
    from runtime.pool_client import PoolClient
    from runtime.process import ProcessConfig
    from validator.challenges import ChallengeRecord, ChallengeVerdict, JurorReplay

_CONFIG_SECONDS = 30.0


def replayed_case(config: "ProcessConfig", number: int, published: bool) -> dict[str, Any]:
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
    return case_view(record, jurors, ours, faults)


def _record(client: "PoolClient", state: "State", number: int) -> "ChallengeRecord":
    """Raises ConfigError for a case that there is not, or that is another pool's."""
    from validator.challenges import ChallengeRecord, null_model_of

    if number not in state.cases:
        have = f"cases are 1 to {len(state.cases)}" if state.cases else "no node was ever accused"
        raise ConfigError(f"there is no case {number}", f"{have}; see: muster case show")
    case = state.cases[number]
    if case.pool != client.config.pool:
        raise ConfigError(
            f"case {number} is of pool {case.pool}", f"pass --pool {case.pool}, and --orchestrator of its service"
        )
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
