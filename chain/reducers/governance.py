"""Governance: parameters, pause, and what the timelock is to do."""

from chain.events import Event
from chain.proposals import Proposal, ProposedCall
from chain.reducers.registry import on
from chain.state import State
from protocol.keccak import keccak

_ROLES = {keccak(f"{name.upper()}_ROLE".encode()): name for name in ("proposer", "canceller", "executor", "guardian")}
_ROLES[bytes(32)] = "admin"


@on("Params", "ValuesSet")
def _values_set(state: State, event: Event) -> None:
    state.params[0] = dict(event.args["values"])


@on("Params", "ValuesScheduled")
def _values_scheduled(state: State, event: Event) -> None:
    state.params[event.args["time"]] = dict(event.args["values"])


@on("Params", "PausedUntil")
def _paused_until(state: State, event: Event) -> None:
    state.paused_until = event.args["time"]


@on("Timelock", "CallScheduled")
def _call_scheduled(state: State, event: Event) -> None:
    """One event per call; the first begins the proposal, anew when it was cancelled before."""
    a = event.args
    if a["index"] == 0:
        ready_at = event.timestamp + a["delay"]
        state.proposals[_key(event)] = Proposal(a["id"], [], a["predecessor"], ready_at, event.block)
    state.proposals[_key(event)].calls.append(ProposedCall(a["target"], a["value"], a["data"]))


@on("Timelock", "CallSalt", "CallExecuted", "Cancelled")
def _proposal_moved(state: State, event: Event) -> None:
    """An operation of no calls is never scheduled by an event, so it is none of ours."""
    proposal = state.proposals.get(_key(event))
    if proposal is None:
        return
    if event.name == "CallSalt":
        proposal.salt = event.args["salt"]
    else:
        proposal.status = "done" if event.name == "CallExecuted" else "cancelled"


@on("Timelock", "RoleGranted")
def _role_granted(state: State, event: Event) -> None:
    role = _role(event)
    state.roles[role] = (*state.roles.get(role, ()), event.args["account"])


@on("Timelock", "RoleRevoked")
def _role_revoked(state: State, event: Event) -> None:
    role = _role(event)
    state.roles[role] = tuple(one for one in state.roles[role] if one != event.args["account"])


def _key(event: Event) -> str:
    return "0x" + bytes(event.args["id"]).hex()


def _role(event: Event) -> str:
    role = bytes(event.args["role"])
    return _ROLES.get(role, "0x" + role.hex())
