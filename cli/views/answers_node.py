"""A node's five answers, from what chain, service and process said. Pure."""

from dataclasses import dataclass
from typing import Any

from cli.answers import FiveAnswers, at, unknown
from cli.views.answers_role import SHOWN, RoleLook, five, gas_line
from protocol.amounts import show_tokens

_FILE_GAS = 62_500
_FEW_FILES = 20


@dataclass(frozen=True)
class NodeLook(RoleLook):
    """What was seen of a node. The chain's facts: `view` (of cli.views.nodes, or None: not registered), `now`
    (chain time), `wei`, `gas_price`, and of the pool that is meant `pool` (number, 0: none), `status`, `least` stake.
    The service's: its `NodeEntry`. The process's: `log`, `unsubmitted`."""

    @property
    def view(self) -> dict[str, Any] | None:
        return self.chain["view"] if self.chain else None

    @property
    def account(self) -> dict[str, Any] | None:
        """In the pool that is meant."""
        accounts = self.view["accounts"] if self.view else []
        return next((one for one in accounts if self.chain and one["pool"] == self.chain["pool"]), None)

    @property
    def accounts(self) -> list[dict[str, Any]]:
        return self.view["accounts"] if self.view else []


def node_answers(look: NodeLook) -> FiveAnswers:
    """Every part may be down, and may never have been up."""
    return five(look, _seen, _doing, _earned, _refused, _todo)


def _seen(look: NodeLook) -> list[str]:
    lines = []
    if look.chain is None:
        lines += unknown(look.parts[0])
    elif look.view is None:
        lines += look.by_chain([f"no: {look.address} is not registered on this chain"])
    else:
        view, account, pool = look.view, look.account, look.chain["pool"]
        standing = account["standing"] if account else "not joined"
        lines.append(
            f"the chain: node {look.address} of operator {view['operator']}, {show_tokens(view['stake'])} at stake"
        )
        lines += [f"the chain: pool {pool} ({look.chain['status']}): {standing}"] if pool else ["the chain: in no pool"]
        lines = look.by_chain(lines)
    return [*lines, look.by_service()]


def _doing(look: NodeLook) -> list[str]:
    lines = look.at_work()
    if look.process and look.process["unsubmitted"]:
        lines.append(f"{look.process['unsubmitted']} files in its journal")
    waiting = [one for account in look.accounts for one in account["submissions"] if one["status"] == "pending"]
    lines += [f"file {one['sequence']}: {one['waiting']}" for one in waiting[-3:]]
    return lines


def _earned(look: NodeLook) -> list[str]:
    if look.chain is None:
        return unknown(look.parts[0])
    lines = []
    for account in look.accounts:
        money = {name: show_tokens(account[name]) for name in ("earned", "paid", "claimable", "vesting", "pending")}
        lines.append(
            f"pool {account['pool']}: earned {money['earned']} tokens, paid {money['paid']}, claimable now "
            f"{money['claimable']}, locked {money['vesting']}, not judged yet {money['pending']}"
        )
        locked = [
            one["final_time"] for one in account["submissions"] if one["status"] == "accepted" and not one["final"]
        ]
        if locked and account["vesting"]:
            first, last = at(min(locked), look.chain["now"]), at(max(locked), look.chain["now"])
            lines.append(f"pool {account['pool']}: unlocks from {first} to {last}")
    view = look.view
    if view and not view["pool"] and view["stake"]:
        free = "now" if view["withdrawable"] else at(view["release_at"], look.chain["now"])
        lines.append(f"the stake of {show_tokens(view['stake'])} tokens unlocks {free}")
    return look.by_chain(lines, "nothing yet")


def _refused(look: NodeLook) -> list[str]:
    if look.chain is None:
        return unknown(look.parts[0])
    lines = []
    for account in look.accounts:
        refused = [one for one in account["submissions"] if one["reason"]]
        for one in refused[-SHOWN:]:
            lost = f", slashed {show_tokens(one['slashed'])} tokens" if one["slashed"] else ""
            lines.append(f"file {one['sequence']} of pool {account['pool']}: {one['reason']}{lost}")
            lines += [f"  {line}" for line in one.get("evidence", ()) if not look.parts[1].down]
        if len(refused) > SHOWN:
            lines.append(f"and {len(refused) - SHOWN} older ones")
    return look.by_chain(lines)


def _todo(look: NodeLook) -> list[str]:
    chain, _, process = look.parts
    lines = []
    if chain.down:
        lines.append("reach the chain: name another RPC (--rpc, or `rpc` in the profile); a running worker tries on")
    if look.chain is not None:
        lines += _membership(look, look.chain)
    out = look.account is not None and look.account["standing"].startswith(("ejected", "removed"))
    if process.down and look.view is not None and not out:
        lines.append(f"start the process, if it runs on no other machine: muster node up ({process.down})")
    lines += look.troubles()
    return lines or ["nothing"]


def _membership(look: NodeLook, chain: dict[str, Any]) -> list[str]:
    """What registration, stake, standing, gas and pay ask for."""
    view, account, pool = look.view, look.account, chain["pool"]
    if view is None:
        return ["register and join: muster node up"]
    standing = account["standing"] if account else "left"
    lines = []
    if standing.startswith("ejected"):
        return [
            "the node is out for good; a new one needs a new key, and what is left of the stake: muster node withdraw"
        ]
    if standing.startswith("removed"):
        return ["ask the pool's owner why it removed the node; the stake: muster node leave, muster node withdraw"]
    if standing.startswith("frozen"):
        lines.append(
            "nothing is taken until the refused file is final: muster why says more; dispute it if you are right"
        )
    if view["stake"] < chain["least"]:
        lines.append(f"add {show_tokens(chain['least'] - view['stake'])} tokens to the stake: muster node stake")
    if standing == "left" and pool:
        lines.append(f"join: muster node join --pool {pool}, or muster node up")
    for account in look.accounts:
        for one in account["submissions"]:
            if one["disputable"]:
                until, order = at(one["final_time"], chain["now"]), f"--pool {account['pool']} --file {one['sequence']}"
                lines.append(f"file {one['sequence']} can be disputed until {until}: muster node dispute {order}")
        if account["claimable"] and look.parts[2].down:
            lines.append(f"take {show_tokens(account['claimable'])} tokens: muster node claim --pool {account['pool']}")
    needs = _FEW_FILES * _FILE_GAS * chain["gas_price"]
    if standing == "member" and chain["wei"] < needs:
        lines.append(gas_line(f"{_FEW_FILES} files", needs, look.address))
    return lines
