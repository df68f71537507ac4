"""One run of a program in an image, in this process."""

import json
from typing import Any

import wasmtime

from environments.sandbox.image import Image
from environments.sandbox.instance import Instance
from environments.sandbox.program import SandboxLimits, SandboxOutcome, SandboxProgram
from environments.sandbox.system import System


def run_image(code: wasmtime.Module, image: Image, program: SandboxProgram, limits: SandboxLimits) -> SandboxOutcome:
    """Run a program from an image's beginning; the same everywhere, to the last unit of fuel. Raises ValueError for
    less memory than the image has."""
    if limits.memory < image.size:
        raise ValueError(f"image `{image.name}` needs {image.size} bytes of memory, the limit is {limits.memory}")
    instance = Instance(code, image.memory, _request(program) + program.stdin, limits, System)
    entry = image.entry
    instance.stack.set_value(instance.store, entry.stack)
    table = instance.exports["table"]
    assert isinstance(table, wasmtime.Table)
    call: Any = table.get(instance.store, entry.call)
    ending, exit_code = instance.run(call, entry.function, entry.nothing, 0)
    written = instance.system.written
    memory = instance.memory.data_len(instance.store)
    return SandboxOutcome(
        ending, exit_code, bytes(written[1]), bytes(written[2]), instance.used, memory
    )


def _request(program: SandboxProgram) -> bytes:
    about = {"source": program.source, "function": program.function, "arguments": program.arguments}
    document = json.dumps(about).encode()
    return b"%8d" % len(document) + document
