"""Getting what a key lacks: from a local chain's faucet, or by saying what to send where and waiting for it."""

import time
from collections.abc import Callable

import typer

from chain.suite import Suite
from cli.faucet import LocalFaucet, ether_hint
from protocol.amounts import show_tokens
from protocol.waits import WAITS

ETHER = 10**18
_POLL_SECONDS = 3.0
_SPARE = 3


def get_ether(suite: Suite, address: str, missing: int, why: str) -> None:
    """Return once the address has `missing` wei more than now."""
    have = suite.client.balance(address)
    if (faucet := LocalFaucet.of(suite)) is not None:
        faucet.ether(address, max(have + _SPARE * missing, ETHER))
        typer.echo(f"gas for {address}: from the local chain")
        return
    what = f"{missing / ETHER:.6f} ETH on chain {suite.client.chain_id}"
    _ask(f"{why}: send {what} to {address} ({ether_hint(suite.client.chain_id)})")
    _wait(f"{what} at {address}", lambda: suite.client.balance(address) >= have + missing)


def get_tokens(suite: Suite, address: str, missing: int, why: str) -> None:
    """Return once the address has `missing` base units more than now."""
    have = suite.token.balance_of(address)
    if (faucet := LocalFaucet.of(suite)) is not None:
        faucet.tokens(address, missing)
        typer.echo(f"{show_tokens(missing)} tokens for {address}: from the local chain")
        return
    what, amount = f"{show_tokens(missing)} tokens", show_tokens(missing)
    source = f"whoever has some runs `muster keys send --to {address} --amount {amount}`"
    _ask(f"{why}: send {what} (contract {suite.token.address}) to {address}; {source}")
    _wait(f"{what} at {address}", lambda: suite.token.balance_of(address) >= have + missing)


def _ask(line: str) -> None:
    typer.echo(f"{line}\nThis goes on by itself once it is there; Ctrl-C stops it, and it can be run again.")


def _wait(what: str, there: Callable[[], bool]) -> None:
    with WAITS.on(what):
        while not there():
            time.sleep(_POLL_SECONDS)
