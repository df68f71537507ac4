"""The contract DilocoRuns: one record per outer step of a DiLoCo run."""

from dataclasses import dataclass, replace

from chain.contracts import Contract, ContractCall, record
from chain.indexer.logs import Event, accepted, decode_logs
from chain.transactions import Receipt
from protocol.errors import IntegrityError

WEIGHT_ONE = 10**9
"""Weights are recorded in billionths, rounded down."""
_ZERO = "0x" + "00" * 20


@dataclass(frozen=True)
class RunView:
    """IDilocoRuns.Run: SHA-256 of the run's document, digest of its first outer state, and how many outer steps are
    recorded. `coordinator` is the zero address for a number that no run has."""

    document: bytes
    start: bytes
    coordinator: str
    steps: int

    @property
    def exists(self) -> bool:
        return self.coordinator != _ZERO


@dataclass(frozen=True)
class RecordedContribution:
    """`document`: SHA-256 (hex) of the signed contribution; `weight`: its factor in 1/`WEIGHT_ONE`, 0 if excluded."""

    worker: str
    document: str
    weight: int


@dataclass(frozen=True)
class StepRecord:
    """Outer step `step`, which led to the state of digest `state` (hex). Its commit record is entry `number` of the
    log, whose stored bytes have the SHA-256 `entry` (hex). Contributions ascend by worker."""

    step: int
    state: str
    number: int
    entry: str
    contributions: tuple[RecordedContribution, ...]


class DilocoRuns(Contract):
    name = "DilocoRuns"

    def open(self, document: bytes, start: bytes) -> ContractCall[int]:
        """Open a run with the sender as its coordinator; the call's result is the run's number."""
        return self._returning(self.call("open", document, start), "RunOpened", "run")

    def record(self, run: int, made: StepRecord) -> ContractCall[Receipt]:
        """Record an outer step, as the coordinator."""
        contributions = [(one.worker, one.weight, bytes.fromhex(one.document)) for one in made.contributions]
        state, entry = bytes.fromhex(made.state), bytes.fromhex(made.entry)
        call = self.call("record", run, made.step, state, made.number, entry, contributions)
        # On top of what is not mined yet: a record whose answer was lost is not paid for twice.
        return replace(call, pending=True)

    def opened(self) -> int:
        """Return the number of the newest run, 0 if there is none."""
        return int(self.read("opened"))

    def run_of(self, run: int) -> RunView:
        return record(RunView, self.read("runOf", run))

    def recorded(self, run: int, step: int) -> StepRecord | None:
        """Return what is recorded of a step, None if nothing is.

        Raises UnreachableError; IntegrityError where the endpoint lacks the event of a record that it has."""
        number = int(self.read("blockOf", run, step))
        if not number:
            return None
        for event in self._events(number):
            if event.name == "StepRecorded" and (event.args["run"], event.args["step"]) == (run, step):
                return _step_record(event)
        raise IntegrityError(f"block {number} lacks the record of outer step {step}", "ask another endpoint")

    def _events(self, number: int) -> list[Event]:
        block = self.client.block(number)
        if block is None:
            raise IntegrityError(f"the chain's endpoint lacks block {number}", "ask another endpoint")
        query = {"address": self.address, "fromBlock": hex(number), "toBlock": hex(number)}
        logs = accepted(self.client.batch([("eth_getLogs", [query])])[0], number, number, block.hash)
        return decode_logs(logs, self.deployment)


def _step_record(event: Event) -> StepRecord:
    a = event.args
    contributions = tuple(
        RecordedContribution(one["worker"], bytes(one["document"]).hex(), one["weight"]) for one in a["contributions"]
    )
    return StepRecord(a["step"], bytes(a["state"]).hex(), a["number"], bytes(a["entry"]).hex(), contributions)
