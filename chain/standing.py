"""May this node work? Decided here for everyone who asks: the orchestrator, the worker, the command line."""

from enum import StrEnum

from chain.records import Account


class Standing(StrEnum):
    """A node's standing in a pool; only a MEMBER may make and submit files. FROZEN ends by itself when its rejected
    file is final, EJECTED and REMOVED are for good."""

    MEMBER = "member"
    NOT_JOINED = "not joined"
    LEFT = "left"
    FROZEN = "frozen"
    REMOVED = "removed"
    EJECTED = "ejected"


def standing_of(account: Account | None) -> Standing:
    """The standing of a node by its account in the pool, None where it never joined."""
    if account is None:
        return Standing.NOT_JOINED
    if account.ejected:
        return Standing.EJECTED
    if account.removed:
        return Standing.REMOVED
    if not account.member:
        return Standing.LEFT
    return Standing.FROZEN if account.frozen_at else Standing.MEMBER


def ejected_by(account: Account) -> str:
    """What an ejected node was ejected for."""
    return f"node case {account.eject_case}" if account.eject_case else f"submission {account.eject_sequence}"
