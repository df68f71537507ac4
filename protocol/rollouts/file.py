"""Write and read rollout files (docs/protocol.md, section 6). `read` is total: hostile bytes give MalformedFile."""

from collections.abc import Sequence

from protocol.rollouts.rowbytes import decode_row
from protocol.rollouts.sandbox import SANDBOX, Sandbox
from protocol.rollouts.schema import Limits, MalformedFile, Rollout, RolloutHeader, check_rollouts

_MAGIC = b"PAR1"
_MAX_FOOTER_BYTES = 1 << 18


def write(header: RolloutHeader, rollouts: Sequence[Rollout]) -> bytes:
    """The file's bytes, a function of its arguments (and the Parquet library's version) alone.

    Raises MalformedFile if the rows are not sorted, complete, finite and consistent.
    """
    from protocol.rollouts.parquet import to_parquet  # many processes read files, in the sandbox, and never write one

    check_rollouts(rollouts)
    return to_parquet(header, rollouts)


def read(data: bytes, limits: Limits, sandbox: Sandbox = SANDBOX) -> tuple[RolloutHeader, list[Rollout]]:
    """Header and rows of a file from a stranger, within `limits`.

    The Parquet library runs in a sandboxed process under memory and CPU limits; what it hands back is checked again
    here. Raises MalformedFile naming what is wrong, MusterError if this machine (not the file) is at fault.
    """
    _check_outside(data, limits)
    parts = sandbox.parse(data, limits)
    if len(parts) != limits.rows + 1:
        raise MalformedFile(f"{len(parts) - 1} rows instead of {limits.rows}")
    header = RolloutHeader.parse(parts[0])
    rollouts = [decode_row(part) for part in parts[1:]]
    check_rollouts(rollouts, limits)
    return header, rollouts


def _check_outside(data: bytes, limits: Limits) -> None:
    """What can be told without a parser: size, magic, footer length."""
    if len(data) > limits.file_bytes:
        raise MalformedFile(f"{len(data)} bytes, at most {limits.file_bytes} for this pool")
    if data[-4:] == b"PARE":
        raise MalformedFile("it is encrypted")
    if len(data) < 12 or data[:4] != _MAGIC or data[-4:] != _MAGIC:
        raise MalformedFile("it is not a Parquet file")
    footer = int.from_bytes(data[-8:-4], "little")
    if footer > min(len(data) - 12, _MAX_FOOTER_BYTES):
        raise MalformedFile(f"a footer of {footer} bytes")
