"""Is this machine's clock right? By the service's Date header, and by the time of the chain's newest block."""

import time
from email.utils import parsedate_to_datetime

from cli.doctor.base import Prerequisite, failed, note, ok
from cli.doctor.chain import RpcLook

_ALLOWED = 5.0
_BLOCKS = 30.0
_SECONDS = 5.0
_LOCAL = 31337
_HINT = "set it by the network: timedatectl set-ntp true"


def look(rpc: RpcLook | None, service: str | None) -> Prerequisite:
    """Asks the service for its time."""
    return judge_clock(rpc, service_offset(service) if service else None)


def service_offset(url: str) -> float | None:
    """How far ahead of the service this clock is, in seconds; None where it says no time."""
    import httpx

    try:
        answer = httpx.head(url, timeout=_SECONDS, trust_env=False)
        here = time.time()
        return here - parsedate_to_datetime(answer.headers["Date"]).timestamp()
    except (httpx.HTTPError, httpx.InvalidURL, KeyError, ValueError):
        return None


def judge_clock(rpc: RpcLook | None, offset: float | None) -> Prerequisite:
    """`offset`: seconds ahead of the service, whose header has whole seconds. A block is older than now, never newer;
    a local chain's time is its own."""
    if offset is not None and abs(offset) > _ALLOWED:
        way = "ahead of" if offset > 0 else "behind"
        return failed("clock", f"it is {abs(offset):.0f} s {way} the service's", _HINT)
    if rpc is not None and rpc.chain_id != _LOCAL and rpc.block_time - rpc.asked > _BLOCKS:
        return failed("clock", f"the chain's newest block is {rpc.block_time - rpc.asked:.0f} s in its future", _HINT)
    if offset is not None:
        return ok("clock", f"{abs(offset):.0f} s off the service's, at most {_ALLOWED:.0f} are allowed")
    if rpc is not None and rpc.chain_id != _LOCAL:
        return ok("clock", f"the chain's newest block is {rpc.asked - rpc.block_time:.0f} s old by it")
    return note("clock", "nothing to compare it with (--orchestrator, or the RPC of a public chain)")
