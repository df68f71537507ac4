"""Outer steps on chain: the coordinator records them, and anybody can verify a record from the bucket.

What is missing follows from chain, log and bucket, so whatever is killed, each step is recorded once."""

import logging
import threading
from collections.abc import Callable, Mapping
from fractions import Fraction

from chain.client import ChainClient
from chain.contracts import WEIGHT_ONE, DilocoRuns, RecordedContribution, StepRecord, Struct
from chain.deployment import Deployment
from diloco.config import ChainConfig, DilocoRun, MemberConfig
from diloco.log import Log, catch_up, make_step
from diloco.messages import CommitRecord
from diloco.outer import OuterState
from diloco.transport import Transport
from protocol.accounts import LocalAccount
from protocol.encoding import load_document
from protocol.errors import ConfigError, IntegrityError, MusterError, UnreachableError
from runtime.entry import essential
from storage.s3 import Bucket

log = logging.getLogger("muster.diloco")
_SEND_SECONDS = 300.0  # for a transaction; given up sooner, it would be sent twice while gas is expensive
_LAST_SECONDS = 30.0
_PAUSE, _MAX_PAUSE = 5.0, 60.0  # between two looks, longer after failures
_PATIENCE = 5.0


def connect_runs(config: ChainConfig, account: LocalAccount | None) -> DilocoRuns:
    """Connect to the deployment's contract; `account` sends, None: nobody. Raises ConfigError, UnreachableError."""
    deployment = Deployment.load(config.deployment)
    client = ChainClient(config.rpc, deployment.chain_id, account, patience=_PATIENCE, timeout=_PATIENCE)
    deployment.check_genesis(client)
    return DilocoRuns(client, deployment)


def check_run(view: Struct, number: int, run: DilocoRun, first: OuterState) -> None:
    """Raise ConfigError unless the chain's run `number` is the document's, and starts from the state `first`."""
    if not int(view["coordinator"], 16):
        raise ConfigError(f"there is no run {number} on chain", "open it: muster diloco record; or check the number")
    document, coordinator = view["document"].hex(), view["coordinator"]
    if (document, coordinator) != (run.digest, run.coordinator):
        raise ConfigError(
            f"run {number} on chain has the document {document[:16]}… and coordinator {coordinator}; {run.name} has "
            f"{run.digest[:16]}… and {run.coordinator}",
            "check the number, and the document",
        )
    if view["start"] != first.digest:
        chain, model = view["start"].hex()[:16], first.digest.hex()[:16]
        what = f"the run on chain starts from state {chain}…, this model is {model}…"
        raise ConfigError(what, "name the run's own base model; if it is the right one, take no part in this run")


def step_record(number: int, entry: str, commit: CommitRecord, weights: Mapping[str, Fraction]) -> StepRecord:
    """Return what is to be recorded of the outer step that `commit`, entry `number` of the log, commits."""
    contributions = []
    for worker, document in sorted(commit.made_of.items(), key=lambda item: int(item[0], 16)):
        weight = weights.get(worker, Fraction(0))
        billionths = weight.numerator * WEIGHT_ONE // weight.denominator
        contributions.append(RecordedContribution(worker, document, billionths))
    return StepRecord(commit.step - 1, commit.digest, number, entry, tuple(contributions))


class StepRecorder:
    """Records outer steps in a thread of its own, so that no step waits for the chain. `connect` is asked once."""

    def __init__(self, connect: Callable[[], DilocoRuns], run: int, transport: Transport, first: OuterState) -> None:
        self._connect, self._run, self._transport, self._first = connect, run, transport, first
        self._runs: DilocoRuns | None = None
        self._weights: dict[int, Mapping[str, Fraction]] = {}
        self._soon, self._stopping = threading.Event(), threading.Event()
        self._thread = essential("step-recorder", self._work)

    def start(self) -> None:
        self._thread.start()

    def committed(self, commit: CommitRecord, weights: Mapping[str, Fraction]) -> None:
        """Record an outer step soon."""
        self._weights[commit.step - 1] = weights
        self._soon.set()

    def finish(self) -> None:
        """Record what is left, for a bounded time; the rest is recorded after the next start."""
        self._stopping.set()
        self._soon.set()
        if self._thread.is_alive():
            self._thread.join(_LAST_SECONDS)

    def record_missing(self) -> None:
        """Record every outer step that the log has and the chain lacks. Raises MusterError."""
        if self._runs is None:
            self._runs = self._connect()
        view = self._runs.run_of(self._run)
        check_run(view, self._run, self._transport.run, self._first)
        newest, missing = Log.newest(self._transport), []
        for number, commit in newest.commits_back() if newest is not None else ():
            if commit.step <= view["steps"]:
                break
            missing.append((number, commit))
        for number, commit in reversed(missing):
            log_entry = self._transport.entry(number)
            assert log_entry is not None, "its commit record was read"
            weights = self._weights.get(commit.step - 1)
            if weights is None:
                weights = remake(self._transport, self._first, commit)[1]
            record = step_record(number, log_entry[1], commit, weights)
            self._runs.client.send(self._runs.record(self._run, record), timeout=_SEND_SECONDS)
            self._weights.pop(commit.step - 1, None)
            log.info("outer step %d is recorded on chain", commit.step - 1)

    def _work(self) -> None:
        wait, problem, last = _PAUSE, "", False
        while not last:
            last = self._stopping.is_set()
            self._soon.clear()
            try:
                self.record_missing()
                wait, problem = _PAUSE, ""
            except (MusterError, OSError) as error:
                if str(error) != problem:
                    log.warning("run %d on chain: %s", self._run, error)
                wait, problem = min(2 * wait, _MAX_PAUSE), str(error)
            if not last:
                self._soon.wait(wait)


def remake(transport: Transport, first: OuterState, commit: CommitRecord) -> tuple[str, Mapping[str, Fraction]]:
    """Make the outer step that led to `commit` again, from the run's first state or any later one; return the digest
    (hex) of the state it started from, and the weights of its contributions. Raises IntegrityError where it does not
    lead there; MissingObjectError, UnreachableError."""
    if commit.previous is None:
        raise IntegrityError("the log's first commit record ends no outer step")
    *_, state = [first, *catch_up(transport, first, Log.at(transport, commit.previous))]
    return state.digest.hex(), make_step(transport, state, commit)[1].weights


def verify_step(config: MemberConfig, first: OuterState, step: int) -> tuple[StepRecord, list[str]]:
    """Make a recorded outer step again from the chain and the bucket, without a key; return the record, and which parts
    of it do not follow from the log and the bucket. Raises ConfigError where it is not recorded; MissingObjectError
    where something that was published is gone; UnreachableError."""
    if config.chain is None:
        raise ConfigError("the configuration names no chain", "name it as `chain`")
    run, number = load_document(config.run, DilocoRun), config.chain.run
    runs = connect_runs(config.chain, None)
    view = runs.run_of(number)
    check_run(view, number, run, first)
    record, before = runs.recorded(number, step), runs.recorded(number, step - 1) if step else None
    if record is None:
        raise ConfigError(f"outer step {step} is not recorded", f"{view['steps']} are")
    if step and before is None:  # steps are recorded in order: another endpoint answered
        raise UnreachableError(f"the chain's endpoint lacks the record of outer step {step - 1}", "try again")
    base = before.state if before else view["start"].hex()
    try:
        return record, _faults(record, base, Transport(Bucket(config.s3), run), first)
    except IntegrityError as error:
        return record, [error.what]


def _faults(record: StepRecord, base: str, transport: Transport, first: OuterState) -> list[str]:
    """Return which parts of a record do not follow from the log and the bucket. `base`: digest (hex) of the state
    recorded before. Raises IntegrityError where the step cannot be made at all."""
    log_entry = transport.entry(record.number)
    commit = None if log_entry is None else log_entry[0].commit
    if log_entry is None or commit is None or commit.step != record.step + 1:
        return [f"entry {record.number} of the log does not commit outer step {record.step}"]
    started_from, weights = remake(transport, first, commit)
    remade = step_record(record.number, log_entry[1], commit, weights)
    faults = [] if remade.entry == record.entry else [f"the log has another entry {record.number} than is recorded"]
    if started_from != base:
        faults.append(f"it starts from state {started_from[:16]}…, recorded before it is {base[:16]}…")
    if remade.state != record.state:
        faults.append(f"it leads to state {remade.state[:16]}…, recorded is {record.state[:16]}…")
    ours, theirs = (
        {contribution.worker: contribution for contribution in step.contributions} for step in (remade, record)
    )
    for worker in sorted(ours.keys() | theirs.keys()):
        recomputed, recorded = ours.get(worker), theirs.get(worker)
        if recomputed != recorded:
            faults.append(f"{worker}: made of {_shown(recomputed)}, recorded is {_shown(recorded)}")
    return faults


def _shown(contribution: RecordedContribution | None) -> str:
    return (
        "nothing"
        if contribution is None
        else f"{contribution.document[:16]}… with weight {contribution.weight / WEIGHT_ONE:.9f}"
    )
