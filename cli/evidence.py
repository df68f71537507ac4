"""Why a file was refused, in its judges' own words: the verdict documents behind their opened votes.

The documents come from strangers by way of the pool's service. Their bytes are checked against the hash that the vote
was bound to, their shape before anything is shown, and their text is stripped of control characters.
"""

from chain.indexer.records import Submission
from chain.indexer.state import State
from protocol.api.endpoints import OBJECTS
from protocol.errors import MusterError, UnreachableError, printable
from protocol.verdict import BallotDocument, Code, code_at
from storage.keys import MissingObjectError, object_key
from storage.transfers import HttpObjects

_SECONDS = 10.0
_MAX_BYTES = 4 << 20


def explain(state: State, sub: Submission, orchestrator: str) -> list[str]:
    """One line per finding that speaks against the file, each once, with the seats that say so; or why a document
    cannot be shown."""
    lane = state.lanes.get((sub.pool, sub.lane))
    said: dict[str, list[int]] = {}
    for turn in lane.rounds if lane else []:
        for member, (codes, digest) in sorted(turn.reveals.items()):
            if not code_at(codes, sub.place):
                continue
            for line in _findings(orchestrator, digest, sub.sequence):
                said.setdefault(line, []).append(turn.seats[member])
    return [f"{line} (seat {', '.join(map(str, sorted(set(seats))))})" for line, seats in said.items()]


def _findings(orchestrator: str, digest: bytes, sequence: int) -> list[str]:
    try:
        document = _fetch(orchestrator, object_key("verdicts", digest))
        verdict = BallotDocument.parse(document, digest).on(sequence)
    except MusterError as error:
        return [f"no evidence: {printable(error.what)}"]
    return [
        printable(f"{finding.check}: {finding.note or finding.code.label}")
        for finding in verdict.findings
        if finding.code not in (Code.ACCEPT, Code.NONE)
    ]


def _fetch(orchestrator: str, key: str) -> bytes:
    # Whoever asks sees the answer and nobody else does, so the service may point to wherever its bucket is.
    objects = HttpObjects([orchestrator.rstrip("/") + OBJECTS], timeout=_SECONDS, allow_private=True)
    try:
        return objects(key, _MAX_BYTES)
    except MissingObjectError:
        raise MissingObjectError("its verdict document is not published", "it may be later") from None
    except UnreachableError:
        raise UnreachableError(f"{orchestrator} does not answer", "check the URL") from None
    finally:
        objects.close()
