"""Which mode works on this machine: each is tried with a tiny program before it is believed in."""

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from tempfile import TemporaryFile

from protocol.errors import ConfigError, MusterError, printable
from sandbox.containers import check_image
from sandbox.launch import IsolatedProcess, Launch
from sandbox.policy import MIB, IsolationPolicy, Mode, Wanted

_CANDIDATES: Mapping[Wanted, tuple[Mode, ...]] = {
    "auto": (Mode.PODMAN, Mode.DOCKER, Mode.BUBBLEWRAP),
    "container": (Mode.PODMAN, Mode.DOCKER),
    "bubblewrap": (Mode.BUBBLEWRAP,),
    "none": (),
}
_CURES: Mapping[Wanted, str] = {
    "container": "install podman (apt-get install podman runc), name an image by its digest, or choose another mode",
    "bubblewrap": "install bubblewrap (apt-get install bubblewrap), or choose another mode",
}
_PROGRAMS = {Mode.PODMAN: "podman", Mode.DOCKER: "docker", Mode.BUBBLEWRAP: "bwrap"}
_PROBE_SECONDS = 20.0
_PROBE = IsolationPolicy(memory=64 * MIB, processes=64, scratch=MIB, seconds=_PROBE_SECONDS)


@dataclass(frozen=True)
class Probed:
    """What came of trying a mode: why it does not work (empty if it does), and whether its limits hold for all
    processes together."""

    trouble: str = ""
    accounting: bool = False


@dataclass(frozen=True)
class Choice:
    """`why_not`: the stronger modes that were not taken, and why."""

    mode: Mode
    accounting: bool = False
    why_not: Mapping[Mode, str] = field(default_factory=dict)


def choose(wanted: Wanted, image: str = "", probe: "Callable[[Mode, str], Probed] | None" = None) -> Choice:
    """The first mode that works of those that are wanted. Only `auto` and `none` come to the plain one; ConfigError
    when anything else does not work here. `image`: what containers run, by its digest."""
    look = probe or try_mode
    why_not: dict[Mode, str] = {}
    for mode in _CANDIDATES[wanted]:
        found = look(mode, image)
        if not found.trouble:
            return Choice(mode, found.accounting, why_not)
        why_not[mode] = found.trouble
    if wanted in _CURES:
        reasons = "; ".join(f"{mode.value}: {why}" for mode, why in why_not.items())
        raise ConfigError(f"isolation = {wanted!r} does not work here ({reasons})", _CURES[wanted])
    return Choice(Mode.PLAIN, False, why_not)


@cache
def try_mode(mode: Mode, image: str) -> Probed:
    """Run a program that does nothing in a mode, for at most twenty seconds; once per process."""
    if shutil.which(_PROGRAMS[mode]) is None:
        return Probed(f"`{_PROGRAMS[mode]}` is not on the PATH")
    try:
        if mode.is_container:
            check_image(image)
        return _run(Launch(mode, _PROBE, ("python3", "-S", "-c", "") if mode.is_container else ("true",), image))
    except (MusterError, OSError, subprocess.SubprocessError) as error:
        return Probed(printable(getattr(error, "what", str(error))))


def _run(launch: Launch) -> Probed:
    with TemporaryFile() as said:
        with IsolatedProcess(launch, subprocess.DEVNULL, subprocess.DEVNULL, said) as process:
            code = process.wait()
            accounting = process.has_accounting
        said.seek(0)
        lines = said.read(65536).decode(errors="replace").strip().splitlines()
    if process.timed_out:
        return Probed(f"no answer within {_PROBE_SECONDS:.0f} s")
    return Probed(printable(lines[0]) if lines else f"exit code {code}") if code else Probed("", accounting)
