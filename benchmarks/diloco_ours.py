"""Our sites' outer steps on hosts of their own, measured like torchft's: a part of `python -m benchmarks diloco_peer`.

Four sites and a keeper, each a process on a host with a line of 100 Mb/s, exchange over a real bucket on a host with a
fast one; 50 ms to the bucket and back are a proxy's (benchmarks/delay.py). Inner steps cost nothing, so the time from
one outer step's weights to the next one's is that of the outer step: encoding, hashes, signatures, checkpoints, log.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar

from benchmarks.hosts import Host
from protocol.accounts import Account
from protocol.errors import MusterError
from protocol.sites.config import SitesConfig
from protocol.sites.run import SitesRun
from protocol.waits import wait_for

ROOT = Path(__file__).parent.parent
BUCKET, KEEPER = "bucket", "keeper"
PORT, BEHIND, POLL = 29600, 29601, 0.05
_PATIENCE = 300.0
Exchange = Literal["all", "shards"]
V = TypeVar("V")


def outer_steps(
    hosts: Mapping[str, Host], folder: Path, parameters: int, exchange: Exchange, round_trip: float, counted: range
) -> dict[str, Any]:
    """Of the sites, all hosts but the bucket's and the keeper's: `seconds` of an outer step, the median of those that
    are `counted`; `longest`; `sent_mb`, `received_mb`: by each site's line for one, the mean of all steps, heads of
    packets included; `site_cpu`, `keeper_cpu`: seconds of the processor for one, of those that are counted;
    `bucket_cpu`: the same of the bucket with its proxy, of all; `site_requests`, `keeper_requests`: of one step that is
    counted, by what they do, the mean, of one site. Raises MusterError where they do not all come to the
    same state."""
    sites = [host for name, host in hosts.items() if name not in (BUCKET, KEEPER)]
    run = _run(len(sites), exchange)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(run.model_dump_json())
    moved = [(host.sent(), host.received()) for host in sites]
    with _bucket(hosts[BUCKET], folder, round_trip) as (s3, bucket):
        steps, idle = counted.stop, bucket()

        def start(host: Host, role: str, secret: str) -> subprocess.Popen[str]:
            values = {
                "role": role, "home": str(folder / host.name), "run": str(folder / "run.json"), "secret": secret,
                "s3": s3, "poll_seconds": POLL, "steps": steps, "parameters": parameters,
            }  # fmt: skip
            path = folder / f"{host.name}.json"
            path.write_text(json.dumps(values))
            return _started(host, ["benchmarks.diloco_ours_role", str(path)], folder)

        made = [start(hosts[KEEPER], "keeper", _secret(len(sites)))]
        try:
            made += [start(host, "site", _secret(number)) for number, host in enumerate(sites)]
            keeper, *said = [json.loads(one.communicate(timeout=_PATIENCE)[0].splitlines()[-1]) for one in made]
            served = bucket() - idle
        except (IndexError, ValueError, subprocess.TimeoutExpired) as error:
            raise MusterError(f"a site did not make its outer steps: {error}", f"see {folder}") from None
        finally:
            _end(made)
    if {one["step"] for one in said} != {steps} or len({one["digest"] for one in said}) > 1:
        raise MusterError(f"the sites did not come to the same state: {said}", f"see {folder}")
    lines = [(host.sent() - was[0], host.received() - was[1]) for host, was in zip(sites, moved, strict=True)]
    sent, received = (sum(way) / len(sites) / steps for way in zip(*lines, strict=True))
    return {
        **_measured(said, keeper, counted),
        "sent_mb": round(sent / 1e6, 2),
        "received_mb": round(received / 1e6, 2),
        "bucket_cpu": round(served / steps, 3),
    }


def _measured(sites: list[dict[str, Any]], keeper: dict[str, Any], counted: range) -> dict[str, Any]:
    """By what they say of themselves."""
    found = [after - before for one in sites for before, after in _pairs(one["loaded"], counted)]
    used = [after - before for one in sites for before, after in _pairs(one["cpu"], counted)]
    kept = [after - before for before, after in _pairs(keeper["cpu"], counted)]
    return {
        "seconds": round(statistics.median(found), 3),
        "longest": round(max(found), 3),
        "site_cpu": round(statistics.mean(used), 3),
        "keeper_cpu": round(statistics.mean(kept), 3),
        "site_requests": _requests([one["asked"] for one in sites], counted),
        "keeper_requests": _requests([keeper["asked"]], counted),
    }


def _requests(asked: list[list[dict[str, int]]], counted: range) -> dict[str, float]:
    """By kind, for one step, of processes that had asked so much by each of their steps."""
    pairs = [pair for one in asked for pair in _pairs(one, counted)]
    kinds = sorted({kind for _, after in pairs for kind in after})
    return {
        kind: round(statistics.mean(after.get(kind, 0) - before.get(kind, 0) for before, after in pairs), 1)
        for kind in kinds
    }


def _pairs(loaded: list[V], counted: range) -> list[tuple[V, V]]:
    """Beginning and end of the newest steps, as many as are counted: a site's first weights are loaded too."""
    newest = loaded[-len(counted) - 1 :]
    return list(pairwise(newest))


def _run(sites: int, exchange: Exchange) -> SitesRun:
    settings = SitesConfig(inner_steps=1, shards=sites, window_seconds=60, training_seconds=60, state_every=1 << 16)
    addresses = tuple(str(Account.from_key(_secret(number)).address) for number in range(sites))
    keeper = Account.from_key(_secret(sites)).address
    return SitesRun(name=f"peer-{exchange}", keeper=keeper, sites=addresses, settings=settings, exchange=exchange)


def _secret(number: int) -> str:
    return f"{number + 1:02x}" * 32


@contextmanager
def _bucket(host: Host, folder: Path, round_trip: float) -> Iterator[tuple[dict[str, str], Callable[[], float]]]:
    """S3 on a host, reached by all hosts, where there is a `round_trip` through a proxy that delays each way by half of
    it; and what it has used of the processor so far, with the proxy."""
    data = folder / "s3"
    seen = ["--port", str(BEHIND)] if round_trip else ["--port", str(PORT), "--everywhere"]
    served = _started(host, ["localnet.services.s3", "--data", str(data), *seen, "--with-parent"], folder)
    made = [served]
    if round_trip:
        made.append(_started(host, ["benchmarks.delay", str(PORT), str(BEHIND), str(round_trip / 2)], folder))
    try:
        credentials = data / "etc" / "credentials.json"
        wait_for("the bucket", lambda: credentials.exists() or None, _PATIENCE)
        assert served.stdout is not None
        served.stdout.readline()
        time.sleep(1.0)
        where = {"endpoint": f"http://{host.address}:{PORT}", "bucket": "muster", "credentials": str(credentials)}
        yield where, lambda: sum(_cpu_seconds(one.pid) for one in made)
    finally:
        _end(made)


def _started(host: Host, module: list[str], folder: Path) -> subprocess.Popen[str]:
    with (folder / f"{host.name}.log").open("a") as log:
        inside = host.inside([sys.executable, "-m", *module], folder / "tmp" / host.name)
        return subprocess.Popen(inside, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT)


def _cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _end(processes: list[subprocess.Popen[str]]) -> None:
    for one in processes:
        one.kill()
        one.wait()
