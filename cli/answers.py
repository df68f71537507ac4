"""The five questions that every `status` answers, whatever is down: for a node, a validator's seats, a pool. Pure."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from cli.output import clock, counted, seconds
from cli.views import penalty_cause, pool_phase
from protocol import VERSION, behind
from protocol.encoding import show_tokens
from protocol.errors import printable
from runtime.diagnose import Alarm

QUESTIONS = {
    "seen": "Does the network see me?",
    "doing": "What am I doing?",
    "earned": "What did I earn, and when does it unlock?",
    "refused": "What was refused, and why?",
    "todo": "What must I do?",
}
_SILENT = ("unhealthy", "dead", "waiting")
"""States of `NodeState` in which a service waits for heartbeats."""
_SHOWN = 10
"""Lines of one kind that are shown at most."""
_ETHER = 10**18
_FILE_GAS, _FEW_FILES = 62_500, 20
_LANE_GAS, _FEW_LANES = 125_000, 10
_REFUSED = ("rejected", "malformed", "unavailable", "void", "canary", "late")
_TAKES_WORK = ("open", "paused", "understaffed")


@dataclass(frozen=True)
class StatusPart:
    """Something that answers come from: the chain, a pool's service, the process on this machine. `down`: why it cannot
    be asked, empty while it can, and whether it was `silent` then; `seen`: when it was up for the last time (Unix
    seconds), 0 if that is not known."""

    name: str
    down: str = ""
    seen: float = 0.0
    silent: bool = False

    @property
    def since(self) -> str:
        """`down since …`, in words."""
        known = f"since {clock(self.seen)} at the latest" if self.seen else "since before this machine first looked"
        return f"the {self.name} is down {known}: {self.down}"


@dataclass(frozen=True)
class FiveAnswers:
    """Lines for people under each question; every part that was asked, up or down."""

    seen: tuple[str, ...]
    doing: tuple[str, ...]
    earned: tuple[str, ...]
    refused: tuple[str, ...]
    todo: tuple[str, ...]
    parts: tuple[StatusPart, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the same five keys for every role, and `down`: part, why, and since when (Unix seconds, null if
        unknown)."""
        down = [{"part": one.name, "why": one.down, "since": one.seen or None} for one in self.parts if one.down]
        return {key: list(getattr(self, key)) for key in QUESTIONS} | {"down": down}

    def text(self) -> str:
        """Return each question with its answers below it."""
        blocks = [[question, *(f"  {line}" for line in getattr(self, key))] for key, question in QUESTIONS.items()]
        return "\n\n".join("\n".join(block) for block in blocks)


@dataclass(frozen=True)
class RoleLook:
    """What was seen of somebody with a process; `now`: Unix seconds here. `chain`, `service`, `process` (`parts` in
    this order): facts, or None where nothing is known; `parts` say whether they are of now. `version`: the
    service's; `around`: what is wrong with machine, service and storage; `finished`: whether the pool's run is over."""

    address: str
    now: float
    parts: tuple[StatusPart, StatusPart, StatusPart]
    chain: dict[str, Any] | None
    service: dict[str, Any] | None
    process: dict[str, Any] | None
    version: str = ""
    around: tuple[Alarm, ...] = ()
    finished: bool = False

    def by_chain(self, lines: list[str], otherwise: str = "nothing") -> list[str]:
        """What the chain says, or `otherwise`, and how old that is."""
        return [*(lines or [otherwise]), *aged(self.parts[0], self.now)]

    def by_service(self) -> str:
        """What the pool's service knows of somebody."""
        service = self.parts[1]
        if service.down:
            return service.since
        if self.service is None:
            return "the service: it has never heard of this address"
        last = ago(self.service["last_seen"] or 0, self.now)
        return f"the service: {self.service['state']}, last heartbeat {last}"

    def at_work(self) -> list[str]:
        """What its process does, by its log and by what it reported to the service."""
        lines = [self.parts[2].since] if self.parts[2].down else ["the process runs on this machine"]
        if not self.parts[2].down and self.process and self.process["log"]:
            lines.append(f"its newest message: {self.process['log']}")
        if not self.parts[1].down and self.service and self.service["phase"]:
            step = "" if self.service["at_step"] is None else f", policy step {self.service['at_step']}"
            lines.append(f"it reported to the service: {printable(self.service['phase'])}{step}")
        return lines

    def troubles(self) -> list[str]:
        """What to do about the machine, and about a service of another version or one that does not hear it."""
        _, service, process = self.parts
        lines = alarm_lines(self.around)
        ours = printable(self.service.get("version") or "", 40) if self.service else VERSION
        if (old := behind(printable(self.version, 40), ours)) and not service.down:
            lines.append(old)
        if service.down and not process.down:
            lines.append(
                "nothing about the service: the running process waits for it; tell the pool's owner if it lasts"
            )
        elif not service.down and not process.down and (self.service is None or self.service["state"] in _SILENT):
            lines.append("the process runs, but the service does not hear it: muster doctor (clock, service)")
        return lines


L = TypeVar("L", bound=RoleLook)


def five(look: L, *answers: Callable[[L], list[str]]) -> FiveAnswers:
    """Return the answers to the questions, in their order."""
    seen, doing, earned, refused, todo = (tuple(answer(look)) for answer in answers)
    return FiveAnswers(seen, doing, earned, refused, todo, look.parts)


def unknown(chain: StatusPart) -> list[str]:
    """The answer to what the chain alone could have said, where it never did."""
    return [f"unknown: {chain.since}"]


def aged(part: StatusPart, now: float) -> list[str]:
    """What to say of figures that a part gave before it went down, if it is down."""
    return [f"(as of {ago(part.seen, now)}: the {part.name} is down)"] if part.down else []


def alarm_lines(alarms: tuple[Alarm, ...]) -> list[str]:
    """What is wrong and its cure, a line each; services are strangers."""
    return [printable(f"{alarm.what}: {alarm.cure}", 400) for alarm in alarms]


def gas_line(what: str, needs: int, address: str) -> str:
    """What to send where; `needs` in wei."""
    return f"gas for fewer than {what} is left: send {needs / _ETHER:.6f} ETH to {address}"


def ago(when: float, now: float) -> str:
    """`12 s ago`; `never` for 0."""
    return f"{seconds(max(0.0, now - when))} ago" if when else "never"


def at(chain_time: int, chain_now: int) -> str:
    """A moment in chain time for people: the clock, and how long until then."""
    left = chain_time - chain_now
    return f"{clock(time.time() + left)} (in {seconds(left)})" if left > 0 else "now"


# ---- A node


class NodeStage(Enum):
    """Where a node stands between registering and taking its stake back."""

    UNREGISTERED = "unregistered"
    NOT_JOINED = "not joined"
    MEMBER = "member"
    RUN_OVER = "run over"
    EJECTED = "ejected"
    REMOVED = "removed"
    LEFT_LOCKED = "left, stake locked"
    LEFT_FREE = "left, stake free"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True)
class NodeLook(RoleLook):
    """What was seen of a node. The chain's facts: `view` (of cli.views.node_view, or None: not registered), `now`
    (chain time), `wei`, `gas_price`, and of the pool that is meant `pool` (number, 0: none), `status`, `least`
    stake. The service's: its `NodeEntry`. The process's: `log`, `unsubmitted`."""

    @property
    def view(self) -> dict[str, Any] | None:
        return self.chain["view"] if self.chain else None

    @property
    def accounts(self) -> list[dict[str, Any]]:
        return self.view["accounts"] if self.view else []

    @property
    def account(self) -> dict[str, Any] | None:
        """In the pool that is meant."""
        return next((one for one in self.accounts if self.chain and one["pool"] == self.chain["pool"]), None)

    @property
    def stage(self) -> NodeStage:
        """Where the node stands, by the chain and the service."""
        view, account, chain = self.view, self.account, self.chain or {}
        if view is None:
            return NodeStage.UNREGISTERED
        standing = account["standing"] if account else ""
        for word, stage in (("ejected", NodeStage.EJECTED), ("removed", NodeStage.REMOVED)):
            if standing.startswith(word) and (view["pool"] or view["stake"]):
                return stage
        if view["pool"]:
            over = self.finished or chain["status"] not in _TAKES_WORK
            return NodeStage.RUN_OVER if over and view["pool"] == chain["pool"] else NodeStage.MEMBER
        if not view["stake"]:
            return NodeStage.WITHDRAWN
        if not self.accounts:
            return NodeStage.NOT_JOINED
        return NodeStage.LEFT_FREE if view["withdrawable"] else NodeStage.LEFT_LOCKED


NEXT_OF_NODE = {
    NodeStage.UNREGISTERED: "register and join: muster node up",
    NodeStage.NOT_JOINED: "join: muster node up, or muster node join --pool {pool}",
    NodeStage.MEMBER: "",
    NodeStage.RUN_OVER: "the pool's run is over: take your pay and your stake of {stake} tokens back: "
    "muster node claim, then muster node leave",
    NodeStage.EJECTED: "the node is out for good; a new one needs a new key. "
    "What is left of the stake, {stake} tokens: muster node leave",
    NodeStage.REMOVED: "ask the pool's owner why it removed the node; the stake of {stake} tokens: muster node leave",
    NodeStage.LEFT_LOCKED: "the stake of {stake} tokens unlocks {free}: run muster node leave again then",
    NodeStage.LEFT_FREE: "take the stake of {stake} tokens back: muster node leave; or work again: muster node up",
    NodeStage.WITHDRAWN: "nothing: the stake is withdrawn; to work again: muster node up",
}
"""What a node's operator does next at each stage; empty: it works."""


def node_answers(look: NodeLook) -> FiveAnswers:
    """Every part may be down, and may never have been up."""
    return five(look, _node_seen, _node_doing, _node_earned, _node_refused, _node_todo)


def _node_seen(look: NodeLook) -> list[str]:
    if look.chain is None:
        lines = unknown(look.parts[0])
    elif look.view is None:
        lines = look.by_chain([f"no: {look.address} is not registered on this chain"])
    else:
        view, account, pool = look.view, look.account, look.chain["pool"]
        standing = account["standing"] if account else "not joined"
        lines = look.by_chain(
            [
                f"the chain: node {look.address} of operator {view['operator']}, {show_tokens(view['stake'])} at stake",
                f"the chain: pool {pool} ({look.chain['status']}): {standing}" if pool else "the chain: in no pool",
            ]
        )
    return [*lines, look.by_service()]


def _node_doing(look: NodeLook) -> list[str]:
    lines = look.at_work()
    if look.process and look.process["unsubmitted"]:
        lines.append(f"{counted(look.process['unsubmitted'], 'file')} in its journal")
    waiting = [one for account in look.accounts for one in account["submissions"] if one["status"] == "pending"]
    return lines + [f"file {one['sequence']}: {one['waiting']}" for one in waiting[-3:]]


def _node_earned(look: NodeLook) -> list[str]:
    if look.chain is None:
        return unknown(look.parts[0])
    lines, now = [], look.chain["now"]
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
            lines.append(f"pool {account['pool']}: unlocks from {at(min(locked), now)} to {at(max(locked), now)}")
    view = look.view
    if view and not view["pool"] and view["stake"]:
        free = "now" if view["withdrawable"] else at(view["release_at"], now)
        lines.append(f"the stake of {show_tokens(view['stake'])} tokens unlocks {free}")
    return look.by_chain(lines, "nothing yet")


def _node_refused(look: NodeLook) -> list[str]:
    if look.chain is None:
        return unknown(look.parts[0])
    lines = []
    for account in look.accounts:
        refused = [one for one in account["submissions"] if one["reason"]]
        for one in refused[-_SHOWN:]:
            lost = f", slashed {show_tokens(one['slashed'])} tokens" if one["slashed"] else ""
            lines.append(f"file {one['sequence']} of pool {account['pool']}: {one['reason']}{lost}")
            lines += [f"  {line}" for line in one.get("evidence", ()) if not look.parts[1].down]
        if len(refused) > _SHOWN:
            lines.append(f"and {counted(len(refused) - _SHOWN, 'older one')}")
    return look.by_chain(lines)


def _node_todo(look: NodeLook) -> list[str]:
    chain, _, process = look.parts
    lines = []
    if chain.down:
        lines.append("reach the chain: name another RPC (--rpc, or `rpc` in the profile); a running worker tries on")
    if look.chain is not None:
        lines += _node_chores(look, look.chain)
        if look.stage is NodeStage.MEMBER and process.down:
            lines.append(f"start the process, if it runs on no other machine: muster node up ({process.down})")
    lines += look.troubles()
    return lines or ["nothing"]


def _node_chores(look: NodeLook, chain: dict[str, Any]) -> list[str]:
    """What stage, disputes, stake, pay and gas ask for."""
    view, account, lines = look.view, look.account, []
    stage, now = look.stage, chain["now"]
    if advice := NEXT_OF_NODE[stage]:
        free = at(view["release_at"], now) if view else ""
        lines.append(advice.format(pool=chain["pool"] or 1, stake=show_tokens(view["stake"] if view else 0), free=free))
    standing = account["standing"] if account else ""
    if standing.startswith("frozen"):
        lines.append(
            "nothing is taken until the refused file is final: muster why explains it; dispute it if you are right"
        )
    for one_account in look.accounts:
        for one in one_account["submissions"]:
            if one["disputable"]:
                until, pool = at(one["final_time"], now), one_account["pool"]
                lines.append(
                    f"file {one['sequence']} can be disputed until {until}: "
                    f"muster node dispute --pool {pool} --file {one['sequence']}"
                )
        if one_account["claimable"] and look.parts[2].down:
            order = f"muster node claim --pool {one_account['pool']}"
            lines.append(f"take {show_tokens(one_account['claimable'])} tokens: {order}")
    if stage is NodeStage.MEMBER and view is not None:
        if view["stake"] < chain["least"]:
            lacks = show_tokens(chain["least"] - view["stake"])
            lines.append(f"add {lacks} tokens to the stake: muster node join --stake {lacks}")
        needs = _FEW_FILES * _FILE_GAS * chain["gas_price"]
        if standing == "member" and chain["wei"] < needs:
            lines.append(gas_line(f"{_FEW_FILES} files", needs, look.address))
    return lines


# ---- A validator's seats


@dataclass(frozen=True)
class SeatsLook(RoleLook):
    """What was seen of an owner or voter of seats. The chain's facts: `seats` (of cli.views.seat_view), `now` (chain
    time), `epoch`, `bond` (of a full seat), `gas_price`, `voters` (address → wei), `open` (rounds that are not settled:
    pool, lane, seat, committed, revealed). The service's: its `ValidatorView`. The process's: `log`, `unserved`,
    `retained`, `engines`."""

    @property
    def seats(self) -> list[dict[str, Any]]:
        return self.chain["seats"] if self.chain else []

    @property
    def active(self) -> list[dict[str, Any]]:
        return [seat for seat in self.seats if seat["standing"] == "active"]

    @property
    def drawable(self) -> list[dict[str, Any]]:
        """Seats that can be drawn now: active ones, and those that left too short a while ago."""
        epoch = self.chain["epoch"] if self.chain else 0
        return [seat for seat in self.seats if seat["standing"] == "active" or epoch <= (seat["drawable_until"] or -1)]


def seats_answers(look: SeatsLook) -> FiveAnswers:
    """Every part may be down, and may never have been up."""
    return five(look, _seats_seen, _seats_doing, _seats_earned, _seats_refused, _seats_todo)


def _seats_seen(look: SeatsLook) -> list[str]:
    if look.chain is None:
        lines = unknown(look.parts[0])
    elif not look.seats:
        lines = look.by_chain([f"no: {look.address} owns no seat on this chain, and votes for none"])
    else:
        pools = ", ".join(map(str, sorted({pool for seat in look.active for pool in seat["pools"]}))) or "none"
        of = counted(len(look.seats), "seat")
        lines = look.by_chain([f"the chain: {len(look.active)} of {of} active, they may be drawn for pools {pools}"])
    return [*lines, look.by_service()]


def _seats_doing(look: SeatsLook) -> list[str]:
    lines = look.at_work()
    for one in (look.chain or {}).get("open", ())[:_SHOWN]:
        state = "voted" if one["revealed"] else "committed, to be opened" if one["committed"] else "to be judged"
        lines.append(f"seat {one['seat']}: lane {one['lane']} of pool {one['pool']}: {state}")
    process = look.process or {}
    if engines := process.get("engines"):
        own, others = engines[0], " or ".join(engines[1:])
        how = f"files of node challenges that {others} made with that" if others else "files of other engines too"
        lines.append(f"judging with {own}; {how}")
    if retained := process.get("retained"):
        size, where = f"{retained['bytes'] / (1 << 20):.1f} MiB", retained["where"]
        since = f", the oldest came {ago(retained['oldest'], look.now)}" if retained["files"] else ""
        shown = f"at {where}" if where else "to nobody"
        lines.append(f"retaining {counted(retained['files'], 'file')} ({size}{since}) for juries, shown {shown}")
    return lines


def _seats_earned(look: SeatsLook) -> list[str]:
    if look.chain is None:
        return unknown(look.parts[0])
    lines = []
    if look.seats:
        fees, lost = (show_tokens(sum(seat[name] for seat in look.seats)) for name in ("earned", "penalised"))
        due = counted(sum(seat["due"] for seat in look.seats), "vote")
        lines = [f"fees {fees} tokens, penalties {lost}; {due} can be settled now (muster validator claim)"]
    for seat in look.seats:
        if seat["standing"] == "unbonding":
            when = at(seat["release_at"], look.chain["now"])
            lines.append(f"the bond of seat {seat['seat']}, {show_tokens(seat['bond'])} tokens, unlocks {when}")
    return look.by_chain(lines, "nothing yet")


def _seats_refused(look: SeatsLook) -> list[str]:
    if look.chain is None:
        return unknown(look.parts[0])
    lost = sorted(
        ((one["time"], seat["seat"], one) for seat in look.seats for one in seat["penalties"]), key=lambda it: it[0]
    )
    return look.by_chain(
        [
            f"seat {seat} lost {show_tokens(one['amount'])} tokens at file {one['sequence']} of pool {one['pool']}: "
            f"{penalty_cause(one)}"
            for _, seat, one in lost[-_SHOWN:]
        ]
    )


def _seats_todo(look: SeatsLook) -> list[str]:
    chain, _, process = look.parts
    lines = []
    if chain.down:
        lines.append("reach the chain at once: a drawn seat that cannot vote loses money; name another RPC (--rpc)")
    if look.chain is not None:
        lines += _seats_chores(look, look.chain)
    if process.down and look.drawable:
        leaving = [f"seat {s['seat']} can be drawn until epoch {s['drawable_until']} ends" for s in look.drawable
                   if s["standing"] != "active"]  # fmt: skip
        why = "; ".join([process.down, *leaving])
        lines.append(f"start the process at once, if it runs on no other machine: muster validator up ({why})")
    facts = look.process or {}
    if not process.down:
        lines += [_unserved(look, pool, why) for pool, why in (facts.get("unserved") or {}).items()]
        retained = facts.get("retained") or {}
        if retained and not retained["where"]:
            lines.append(
                "name where retained files are shown (`serve` or `republish`): a seat that accepted a file which its "
                "owner no longer serves is fined unless it can show it"
            )
        if retained and retained["problem"]:
            lines.append(f"make room for files that seats answer for: {retained['problem']}")
    lines += look.troubles()
    return lines or ["nothing"]


def _unserved(look: SeatsLook, pool: str, why: str) -> str:
    """What to do about a pool that the process cannot judge."""
    if look.chain is not None and not any(pool in map(str, seat["pools"]) for seat in look.active):
        return f"bond once the process can judge pool {pool}, which it tries every half minute at least ({why})"
    return (
        f"judge pool {pool}, which this machine cannot ({why}): mend that, name the pool's service in `pools`, or stop "
        f"judging it: muster validator judge --pool {pool} --stop; its votes are `unavailable` or missing until then"
    )


def _seats_chores(look: SeatsLook, chain: dict[str, Any]) -> list[str]:
    """What seats, gas and fees ask for."""
    if not look.seats:
        return ["bond a seat: muster validator up"]
    lines = []
    for seat in look.seats:
        number, standing = seat["seat"], seat["standing"]
        if standing == "active" and not seat["groups"]:
            lines.append(f"seat {number} judges nothing: muster validator judge --pool NUMBER")
        if standing == "active" and seat["bond"] < chain["bond"]:
            lacks = show_tokens(chain["bond"] - seat["bond"])
            lines.append(f"seat {number} lacks {lacks} tokens of its bond: muster validator bond --seat {number}")
        if standing.startswith("evicted"):
            lines.append(f"seat {number} was evicted for lack of bond: muster validator leave --seat {number}")
        if standing.startswith("leaving"):
            until = seat["drawable_until"]
            if chain["epoch"] <= until:
                lines.append(
                    f"keep the process running until epoch {until} ends (it is {chain['epoch']}): seat {number} can be "
                    f"drawn until then; after that: muster validator leave --seat {number}"
                )
            else:
                lines.append(f"start unbonding seat {number}: muster validator leave --seat {number}")
        if standing == "unbonding" and chain["now"] >= seat["release_at"]:
            lines.append(f"take the bond of seat {number}: muster validator leave --seat {number}")
    needs = _FEW_LANES * _LANE_GAS * chain["gas_price"]
    lines += [gas_line(f"{_FEW_LANES} lanes", needs, voter) for voter, wei in chain["voters"].items() if wei < needs]
    if look.parts[2].down and (due := sum(seat["due"] for seat in look.seats)):
        lines.append(f"settle {counted(due, 'vote')}: muster validator claim")
    return lines


# ---- A pool


@dataclass(frozen=True)
class PoolLook:
    """What was seen of a pool, as in `NodeLook`. The chain's facts: `view` (of cli.views.pool_view), `free`
    (base_units, not reserved and not owed), `file` (base_units of the largest file), `now` and `settle_at` (chain
    time), `refused` (the newest refused files: sequence, node, reason), `slashed` (the newest slashes: sequence,
    who, amount). The service's: its `RunStatus`. `around`: what is wrong with machine, service and storage; `gone`:
    the owner's processes that do not run on this machine, where that is known, by their roles, with their last
    messages. `no_null_model`: why no node challenge can convict in it, empty if one can or nobody knows."""

    pool: int
    now: float
    parts: tuple[StatusPart, StatusPart]
    chain: dict[str, Any] | None
    service: dict[str, Any] | None
    around: tuple[Alarm, ...] = ()
    gone: Mapping[str, str] = field(default_factory=dict)
    no_null_model: str = ""


def pool_answers(look: PoolLook) -> FiveAnswers:
    """Either part may be down, and may never have been up."""
    asked = (_pool_seen, _pool_doing, _pool_earned, _pool_refused, _pool_todo)
    seen, doing, earned, refused, todo = (tuple(answer(look)) for answer in asked)
    return FiveAnswers(seen, doing, earned, refused, todo, look.parts)


def _pool_seen(look: PoolLook) -> list[str]:
    if look.chain is None:
        lines = unknown(look.parts[0])
    else:
        view = look.chain["view"]
        seats, url = view["seats"], printable(view["service"]["url"], 200)
        members = sum(node["standing"] == "member" for node in view["nodes"])
        lines = [
            f"the chain: pool {look.pool} is {view['status']}, members: {counted(members, 'node')}; "
            f"{seats['count']} of {seats['needed']} needed seats judge it",
            f"the chain: its service is announced at {url}" if url else "the chain: no URL of its service is announced",
            *aged(look.parts[0], look.now),
        ]
    lines.append(look.parts[1].since if look.parts[1].down else "the service: it answers")
    if look.no_null_model:
        lines.append(f"WARNING: {look.no_null_model}: cheats too small for any one file go unpunished")
    return lines


def _pool_doing(look: PoolLook) -> list[str]:
    if look.chain is None:
        lines = unknown(look.parts[0])
    else:
        lines = [pool_phase(look.chain["view"]), *aged(look.parts[0], look.now)]
    if look.service and not look.parts[1].down:
        run = look.service
        step = "none yet" if run["step"] is None else f"{run['step']} of {run['steps']}"
        flight = ", ".join(f"{run['in_flight'][name]} {name}" for name in ("leased", "pending", "accepted"))
        lines.append(f"the service: {printable(run['phase'])}, policy step {step}, files: {flight}")
        if run["chain_error"]:
            lines.append(f"the service cannot follow the chain: {printable(run['chain_error'])}")
        for wait in run["waits"][:_SHOWN]:
            who, what = printable(wait["who"]), printable(wait["what"])
            lines.append(f"{who} is waiting for {what} ({ago(wait['since'], look.now)})")
    return lines


def _pool_earned(look: PoolLook) -> list[str]:
    if look.chain is None:
        return unknown(look.parts[0])
    view, settle_at = look.chain["view"], look.chain["settle_at"]
    money = {name: show_tokens(base_units) for name, base_units in view["money"].items()}
    rest = f"comes back from {clock(settle_at)} on" if settle_at else "comes back once the pool is closed and settled"
    return [
        f"{view['units_accepted']} output tokens were accepted, for {money['claimed']} tokens paid to nodes, "
        f"{money['owed']} owed to them and {money['fees_paid']} paid to validators, of {money['funded']} funded",
        f"{show_tokens(look.chain['free'])} tokens are free; what is left {rest}",
        *aged(look.parts[0], look.now),
    ]


def _pool_refused(look: PoolLook) -> list[str]:
    if look.chain is None:
        return unknown(look.parts[0])
    counts = {name: n for name, n in look.chain["view"]["submissions"].items() if n and name in _REFUSED}
    lines = [", ".join(f"{n} {name}" for name, n in counts.items())] if counts else []
    lines += [f"file {one['sequence']} of {one['node']}: {one['reason']}" for one in look.chain["refused"]]
    lines += [
        f"{one['who']} was slashed {show_tokens(one['amount'])} tokens for file {one['sequence']}, which touches no "
        f"other node: muster why {one['sequence']} --pool {look.pool}"
        for one in look.chain["slashed"]
    ]
    return [*(lines or ["nothing"]), *aged(look.parts[0], look.now)]


def _pool_todo(look: PoolLook) -> list[str]:
    lines = []
    if look.parts[0].down:
        lines.append("reach the chain: name another RPC (--rpc, or `rpc` in the profile)")
    if look.chain is not None:
        lines += _pool_chores(look, look.chain)
    status = look.chain["view"]["status"] if look.chain else ""
    if look.parts[1].down and status != "settled":
        why = look.gone.get("orchestrator") or look.parts[1].down
        lines.append(f"bring the service back: muster pool serve ({why})")
    finished = bool(look.service and look.service["phase"] == "finished")
    if "trainer" in look.gone and status in _TAKES_WORK and not finished:
        lines.append(f"start the trainer again: muster pool train ({look.gone['trainer']})")
    if finished and status in _TAKES_WORK:
        lines.append(f"the run is over: close the pool, then take the rest back: muster pool close --pool {look.pool}")
    lines += alarm_lines(look.around)
    return lines or ["nothing"]


def _pool_chores(look: PoolLook, chain: dict[str, Any]) -> list[str]:
    """What the pool's own state asks for."""
    view, lines, pool = chain["view"], [], f"--pool {look.pool}"
    status, seats = view["status"], view["seats"]
    if status == "settled":
        return []
    if status == "closing":
        when = "now" if chain["now"] >= chain["settle_at"] else f"from {clock(chain['settle_at'])} on"
        return [f"take the rest of the budget, {when}: muster pool close {pool}"]
    if status == "paused":
        lines.append(f"let it go on: muster pool pause {pool} --end")
    if not view["service"]["key"]:
        lines.append(f"name the service's key: muster pool set-service {pool}")
    if not view["service"]["url"]:
        lines.append(f"announce where the service answers: muster pool set-service {pool} --url URL")
    if seats["count"] < seats["needed"]:
        lines.append(f"find validators: {counted(seats['needed'] - seats['count'], 'more seat')} must judge the pool")
    elif status == "understaffed":
        lines.append(f"have the seats counted: muster pool set-service {pool} --count-seats")
    if view["step"] < 0:
        lines.append("publish policy step 0: muster pool train")
    elif not any(node["standing"] == "member" for node in view["nodes"]):
        lines.append("find nodes: whoever has a stake joins by `muster node up --pool URL`")
    if chain["file"] and chain["free"] < _FEW_FILES * chain["file"]:
        left = chain["free"] // chain["file"]
        lines.append(f"the free budget buys {left} more of the largest files: muster pool fund {pool}")
    return lines
