"""Fifteen faults in a small real network: how soon `muster … status` names each with its cure, and whether it heals.

`python -m benchmarks faults [--resume] [--only TEXT] [--quick]`. A network of its own (benchmarks/fault_network.py)
runs on this machine, as root on Linux. One fault after the other is really made (benchmarks/fault_cases.py), then
`status` is asked again and again as its user would, in a process of its own each time. `faults` has, for each: `name`;
`named_in_s`, from the fault to the end of the first `status` that names it with its cure, null if none did in a minute;
`said`, the line; `raised_in_s`, until the watch's webhook had the alarm `alarm`; `healed`: whether, once the fault was
undone and with nobody's help but a supervisor's, the process worked again and `status` was silent about it, within
`healed_in_s`; `load`: the machine's load average before it. Every fault that was finished is kept in
benchmarks/results/faults.json at once; `--resume` does not repeat those that were named in time and healed, `--only`
measures those whose name contains TEXT (or one of several, with commas between them) and keeps the others. A quick run
starts nothing that computes, leaves out the faults of what does, and keeps no result.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.fault import Fault
from benchmarks.fault_cases import FAULTS
from benchmarks.fault_network import FaultNetwork, PostedAlarm
from protocol.errors import MusterError
from protocol.files import write_atomic

LIMIT_SECONDS = 10.0
"""In which a fault has to be named."""
_NAMED, _RAISED, _HEALED = 60.0, 90.0, 240.0
KEPT = Path(__file__).parent / "results" / "faults.json"


def run(
    quick: bool, progress: Callable[[str], None] = lambda line: None, resume: bool = False, only: str = ""
) -> dict[str, list[dict[str, Any]]]:
    """The keys of the module's docstring."""
    kept = {one["name"]: one for one in json.loads(KEPT.read_text())["faults"]} if KEPT.exists() else {}
    there = kept if resume or only else {}
    done = {name for name, one in there.items() if resume and well(one)}
    chosen = [fault for make in FAULTS if _wanted(only, (fault := make()).name) and fault.name not in done]
    found = dict(there)
    with tempfile.TemporaryDirectory(prefix="muster-faults-") as folder:
        network = FaultNetwork(Path(folder), computes=not quick)
        try:
            if chosen:
                network.up()
            for fault in [one for one in chosen if not (quick and one.computes)]:
                found[fault.name] = one = measure(fault, network)
                progress(json.dumps(one))
                if not quick:
                    write_atomic(KEPT, json.dumps(document(found), indent=1).encode() + b"\n")
        finally:
            network.down()
    return document(found)


def _wanted(only: str, name: str) -> bool:
    """Whether a fault's name contains the text, or one of several with commas between them."""
    return any(text.strip() in name for text in only.split(","))


def document(found: dict[str, dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """In the order in which they are made."""
    names = [make().name for make in FAULTS]
    return {"faults": [found[name] for name in names if name in found]}


def well(one: dict[str, Any]) -> bool:
    """Whether a fault needs no second measurement."""
    return one["healed"] and one["named_in_s"] is not None and one["named_in_s"] <= LIMIT_SECONDS


def measure(fault: Fault, network: FaultNetwork) -> dict[str, Any]:
    """One fault, from a network that is well to one that is well again. What goes wrong on the way is its `problem`."""
    load = round(os.getloadavg()[0], 1)
    one: dict[str, Any] = {"name": fault.name, "named_in_s": None, "healed": False}
    try:
        fault.prepare(fault, network)
        begun_letters = len(network.letters)
        fault.make(fault, network)
        begun = time.monotonic()
        one |= named(fault, network, begun)
        one |= {"alarm": fault.alarm, "raised_in_s": raised(fault, network.letters, begun_letters, begun)}
        one |= healed(fault, network)
    except (MusterError, OSError) as error:  # a TimeoutError is one
        one["problem"] = str(error)
    return one | {"load": load}


def named(fault: Fault, network: FaultNetwork, begun: float) -> dict[str, Any]:
    """Until `status` says it."""
    profile, command = fault.status(network)
    status: dict[str, Any] = {}
    while time.monotonic() - begun < _NAMED:
        network.stop.check()
        asked = time.monotonic()
        status = network.status(profile, command, **fault.environment)
        if fault.named(status):
            now = time.monotonic()
            said = [line for line in status["todo"] if fault.tells_cure(line)]
            took = {"named_in_s": round(now - begun, 1), "status_s": round(now - asked, 1)}
            return took | {"said": said[0] if said else ""}
    return {"named_in_s": None, "last": status.get("todo"), "failed": status.get("failed", "")}


def raised(fault: Fault, letters: list[PostedAlarm], first: int, begun: float) -> float | None:
    """Until its alarm was posted. What was under way when the fault was made counts as at once."""
    end = begun + _RAISED
    while time.monotonic() < end:
        for letter in letters[first:]:
            if letter.body["event"] == fault.alarm:
                return round(max(0.0, letter.time - begun), 1)
        time.sleep(0.2)
    return None


def healed(fault: Fault, network: FaultNetwork) -> dict[str, Any]:
    """Undo it, and wait until all is well without it."""
    fault.undo(fault, network)
    begun = time.monotonic()
    fault.kept["files"] = network.files_once_known()
    profile, command = fault.status(network)
    try:
        if network.computes:
            network.wait("work again", lambda: fault.well(fault, network), _HEALED)
        while fault.over and fault.named(status := network.status(profile, command, **fault.environment)):
            if time.monotonic() - begun > _HEALED:
                return {"healed": False, "still": status["todo"]}
    except TimeoutError as error:
        return {"healed": False, "still": str(error)}
    return {"healed": True, "healed_in_s": round(time.monotonic() - begun, 1)}
