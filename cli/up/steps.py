"""What both ways of `up` share: their steps, and what is done about a key that lacks something. Pure."""

from dataclasses import dataclass
from enum import Enum

from protocol.amounts import show_tokens


class UpDo(Enum):
    """What `muster node up` or `validator up` does next. ETHER, TOKENS: get them, or say what to send where and wait
    for it. WARM: start the process, and wait until it can judge."""

    MAKE_KEYS = "make keys"
    ASK = "ask"
    ETHER = "ether"
    TOKENS = "tokens"
    REGISTER = "register"
    DEPOSIT = "deposit"
    JOIN = "join"
    WARM = "warm"
    BOND = "bond"
    OPT_IN = "opt in"
    RUN = "run"
    WAIT = "wait"
    STOP = "stop"


@dataclass(frozen=True)
class UpStep:
    """`why` is a line for people. `amount`: wei or base units that are missing, or base units to stake or bond;
    `address`: whose."""

    do: UpDo
    why: str
    amount: int = 0
    address: str = ""


def ether_step(why: str, have: int, needs: int, address: str) -> UpStep | None:
    """Wei that a key lacks, if any."""
    return UpStep(UpDo.ETHER, why, needs - have, address) if have < needs else None


def tokens_step(what: str, have: int, needs: int, address: str) -> UpStep | None:
    """Base units that a key lacks for `what`, if any."""
    why = f"{what} {show_tokens(needs)} tokens"
    return UpStep(UpDo.TOKENS, why, needs - have, address) if have < needs else None


def closed_step(pool: int, status: str, consequence: str) -> UpStep | None:
    """A pool that is over."""
    over = status in ("closing", "settled")
    return UpStep(UpDo.STOP, f"pool {pool} is {status}: {consequence}") if over else None
