"""What one check found of one prerequisite."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from protocol.errors import MusterError

WHY = {
    "python": "muster is tested and locked for this version only",
    "node": "the contracts' tools are installed with npm",
    "npm": "the contracts' tools are installed with it",
    "git": "the contracts' libraries are fetched with it",
    "compiler": "some packages are compiled at installation",
    "forge": "the contracts are compiled and tested with it",
    "anvil": "a local network's chain runs on it",
    "packages": "another version can compute other numbers, and honest files would be refused",
    "scoring": "a worker that scores differently is refused by validators and slashed",
    "contracts": "commands need the contracts' interface, `muster deploy` their code",
    "xattrs": "the local S3 server keeps what it knows of an object beside it",
    "ports": "a local network's services listen there",
    "isolation": "a task's or a model's code that breaks out must find nothing of this machine",
    "disk": "weights, journals and ballots are written there; a full or slow disk loses time, and time loses votes",
    "gpu": "the engine of the profile computes there",
    "clock": "the service refuses requests whose time is off, and windows are judged by the chain's",
    "deployment": "it names the contracts, and the chain that they are on",
    "rpc": "work, votes and pay go through it; one that is slow or behind misses windows",
    "s3": "the pool's files lie there",
    "storage": "weights come from there and files go there, within the pool's windows",
    "orchestrator": "it gives out work and says where files are",
    "version": "versions that differ may not understand one another's files",
    "gas": "every file, vote and claim is a transaction",
    "stake": "a node without the pool's least stake gets no work",
    "keystore": "whoever can read a key and its password owns what it holds",
    "password": "whoever can read a key and its password owns what it holds",
    "kept files": "a jury that gets an accepted file from nobody has the seats fined that accepted it",
    "engines": "the engine that made a file sees changes in it which another one's rounding hides",
    "cache": "damaged weights make files that are refused as forged",
    "pool config": "everybody's work follows from it",
    "profile": "commands take keys, pool and addresses from it",
}
"""What each check is for, by its name."""


@dataclass(frozen=True)
class Prerequisite:
    """`state` is ok, failed, or note (worth knowing, nothing to do). `hint` says what to do about a failure."""

    check: str
    state: str
    detail: str
    hint: str = ""

    @property
    def why(self) -> str:
        """What it is needed for."""
        return WHY[self.check]

    def line(self) -> str:
        mark = {"ok": "ok    ", "failed": "FAILED", "note": "note  "}[self.state]
        first = f"{mark}  {self.check:<12} {self.detail}" + (f"; {self.hint}" if self.hint else "")
        return first + (f"\n{'':<21}why: {self.why}" if self.state == "failed" else "")

    def document(self) -> dict[str, str]:
        return asdict(self) | {"why": self.why}


def ok(check: str, detail: str) -> Prerequisite:
    return Prerequisite(check, "ok", detail)


def failed(check: str, detail: str, hint: str) -> Prerequisite:
    return Prerequisite(check, "failed", detail, hint)


def note(check: str, detail: str) -> Prerequisite:
    return Prerequisite(check, "note", detail)


def judged(check: str, look: Callable[[], str]) -> Prerequisite:
    """`look` returns what it saw, or raises a MusterError, which becomes a failure."""
    try:
        return ok(check, look())
    except MusterError as error:
        return failed(check, error.what, error.hint)
