"""Does the chain's RPC answer, quickly, of the right chain, and is its newest block new?"""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cli.doctor.base import Prerequisite, failed, note, ok
from cli.output import seconds
from protocol.errors import ConfigError, MusterError, UnreachableError

_SECONDS = 5.0
_TRIES = 5
_SLOW = 1.0
_OLD = 60.0
_LOCAL = 31337


@dataclass(frozen=True)
class RpcLook:
    """What an endpoint said: chain id, the newest block's time (Unix seconds), how long each answer took (seconds), and
    when it was asked."""

    url: str
    chain_id: int
    block_time: int
    took: tuple[float, ...]
    asked: float


def look(urls: str | None, expected: int | None) -> tuple[list[Prerequisite], RpcLook | None]:
    """Every endpoint of `urls` (commas between them), and the first that answers; `expected`: the chain's id."""
    if not urls:
        return [note("rpc", "none named (--rpc or --deployment)")], None
    found, best = [], None
    for url in filter(None, map(str.strip, urls.split(","))):
        try:
            said = ask(url, expected)
        except MusterError as error:
            found.append(failed("rpc", error.what, error.hint))
            continue
        if expected in (None, said.chain_id):
            best = best or said
        found += judge_rpc(said, expected)
    return found, best


def ask(url: str, expected: int | None) -> RpcLook:
    """Another chain than the expected one is asked nothing more. Raises ConfigError for what is no RPC,
    UnreachableError."""
    took = []
    try:
        for _ in range(_TRIES):
            started = time.monotonic()
            chain_id = int(_call(url, "eth_chainId"), 16)
            took.append(time.monotonic() - started)
        if expected not in (None, chain_id):
            return RpcLook(url, chain_id, 0, tuple(took), time.time())
        block_time = int(_call(url, "eth_getBlockByNumber", "latest", False)["timestamp"], 16)
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"{url} is not an Ethereum RPC", "check the URL") from None
    return RpcLook(url, chain_id, block_time, tuple(took), time.time())


def judge_rpc(said: RpcLook, expected: int | None) -> Iterator[Prerequisite]:
    """One line: the right chain, its age, its latency. A local chain makes blocks when it likes."""
    if expected is not None and said.chain_id != expected:
        what = f"{said.url} is chain {said.chain_id}, expected {expected}"
        yield failed("rpc", what, "name the RPC of the right chain")
        return
    latency, age = statistics.median(said.took), said.asked - said.block_time
    what = f"{said.url} answers in {latency * 1000:.0f} ms, chain {said.chain_id}"
    if age > _OLD and said.chain_id != _LOCAL:
        hint = "use another endpoint; if all say so, the chain stands still or this clock is ahead"
        yield failed("rpc", f"{what}, but its newest block is {seconds(age)} old", hint)
    elif latency > _SLOW:
        yield failed("rpc", f"{what}, too slowly", "use an endpoint that is nearer or less busy")
    else:
        yield ok("rpc", f"{what}, newest block {seconds(max(0.0, age))} old")


def _call(url: str, method: str, *params: Any) -> Any:
    return post_json(url, {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)})["result"]


def post_json(url: str, body: Any) -> Any:
    """What an RPC answers to a POST. Raises ConfigError, UnreachableError."""
    import httpx

    from protocol.encoding import parse_json

    try:
        answer = httpx.post(url, json=body, timeout=_SECONDS, trust_env=False)
        answer.raise_for_status()
        return parse_json(answer.content)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{url} is not a URL: {error}", "write http://host:port") from None
    except httpx.HTTPStatusError as error:
        raise UnreachableError(f"the RPC {url} answers {error.response.status_code}", "check the URL") from None
    except httpx.HTTPError as error:
        words = str(error) or type(error).__name__
        raise UnreachableError(f"the RPC {url} does not answer ({words})", "start it or correct the URL") from None
    except ValueError:
        raise ConfigError(f"{url} does not answer JSON", "check the URL") from None
