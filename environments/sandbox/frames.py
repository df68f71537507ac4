"""What passes between a pool and its processes: a document with its length before it, then bytes."""

import json
from dataclasses import asdict
from typing import IO, Any

from environments.sandbox.program import Ending, SandboxLimits, SandboxOutcome, SandboxProgram
from protocol.encoding import parse_json

READY = b"ready\n"
_LENGTH = 10


def pack_request(program: SandboxProgram, limits: SandboxLimits) -> bytes:
    """A program and its limits."""
    about = {
        "limits": asdict(limits),
        "source": program.source,
        "function": program.function,
        "arguments": program.arguments,
        "stdin": len(program.stdin),
    }
    return _packed(about, program.stdin)


def read_request(source: IO[bytes]) -> tuple[SandboxProgram, SandboxLimits] | None:
    """What `pack_request` sent; None at the end. Trusted: it comes from our own process."""
    length = source.read(_LENGTH)
    if len(length) < _LENGTH:
        return None
    about = json.loads(source.read(int(length)))
    stdin = source.read(about["stdin"])
    return SandboxProgram(about["source"], stdin, about["function"], about["arguments"]), SandboxLimits(
        **about["limits"]
    )


def pack_outcome(outcome: SandboxOutcome) -> bytes:
    """The answer to a request."""
    about = {
        "ending": outcome.ending,
        "code": outcome.code,
        "fuel": outcome.fuel,
        "memory": outcome.memory,
        "sizes": [len(outcome.stdout), len(outcome.stderr)],
    }
    return _packed(about, outcome.stdout + outcome.stderr)


def unpack_outcome(data: bytes, limits: SandboxLimits) -> SandboxOutcome | None:
    """What a process has answered so far; None while it is not all there. A process whose program has broken out may
    answer anything: raises ValueError for what cannot be an outcome under these limits."""
    if len(data) < _LENGTH:
        return None
    start = _LENGTH + int(data[:_LENGTH])
    if not _LENGTH < start <= 4096:
        raise ValueError("the answer's head is too long")
    if len(data) < start:
        return None
    about: Any = parse_json(data[_LENGTH:start])
    try:
        out, err = map(int, about["sizes"])
        ending, code, fuel, memory = Ending(about["ending"]), *map(int, (about["code"], about["fuel"], about["memory"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"the answer lacks something: {error!r}") from None
    if min(out, err) < 0 or out + err > limits.output or not 0 <= fuel <= limits.fuel or len(data) > start + out + err:
        raise ValueError("the answer exceeds the limits")
    if len(data) < start + out + err:
        return None
    stdout, stderr = data[start : start + out], data[start + out :]
    return SandboxOutcome(ending, code, stdout, stderr, fuel, memory)


def _packed(about: dict[str, Any], rest: bytes) -> bytes:
    document = json.dumps(about).encode()
    return b"%10d" % len(document) + document + rest
