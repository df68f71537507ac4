"""Runs the attempts that it is told to, or does as a child of one is told."""

import errno
import json
import os
import subprocess
import sys
import time

from .attempts import ATTEMPTS, Attempt, Told, hold


def attempt(one: Attempt, told: Told) -> tuple[bool, str]:
    """(whether it got out, in words)."""
    try:
        got = one(told)
    except (OSError, MemoryError, ValueError) as error:
        code = getattr(error, "errno", None)
        return False, f"{errno.errorcode.get(code or 0, type(error).__name__)}: {error}"
    return got is not None, str(got)


def in_a_child(one: Attempt, told: Told) -> tuple[bool, str]:
    """Each on its own: what one of them changes (its user, its namespaces) is not there for the next."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, json.dumps(attempt(one, told)).encode())
        os._exit(0)
    os.close(writing)
    said = b""
    while part := os.read(reading, 4096):
        said += part
    os.close(reading)
    os.waitpid(child, 0)
    return tuple(json.loads(said)) if said else (False, "killed")


def main(argv: list[str]) -> None:
    if argv[0] == "--hold":
        hold(int(argv[1]))
    elif argv[0] == "--sleep":
        # a child with the same token in its command line, and one that leaves the session
        subprocess.Popen([sys.executable, "-S", "-m", str(__package__), "--rest", argv[1]], start_new_session=True)
        rest()
    elif argv[0] == "--rest":
        rest()
    else:
        told = json.loads(argv[0])
        print(json.dumps({one.__name__: in_a_child(one, told) for one in ATTEMPTS if one.__name__ in told["attempts"]}))


def rest() -> None:
    """Bounded, whatever becomes of the test."""
    print("resting", flush=True)
    time.sleep(120)


if __name__ == "__main__":
    main(sys.argv[1:])
