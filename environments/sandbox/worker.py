"""A process that runs programs one after another: `python -m environments.sandbox.worker IMAGE`.

It answers on its standard output what it is asked on its standard input (environments/sandbox/frames.py), and ends when
that ends. The sandbox is WebAssembly's; should a program break out of it, the process can still do nothing but compute,
read what it is sent, and answer.
"""

import os
import resource
import sys
from contextlib import suppress

from environments.errors import ScoringUnavailable
from environments.sandbox.frames import READY, pack_outcome, read_request
from environments.sandbox.image import load_image
from environments.sandbox.interpreter import code
from environments.sandbox.program import SandboxLimits, SandboxProgram
from environments.sandbox.run import run_image
from protocol.rollout_file.confine import refuse_system_calls

_FIRST = SandboxLimits(fuel=1_000_000_000, memory=512 << 20)


def main(name: str) -> None:
    """Serve until the other end is closed."""
    image = load_image(name)
    if image is None:
        raise ScoringUnavailable(f"image `{name}` has not been made", "python -m environments.sandbox.warm")
    module = code()
    source, answers = sys.stdin.buffer, sys.stdout.buffer
    run_image(module, image, SandboxProgram("print(1)"), _FIRST)  # what is set up once must be, before we are shut in
    shut_in()
    answers.write(READY)
    answers.flush()
    while (asked := read_request(source)) is not None:
        answers.write(pack_outcome(run_image(module, image, *asked)))
        answers.flush()
    os._exit(0)  # what tidies up would need calls that are refused now


def shut_in() -> None:
    """Nothing new can be opened, started or written from here on; when memory runs short, this process is the first to
    be ended."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    for what in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(what, (0, 0))
    refuse_system_calls()


if __name__ == "__main__":
    main(sys.argv[1])
