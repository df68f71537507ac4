"""torchft's own DiLoCo beside ours, on the model of `python -m benchmarks diloco` and lines of 100 Mb/s:
`python -m benchmarks diloco_peer`.

Four replica groups of torchft 0.2.0, each on a host of its own (root, `make peers`; benchmarks/hosts.py), take outer
steps of a model of as many parameters, over gloo in float32; inner steps cost them nothing, so what is timed is the
outer step: quorum, all-reduce, commit. `utilisation` is what a site's 100 inner steps, timed alone on a core, are of
both together. Ours is simulated (benchmarks/diloco_links.py), with 50 ms to the bucket and back; torchft's lines are
measured without any delay, as this way of making hosts has none for peers that choose their ports.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.diloco_links import SiteLine, Way, load, utilisation
from benchmarks.diloco_ours import BUCKET, KEEPER, outer_steps
from benchmarks.hosts import Host, hosts
from protocol.errors import ConfigError

ROOT = Path(__file__).parent.parent
PEER, FOLDER = ROOT / "build" / "peers-torchft", ROOT / "build" / "diloco_peer"
SITES, MEGABITS, ROUND_TRIP = 4, 100.0, 0.05
PARAMETERS, BYTES_EACH = 5_286_528, 0.935
TRAINING = 10.2
"""Seconds of 100 inner steps of a site on one core: a quarter of what 100 steps of all four take of it."""
STEPS, SETTLING = 8, 3
"""Outer steps, and those at the beginning that do not count: connections are made in them."""
_PATIENCE = 200.0


def run(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:
    """Quick: a hundredth of the model. Null for torchft where it is not installed, or this user is not root."""
    parameters = PARAMETERS // 100 if quick else PARAMETERS
    found, used, ours = None, None, None
    if PEER.is_dir() and not os.geteuid():
        names = [f"site{number}" for number in range(SITES)]
        with hosts([*names, KEEPER, BUCKET], MEGABITS, fast=[BUCKET]) as made:
            found = _peer([made[name] for name in names], parameters)
            ours = _measured(made, parameters, progress)
        used = _used(found["seconds"])
        progress(f"torchft: an outer step in {found['seconds']:.2f} s, {found['sent_mb']:.1f} MB sent by each")
    return {
        "parameters": parameters,
        "training_s": TRAINING,
        "torchft": found,
        "ours": ours,
        "load": [round(one, 1) for one in os.getloadavg()],
        "utilisation": {
            "torchft, no delay": used,
            "ours, measured": None if ours is None else {way: _used(one["seconds"]) for way, one in ours.items()},
            "ours, simulated": _ours(parameters, ROUND_TRIP),
            "ours, simulated, no delay": _ours(parameters, 0.0),
        },
    }


def _used(seconds: float) -> float:
    """The share of time in inner steps, with an outer step of so many seconds."""
    return round(TRAINING / (TRAINING + seconds), 4)


def _measured(made: dict[str, Host], parameters: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """Outer steps of our sites, by how they exchange and what is between them and the bucket."""
    found: dict[str, Any] = {}
    FOLDER.mkdir(parents=True, exist_ok=True)
    memory = Path("/dev/shm")  # torchft writes nothing to a disk; and each host has a /tmp of its own
    with TemporaryDirectory(dir=memory if memory.is_dir() else FOLDER) as folder:
        for exchange in ("shards", "all"):
            for round_trip in (0.0, ROUND_TRIP):
                name = f"{exchange}, {f'{1000 * round_trip:.0f} ms' if round_trip else 'no delay'}"
                place = Path(folder) / name.replace(", ", "-").replace(" ", "-")
                one = outer_steps(made, place, parameters, exchange, round_trip, range(SETTLING, STEPS))
                found[name] = one
                progress(f"ours, {name}: an outer step in {one['seconds']:.2f} s, {one['sent_mb']:.1f} MB sent by each")
    return found


def _ours(parameters: int, round_trip: float) -> dict[str, float]:
    ways: tuple[Way, ...] = ("all fetch all, once it is settled", "all fetch all", "each reduces a shard")
    line = [SiteLine(MEGABITS * 125_000, round_trip)] * SITES
    return {
        way: round(utilisation(line, TRAINING, load(way, parameters, SITES, BYTES_EACH, cores=1)), 4) for way in ways
    }


def _peer(sites: list[Host], parameters: int) -> dict[str, Any]:
    """`seconds`: of an outer step, the median; `sent_mb`: that a host sends for one, the mean."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(PEER), "GLOO_SOCKET_IFNAME": "line"}
    made: list[subprocess.Popen[str]] = []
    try:
        for number, host in enumerate(sites):
            options = {
                "host": host.address, "lighthouse": sites[0].address, "number": number, "sites": len(sites),
                "parameters": parameters, "steps": STEPS,
            }  # fmt: skip
            command = [sys.executable, "-m", "benchmarks.diloco_peer_role", json.dumps(options)]
            log = (FOLDER / f"{host.name}.log").open("w")
            inside = host.inside(command, FOLDER / host.name)
            made.append(
                subprocess.Popen(inside, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, env=environment)
            )
        said = [json.loads(one.communicate(timeout=_PATIENCE)[0].splitlines()[-1]) for one in made]
    finally:
        for one in made:
            one.kill()
            one.wait()
    steps = [seconds for one in said for seconds in one["seconds"][SETTLING:]]
    if {one["taking_part"] for one in said} != {len(sites)} or len({one["digest"] for one in said}) > 1:
        raise ConfigError(f"torchft's replicas did not take all outer steps together: {said}")
    sent = sum(host.sent() for host in sites) / len(sites) / STEPS
    return {"seconds": round(statistics.median(steps), 3), "longest": max(steps), "sent_mb": round(sent / 1e6, 2)}
