"""A validator's five answers, from what chain, service and process said. Pure."""

from dataclasses import dataclass
from typing import Any

from cli.answers import FiveAnswers, ago, at, unknown
from cli.views.answers_role import SHOWN, RoleLook, five, gas_line
from protocol.amounts import show_tokens
from protocol.verdict import Code

_LANE_GAS = 125_000
_FEW_LANES = 10


@dataclass(frozen=True)
class SeatsLook(RoleLook):
    """What was seen of an owner or voter of seats. The chain's facts: `seats` (views), `now` (chain
    time), `bond` (of a full seat), `gas_price`, `voters` (address → wei), `open` (rounds that are not settled: pool,
    lane, seat, committed, revealed). The service's: its `ValidatorView`. The process's: `log`, `unserved`
    (pools that it cannot judge, and why)."""

    @property
    def seats(self) -> list[dict[str, Any]]:
        return self.chain["seats"] if self.chain else []

    @property
    def active(self) -> list[dict[str, Any]]:
        return [seat for seat in self.seats if seat["standing"] == "active"]


def seats_answers(look: SeatsLook) -> FiveAnswers:
    """Every part may be down, and may never have been up."""
    return five(look, _seen, _doing, _earned, _refused, _todo)


def _seen(look: SeatsLook) -> list[str]:
    if look.chain is None:
        lines = unknown(look.parts[0])
    elif not look.seats:
        lines = look.by_chain([f"no: {look.address} owns no seat on this chain, and votes for none"])
    else:
        pools = sorted({pool for seat in look.active for pool in seat["pools"]})
        judged = ", ".join(map(str, pools)) or "none"
        lines = [
            f"the chain: {len(look.active)} of {len(look.seats)} seats active, they may be drawn for pools {judged}"
        ]
        lines = look.by_chain(lines)
    return [*lines, look.by_service()]


def _doing(look: SeatsLook) -> list[str]:
    lines = look.at_work()
    for one in (look.chain or {}).get("open", ())[:SHOWN]:
        state = "voted" if one["revealed"] else "committed, to be opened" if one["committed"] else "to be judged"
        lines.append(f"seat {one['seat']}: lane {one['lane']} of pool {one['pool']}: {state}")
    if engines := (look.process or {}).get("engines"):
        lines.append(_engines(*engines))
    kept = (look.process or {}).get("kept")
    return [*lines, _custody(kept, look.now)] if kept else lines


def _engines(own: str, *others: str) -> str:
    if not others:
        return f"judging with {own}; files that other engines made too, also in node cases"
    return f"judging with {own}; files of node cases that {' or '.join(others)} made with that"


def _custody(kept: dict[str, Any], now: float) -> str:
    size, where = f"{kept['bytes'] / (1 << 20):.1f} MiB", kept["where"] or "nobody"
    since = f", the oldest came {ago(kept['oldest'], now)}" if kept["files"] else ""
    return f"keeping {kept['files']} files ({size}{since}) for juries, shown {'at ' if kept['where'] else 'to '}{where}"


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
    return look.by_chain(lines, "nothing yet")


def _refused(look: SeatsLook) -> list[str]:
    if look.chain is None:
        return unknown(look.parts[0])
    lost = [(one["time"], seat["seat"], one) for seat in look.seats for one in seat["penalties"]]
    lost.sort(key=lambda entry: entry[0])
    lines = [
        f"seat {seat} lost {show_tokens(one['amount'])} tokens at file {one['sequence']} of pool {one['pool']}: "
        f"{cause(one['code'])}"
        for _, seat, one in lost[-SHOWN:]
    ]
    return look.by_chain(lines)


def cause(code: int) -> str:
    """Why a seat lost money."""
    named = Code(code)
    return f"it accepted a file that was {named.label}" if named else "a vote against the outcome, or none in time"


def _todo(look: SeatsLook) -> list[str]:
    chain, _, process = look.parts
    lines = []
    if chain.down:
        lines.append("reach the chain at once: a drawn seat that cannot vote loses money; name another RPC (--rpc)")
    if look.chain is not None:
        lines += _chores(look, look.chain)
    if process.down and look.active:
        lines.append(f"start the process at once, if it runs on no other machine: muster validator up ({process.down})")
    if not process.down:
        lines += [_unserved(look, *one) for one in ((look.process or {}).get("unserved") or {}).items()]
        lines += _custody_chores((look.process or {}).get("kept") or {})
    lines += look.troubles()
    return lines or ["nothing"]


def _unserved(look: SeatsLook, pool: str, why: str) -> str:
    """What to do about a pool that the process cannot judge."""
    if look.chain is not None and not any(pool in map(str, seat["pools"]) for seat in look.active):
        return f"bond once the process can judge pool {pool}, which it tries every half minute at least ({why})"
    return (
        f"judge pool {pool}, which this machine cannot ({why}): mend that, name the pool's service in `pools`, or "
        "muster validator opt-out; its votes are `unavailable` or missing until then"
    )


def _custody_chores(kept: dict[str, Any]) -> list[str]:
    """What keeps seats from showing what they accepted."""
    lines = []
    if kept and not kept["where"]:
        lines.append(
            "name where kept files are shown (`serve` or `republish`): a seat that accepted a file which its owner no "
            "longer serves is fined unless it can show it"
        )
    if kept and kept["problem"]:
        lines.append(f"make room for files that seats answer for: {kept['problem']}")
    return lines


def _chores(look: SeatsLook, chain: dict[str, Any]) -> list[str]:
    """What seats, gas and fees ask for."""
    if not look.seats:
        return ["bond a seat: muster validator up"]
    lines = []
    for seat in look.seats:
        number = seat["seat"]
        if seat["standing"] == "active" and not seat["groups"]:
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
            lines.append(gas_line(f"{_FEW_LANES} lanes", needs, voter))
    if look.parts[2].down and (due := sum(seat["due"] for seat in look.seats)):
        lines.append(f"settle {due} votes: muster validator claim")
    return lines
