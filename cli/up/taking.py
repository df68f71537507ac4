"""The steps that both ways of `up` take alike."""

from collections.abc import Iterable

import typer

from chain.suite import Suite
from cli.profile import ProfileKey
from cli.up.funds import get_ether, get_tokens
from cli.up.keys import ensure_key
from cli.up.steps import UpDo, UpStep
from protocol.errors import ConfigError


def take_shared(step: UpStep, suite: Suite, keys: Iterable[tuple[str, ProfileKey]]) -> bool:
    """Take the step if it is one of these: make `keys` (what for → key), get ether or tokens. Raises ConfigError for
    STOP: only a person can change that."""
    if step.do is UpDo.STOP:
        raise ConfigError(*_split(step.why))
    if step.do is UpDo.MAKE_KEYS:
        for what, key in keys:
            typer.echo(f"{what}'s key: {ensure_key(key)} in {key.keystore}")
    elif step.do is UpDo.ETHER:
        get_ether(suite, step.address, step.amount, step.why)
    elif step.do is UpDo.TOKENS:
        get_tokens(suite, step.address, step.amount, step.why)
    else:
        return False
    return True


def _split(why: str) -> tuple[str, str]:
    for mark in (": ", "; "):
        what, found, hint = why.partition(mark)
        if found:
            return what, hint
    return why, ""
