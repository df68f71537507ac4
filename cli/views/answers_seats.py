"""A validator's five answers, from what chain, service and process said. Pure."""

from dataclasses import dataclass
from typing import Any

from cli.answers import FiveAnswers, StatusPart, aged, at, behind_service, heard, running, silent, told, unknown
from protocol.amounts import show_tokens
from protocol.verdict import Code

_ETHER = 10**18
_SHOWN = 10
_LANE_GAS = 125_000
_FEW_LANES = 10


@dataclass(frozen=True)
class SeatsLook:
    """What was seen of an owner or voter of seats, as in `NodeLook`. The chain's facts: `seats` (views), `now` (chain
    time), `bond` (of a full seat), `gas_price`, `voters` (address → wei), `open` (rounds that are not settled: pool,
    lane, seat, committed, revealed). The service's: its `ValidatorView`. The process's: `log`."""

    address: str
    now: float
    parts: tuple[StatusPart, StatusPart, StatusPart]
    chain: dict[str, Any] | None
    service: dict[str, Any] | None
    process: dict[str, Any] | None
    version: str = ""

    @property
    def seats(self) -> list[dict[str, Any]]:
        return self.chain["seats"] if self.chain else []

    @property
    def active(self) -> list[dict[str, Any]]:
        return [seat for seat in self.seats if seat["standing"] == "active"]


def seats_answers(look: SeatsLook) -> FiveAnswers:
    """Every part may be down, and may never have been up."""
    return FiveAnswers(
        tuple(_seen(look)), tuple(_doing(look)), tuple(_earned(look)), tuple(_refused(look)), tuple(_todo(look)),
        look.parts,
    )  # fmt: skip


def _seen(look: SeatsLook) -> list[str]:
    if look.chain is None:
        lines = unknown(look.parts[0])
    elif not look.seats:
        lines = [f"no: {look.address} owns no seat on this chain, and votes for none", *aged(look.parts[0], look.now)]
    else:
        pools = sorted({pool for seat in look.active for pool in seat["pools"]})
        judged = ", ".join(map(str, pools)) or "none"
        lines = [
            f"the chain: {len(look.active)} of {len(look.seats)} seats active, they may be drawn for pools {judged}"
        ]
        lines += aged(look.parts[0], look.now)
    return [*lines, heard(look.parts[1], look.service, look.now)]


def _doing(look: SeatsLook) -> list[str]:
    lines = [*running(look.parts[2], look.process), *told(look.parts[1], look.service)]
    for one in (look.chain or {}).get("open", ())[:_SHOWN]:
        state = "voted" if one["revealed"] else "committed, to be opened" if one["committed"] else "to be judged"
        lines.append(f"seat {one['seat']}: lane {one['lane']} of pool {one['pool']}: {state}")
    return lines


def _earned(look: SeatsLook) -> list[str]:
    if look.chain is None:
        return unknown(look.parts[0])
    lines = []
    if look.seats:
        fees, lost = (show_tokens(sum(seat[name] for seat in look.seats)) for name in ("earned", "penalised"))
        due = sum(seat["due"] for seat in look.seats)
        lines = [f"fees {fees} tokens, penalties {lost}; {due} votes can be settled now (muster validator claim)"]
    for seat in look.seats:
        if seat["release_at"] and seat["standing"] == "unbonding":
            when = at(seat["release_at"], look.chain["now"])
            lines.append(f"the bond of seat {seat['seat']}, {show_tokens(seat['bond'])} tokens, unlocks {when}")
    return [*(lines or ["nothing yet"]), *aged(look.parts[0], look.now)]


def _refused(look: SeatsLook) -> list[str]:
    if look.chain is None:
        return unknown(look.parts[0])
    lost = [(one["time"], seat["seat"], one) for seat in look.seats for one in seat["penalties"]]
    lost.sort(key=lambda entry: entry[0])
    lines = [
        f"seat {seat} lost {show_tokens(one['amount'])} tokens at file {one['sequence']} of pool {one['pool']}: "
        f"{cause(one['code'])}"
        for _, seat, one in lost[-_SHOWN:]
    ]
    return [*(lines or ["nothing"]), *aged(look.parts[0], look.now)]


def cause(code: int) -> str:
    """Why a seat lost money."""
    named = Code(code)
    return f"it accepted a file that was {named.label}" if named else "a vote against the outcome, or none in time"


def _todo(look: SeatsLook) -> list[str]:
    chain, service, process = look.parts
    lines = []
    if chain.down:
        lines.append("reach the chain at once: a drawn seat that cannot vote loses money; name another RPC (--rpc)")
    if look.chain is not None:
        lines += _chores(look, look.chain)
    if process.down and look.active:
        lines.append(f"start the process at once, if it runs on no other machine: muster validator up ({process.down})")
    lines += behind_service(service, look.version, look.service)
    lines += silent(service, look.service, process)
    return lines or ["nothing"]


def _chores(look: SeatsLook, chain: dict[str, Any]) -> list[str]:
    """What seats, gas and fees ask for."""
    if not look.seats:
        return ["bond a seat: muster validator up"]
    lines = []
    for seat in look.seats:
        number = seat["seat"]
        if seat["standing"] == "active" and not seat["classes"]:
            lines.append(f"seat {number} judges nothing: muster validator opt-in --pool NUMBER")
        if seat["standing"] == "active" and seat["bond"] < chain["bond"]:
            lacks = show_tokens(chain["bond"] - seat["bond"])
            lines.append(f"seat {number} lacks {lacks} tokens of its bond: muster validator top-up --seat {number}")
        if seat["standing"].startswith("evicted"):
            lines.append(f"seat {number} was evicted for lack of bond: muster validator withdraw --seat {number}")
        if seat["standing"] == "unbonding" and chain["now"] >= seat["release_at"]:
            lines.append(f"take the bond of seat {number}: muster validator withdraw --seat {number}")
    needs = _FEW_LANES * _LANE_GAS * chain["gas_price"]
    for voter, wei in chain["voters"].items():
        if wei < needs:
            lines.append(f"gas for fewer than {_FEW_LANES} lanes is left: send {needs / _ETHER:.6f} ETH to {voter}")
    if look.parts[2].down and (due := sum(seat["due"] for seat in look.seats)):
        lines.append(f"settle {due} votes: muster validator claim")
    return lines
