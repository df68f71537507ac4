"""The five questions that every `status` answers, whatever is down: for a node, a validator's seats, a pool. Pure."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.diagnose.views import penalty_cause, pool_phase, seats_line
from cli.output import clock, counted, seconds
from protocol.encoding import show_tokens
from protocol.errors import printable
from runtime.diagnose import Alarm

Facts = dict[str, Any]
Say = Callable[[Facts], list[str]]
QUESTIONS = {
    "seen": "Does the network see me?",
    "doing": "What am I doing?",
    "earned": "What did I earn, and when does it unlock?",
    "refused": "What was refused, and why?",
    "todo": "What must I do?",
}
_SILENT = ("unhealthy", "dead", "waiting")  # states of a process from which the service misses heartbeats
_SHOWN = 10  # lines of one kind at most
_ETHER = 10**18
_FEW_FILES = 20
_LANE_GAS, _FEW_LANES = 125_000, 10
_REFUSED = ("rejected", "malformed", "unavailable", "void", "canary", "late")
_TAKES_WORK = ("open", "paused", "understaffed")


@dataclass(frozen=True)
class StatusPart:
    """What answers come from: the chain, a pool's service, the process on this machine.

    `facts`: its newest answer, None if it never gave one here. `down`: why it gives none now, or empty. `seen`: when it
    was last up (Unix seconds, 0 if unknown)."""

    name: str
    facts: Facts | None = None
    down: str = ""
    seen: float = 0.0

    @property
    def since(self) -> str:
        known = f"since {clock(self.seen)} at the latest" if self.seen else "since before this machine first looked"
        return f"the {self.name} is down {known}: {self.down}"


def answers_text(answers: Facts) -> str:
    """Return each question with its answers below it."""
    blocks = [[question, *(f"  {line}" for line in answers[key])] for key, question in QUESTIONS.items()]
    return "\n\n".join("\n".join(block) for block in blocks)


@dataclass(frozen=True)
class StatusLook:
    """What is known of `who`: an address, or a pool's number. `now`: Unix seconds here. `around`: what is wrong with
    machine, service and storage; `finished`: whether the pool's run is over."""

    who: str
    now: float
    chain: StatusPart
    service: StatusPart
    process: StatusPart
    around: Sequence[Alarm] = ()
    finished: bool = False

    def answers(
        self, seen: Say, heard: list[str], doing: list[str], earned: Say, refused: Say, todo: list[str]
    ) -> Facts:
        """Return the answer to every question, by the chain and by what was `heard` elsewhere; and `down`: each part
        that is, why, and since when (Unix seconds or null)."""
        parts = (self.chain, self.service, self.process)
        return {
            "seen": [*self.by_chain(seen), *heard],
            "doing": doing,
            "earned": self.by_chain(earned),
            "refused": self.by_chain(refused),
            "todo": todo or ["nothing"],
            "down": [{"part": part.name, "why": part.down, "since": part.seen or None} for part in parts if part.down],
        }

    def by_chain(self, lines: Say) -> list[str]:
        """Return what `lines` makes of the chain's facts, with their age while the chain is down."""
        if self.chain.facts is None:
            return [f"unknown: {self.chain.since}"]
        old = [f"(as of {ago(self.chain.seen, self.now)}: the chain is down)"] if self.chain.down else []
        return [*(lines(self.chain.facts) or ["nothing"]), *old]

    def heard(self) -> str:
        """Return what the pool's service knows of somebody."""
        if self.service.down:
            return self.service.since
        if (facts := self.service.facts) is None:
            return "the service: it has never heard of this address"
        return f"the service: {facts['state']}, last heartbeat {ago(facts['last_seen'] or 0, self.now)}"

    def at_work(self) -> list[str]:
        """Return what the process does, by its log and by what it reported to the service."""
        process, service = self.process, self.service.facts
        if process.down:
            lines = [process.since]
        else:
            lines = ["the process runs on this machine"]
            if process.facts and process.facts["log"]:
                lines.append(f"its newest message: {process.facts['log']}")
        if not self.service.down and service and service["phase"]:
            step = "" if service["at_step"] is None else f", policy step {service['at_step']}"
            lines.append(f"it reported to the service: {printable(service['phase'])}{step}")
        return lines

    def troubles(self) -> list[str]:
        """Return what to do about the machine, and about a service that does not hear the process."""
        service, lines = self.service, alarm_lines(self.around)
        if self.process.down:
            return lines
        if service.down:
            lines.append(
                "nothing about the service: the running process waits for it; tell the pool's owner if it lasts"
            )
        elif service.facts is None or service.facts["state"] in _SILENT:
            lines.append("the process runs, but the service does not hear it: muster doctor (clock, service)")
        return lines


def alarm_lines(alarms: Iterable[Alarm]) -> list[str]:
    """Return what is wrong and what to do, a line each; services are strangers."""
    return [printable(f"{alarm.what}: {alarm.hint}", 400) for alarm in alarms]


def ago(when: float, now: float) -> str:
    """Return `12 s ago`, or `never` for 0."""
    return f"{seconds(max(0.0, now - when))} ago" if when else "never"


def at(chain_time: int, chain_now: int) -> str:
    """Return a moment in chain time for people: the clock, and how long until then."""
    left = chain_time - chain_now
    return f"{clock(time.time() + left)} (in {seconds(left)})" if left > 0 else "now"


# A node


def next_stage(chain: Facts, finished: bool) -> str:
    """Return what the node's operator does next on the way from registering to taking the stake back; empty while the
    node is a member at work. `finished`: the service says that the pool's run is over."""
    view, standing = chain["view"], _standing(chain)
    if view is None:
        return "register and join: muster node up"
    stake = f"the stake of {show_tokens(view['stake'])} tokens"
    if standing.startswith("ejected"):
        rest = (
            f"Of its stake {show_tokens(view['stake'])} tokens are left: once unlocked, muster node leave returns them"
        )
        return f"the node is out for good; a new one needs a new key. {rest}"
    if standing.startswith("removed") and (view["pool"] or view["stake"]):
        return f"ask the pool's owner why it removed the node; {stake}: muster node leave"
    if view["pool"]:
        over = finished or chain["status"] not in _TAKES_WORK
        if over and view["pool"] == chain["pool"]:
            return f"the pool's run is over: take your pay and {stake} back: muster node claim, then muster node leave"
        return ""
    if not view["stake"]:
        return "nothing: the stake is withdrawn; to work again: muster node up"
    if not view["accounts"]:
        return f"join: muster node up, or muster node join --pool {chain['pool'] or 1}"
    if view["withdrawable"]:
        return f"take {stake} back: muster node leave; or work again: muster node up"
    return f"{stake} unlocks {at(view['release_at'], chain['now'])}: run muster node leave again then"


def _standing(chain: Facts) -> str:
    """Return the node's standing in the pool that is meant, or empty."""
    accounts = chain["view"]["accounts"] if chain["view"] else ()
    return next((account["standing"] for account in accounts if account["pool"] == chain["pool"]), "")


def node_answers(look: StatusLook) -> Facts:
    """Answer for a node. The chain's facts: `view` (of views.node_view, or None: not registered), `now` (chain
    time), and of the pool that is meant `pool` (0: none), `status`, `least` stake. The service's:
    its `NodeEntry`. The process's: `log`, `unsubmitted`."""
    view = look.chain.facts["view"] if look.chain.facts else None
    accounts = view["accounts"] if view else []
    files = [(account["pool"], file) for account in accounts for file in account["submissions"]]

    def seen(chain: Facts) -> list[str]:
        if view is None:
            return [f"no: {look.who} is not registered on this chain"]
        pool = f"pool {chain['pool']} ({chain['status']}): {_standing(chain) or 'not joined'}"
        stake = show_tokens(view["stake"])
        return [
            f"the chain: node {look.who} of operator {view['operator']}, {stake} at stake",
            f"the chain: {pool if chain['pool'] else 'in no pool'}",
        ]

    def earned(chain: Facts) -> list[str]:
        lines, now = [], chain["now"]
        for account in accounts:
            money = {name: show_tokens(account[name]) for name in ("earned", "paid", "claimable", "vesting", "pending")}
            lines.append(
                f"pool {account['pool']}: earned {money['earned']} tokens, paid {money['paid']}, claimable now "
                f"{money['claimable']}, locked {money['vesting']}, not judged yet {money['pending']}"
            )
            submissions = account["submissions"]
            locked = [s["final_time"] for s in submissions if s["status"] == "accepted" and not s["final"]]
            if locked and account["vesting"]:
                lines.append(f"pool {account['pool']}: unlocks from {at(min(locked), now)} to {at(max(locked), now)}")
        if view and not view["pool"] and view["stake"]:
            free = "now" if view["withdrawable"] else at(view["release_at"], now)
            lines.append(f"the stake of {show_tokens(view['stake'])} tokens unlocks {free}")
        return lines

    def refused(_: Facts) -> list[str]:
        lines, of = [], [(pool, file) for pool, file in files if file["reason"]]
        for pool, file in of[-_SHOWN:]:
            lost = f", slashed {show_tokens(file['slashed'])} tokens" if file["slashed"] else ""
            lines.append(f"file {file['sequence']} of pool {pool}: {file['reason']}{lost}")
            lines += [f"  {line}" for line in file.get("evidence", ()) if not look.service.down]
        return lines + ([f"and {counted(len(of) - _SHOWN, 'older one')}"] if len(of) > _SHOWN else [])

    doing = look.at_work()
    if look.process.facts and look.process.facts["unsubmitted"]:
        doing.append(f"{counted(look.process.facts['unsubmitted'], 'file')} in its journal")
    doing += [f"file {f['sequence']}: {f['waiting']}" for f in [f for _, f in files if f["status"] == "pending"][-3:]]
    todo = []
    if look.chain.down:
        todo.append("reach the chain: name another RPC (--rpc, or `rpc` in the profile); a running worker tries on")
    if look.chain.facts:
        todo += _node_chores(look, look.chain.facts)
    return look.answers(seen, [look.heard()], doing, earned, refused, [*todo, *look.troubles()])


def _node_chores(look: StatusLook, chain: Facts) -> list[str]:
    """Return what stage, disputes, stake and pay ask for."""
    view, now, down, lines = chain["view"], chain["now"], look.process.down, []
    stage = next_stage(chain, look.finished)
    if stage:
        lines.append(stage)
    if view is None:
        return lines
    if _standing(chain).startswith("frozen"):
        lines.append(
            "nothing is taken until the refused file is final: muster why explains it; dispute it if you are right"
        )
    for account in view["accounts"]:
        pool = account["pool"]
        lines += [
            f"file {file['sequence']} can be disputed until {at(file['final_time'], now)}: "
            f"muster node dispute --pool {pool} --file {file['sequence']}"
            for file in account["submissions"]
            if file["disputable"]
        ]
        if account["claimable"] and down:
            lines.append(f"take {show_tokens(account['claimable'])} tokens: muster node claim --pool {pool}")
    if (not stage or not view["accounts"]) and 0 < view["stake"] < chain["least"]:
        lacks = show_tokens(chain["least"] - view["stake"])
        lines.append(f"add {lacks} tokens to the stake: muster node join --stake {lacks}")
    if not stage and down:
        lines.append(f"start the process, if it runs on no other machine: muster node up ({down})")
    return lines


# A validator's seats


def seats_answers(look: StatusLook) -> Facts:
    """Answer for an owner or voter of seats. The chain's facts: `seats` (of views.seat_view), `now` (chain time),
    `epoch`, `bond` (of a full seat), `gas_price`, `voters` (address → wei), `open` (rounds that are not settled: pool,
    lane, seat, committed, revealed). The service's: its `ValidatorView`. The process's: `log`, `unserved`, `retained`,
    `engines`."""
    chain_facts, process = look.chain.facts or {}, look.process.facts or {}
    seats = chain_facts.get("seats", [])
    judged = sorted({pool for seat in seats if seat["standing"] == "active" for pool in seat["pools"]})

    def seen(_: Facts) -> list[str]:
        if not seats:
            return [f"no: {look.who} owns no seat on this chain, and votes for none"]
        active = sum(seat["standing"] == "active" for seat in seats)
        pools = ", ".join(map(str, judged)) or "none"
        return [f"the chain: {active} of {counted(len(seats), 'seat')} active, they may be drawn for pools {pools}"]

    def earned(chain: Facts) -> list[str]:
        if not seats:
            return []
        names = "earned", "fees", "penalised"
        fees, left, lost = (show_tokens(sum(seat[name] for seat in seats)) for name in names)
        due = counted(sum(seat["due"] for seat in seats), "vote")
        more = f"{left} tokens withdrawn and {due} settled by: muster validator claim"
        lines = [f"fees {fees} tokens, penalties {lost}; {more}"]
        return lines + [
            f"the bond of seat {seat['seat']}, {show_tokens(seat['bond'])} tokens, unlocks "
            + at(seat["release_at"], chain["now"])
            for seat in seats
            if seat["standing"] == "unbonding"
        ]

    def refused(_: Facts) -> list[str]:
        lost = sorted(((p["time"], s["seat"], p) for s in seats for p in s["penalties"]), key=lambda entry: entry[0])
        return [
            f"seat {seat} lost {show_tokens(penalty['amount'])} tokens at file {penalty['sequence']} of pool "
            f"{penalty['pool']}: {penalty_cause(penalty)}"
            for _, seat, penalty in lost[-_SHOWN:]
        ]

    doing = look.at_work()
    for vote in chain_facts.get("open", ())[:_SHOWN]:
        state = "voted" if vote["revealed"] else "committed, to be opened" if vote["committed"] else "to be judged"
        doing.append(f"seat {vote['seat']}: lane {vote['lane']} of pool {vote['pool']}: {state}")
    if engines := process.get("engines"):
        others = " or ".join(engines[1:])
        how = f"files of node challenges that {others} made with that" if others else "files of other engines too"
        doing.append(f"judging with {engines[0]}; {how}")
    if retained := process.get("retained"):
        since = f", the oldest came {ago(retained['oldest'], look.now)}" if retained["files"] else ""
        size, where = f"{retained['bytes'] / (1 << 20):.1f} MiB", retained["where"]
        shown = f"at {where}" if where else "to nobody"
        doing.append(f"retaining {counted(retained['files'], 'file')} ({size}{since}) for juries, shown {shown}")
    todo = []
    if look.chain.down:
        todo.append("reach the chain at once: a drawn seat that cannot vote loses money; name another RPC (--rpc)")
    if look.chain.facts:
        todo += _seats_chores(look, chain_facts)
    if not look.process.down:
        todo += [_unserved(pool, why, judged, bool(chain_facts)) for pool, why in process.get("unserved", {}).items()]
        if retained and not retained["where"]:
            todo.append(
                "name where retained files are shown (`serve` or `republish`): no jury can confirm votes on a file "
                "that nobody shows"
            )
        if retained and retained["problem"]:
            todo.append(f"make room for files that seats answer for: {retained['problem']}")
    return look.answers(seen, [look.heard()], doing, earned, refused, [*todo, *look.troubles()])


def _unserved(pool: str, why: str, judged: list[int], chain_known: bool) -> str:
    """Return what to do about a pool that the process cannot judge."""
    if chain_known and pool not in map(str, judged):
        return f"bond once the process can judge pool {pool}, which it tries every half minute at least ({why})"
    return (
        f"judge pool {pool}, which this machine cannot ({why}): mend that, name the pool's service in `pools`, or stop "
        f"judging it: muster validator judge --pool {pool} --stop; its votes are `unavailable` or missing until then"
    )


def _seats_chores(look: StatusLook, chain: Facts) -> list[str]:
    """Return what seats, gas, fees and a process that does not run ask for."""
    seats, epoch, lines, leaving = chain["seats"], chain["epoch"], [], []
    if not seats:
        return ["bond a seat: muster validator up"]
    if all(seat["standing"] == "closed" for seat in seats):
        owed = any(seat["fees"] or seat["due"] for seat in seats)
        todo = "take what the seats earned: muster validator claim" if owed else "nothing"
        return [f"{todo}: every bond is withdrawn; to judge again: muster validator up"]
    for seat in seats:
        number, standing, until = seat["seat"], seat["standing"], seat["drawable_until"]
        if standing == "active" and not seat["groups"]:
            lines.append(f"seat {number} judges nothing: muster validator judge --pool NUMBER")
        if standing == "active" and seat["bond"] < chain["bond"]:
            lacks = show_tokens(chain["bond"] - seat["bond"])
            lines.append(f"seat {number} lacks {lacks} tokens of its bond: muster validator judge --seat {number}")
        if standing.startswith("evicted"):
            lines.append(f"seat {number} was evicted for lack of bond: muster validator leave --seat {number}")
        if until is not None and epoch <= until:
            leaving.append(f"seat {number} can be drawn until epoch {until} ends")
        if standing.startswith("leaving"):
            lines.append(
                f"keep the process running until epoch {until} ends (it is {epoch}): seat {number} can be drawn until "
                f"then; after that: muster validator leave --seat {number}"
                if epoch <= until
                else f"start unbonding seat {number}: muster validator leave --seat {number}"
            )
        if standing == "unbonding":
            step = f"take the bond of seat {number}: muster validator leave --seat {number}"
            unlocks = at(seat["release_at"], chain["now"])
            lines.append(step if unlocks == "now" else f"once it unlocks, {unlocks}, {step}")
    needs = _FEW_LANES * _LANE_GAS * chain["gas_price"]
    lines += [
        f"gas for fewer than {_FEW_LANES} lanes is left: send {needs / _ETHER:.6f} ETH to {voter}"
        for voter, wei in chain["voters"].items()
        if wei < needs
    ]
    if down := look.process.down:
        if due := sum(seat["due"] for seat in seats):
            lines.append(f"settle {counted(due, 'vote')}: muster validator claim")
        if leaving or any(seat["standing"] == "active" for seat in seats):
            why = "; ".join([down, *leaving])
            lines.append(f"start the process at once, if it runs on no other machine: muster validator up ({why})")
    return lines


# A pool


def pool_answers(look: StatusLook, gone: Mapping[str, str], no_evidence: str = "") -> Facts:
    """Answer for a pool. `gone`: the owner's processes that do not run on this machine, by their roles, with their last
    messages; `no_evidence`: why no node challenge can convict in the pool, or empty.

    The chain's facts: `view` (of views.pool_view), `free` (base units, not reserved and not owed), `file` (base
    units of the largest file), `now` and `settle_at` (chain time), `refused` (the newest refused files: sequence, node,
    reason), `slashed` (the newest slashes: sequence, who, amount). The service's: its `RunStatus`."""
    run = None if look.service.down else look.service.facts
    view = look.chain.facts["view"] if look.chain.facts else {}
    status = view.get("status", "")

    def seen(_: Facts) -> list[str]:
        url = printable(view["service"]["url"], 200)
        return [
            f"the chain: pool {look.who} is {status}, members: {counted(_members(view), 'node')}; "
            + seats_line(view["seats"]),
            f"the chain: its service is announced at {url}" if url else "the chain: no URL of its service is announced",
        ]

    def earned(chain: Facts) -> list[str]:
        money = {name: show_tokens(base_units) for name, base_units in view["money"].items()}
        settle = f"from {clock(chain['settle_at'])} on" if chain["settle_at"] else "once the pool is closed and settled"
        return [
            f"{view['units_accepted']} output tokens were accepted, for {money['claimed']} tokens paid to nodes, "
            f"{money['owed']} owed to them and {money['fees_paid']} paid to validators, of {money['funded']} funded",
            f"{show_tokens(chain['free'])} tokens are free; what is left comes back {settle}",
        ]

    def refused(chain: Facts) -> list[str]:
        counts = ", ".join(f"{n} {name}" for name, n in view["submissions"].items() if n and name in _REFUSED)
        lines = [counts] if counts else []
        lines += [f"file {file['sequence']} of {file['node']}: {file['reason']}" for file in chain["refused"]]
        return lines + [
            f"{slash['who']} was slashed {show_tokens(slash['amount'])} tokens for file {slash['sequence']}, which "
            f"touches no other node: muster why {slash['sequence']} --pool {look.who}"
            for slash in chain["slashed"]
        ]

    heard = [look.service.since if look.service.down else "the service: it answers"]
    if no_evidence:
        heard.append(f"WARNING: {no_evidence}: cheats too small for any one file go unpunished")
    doing = look.by_chain(lambda _: [pool_phase(view)])
    if run:
        step = "none yet" if run["step"] is None else f"{run['step']} of {run['steps']}"
        flight = ", ".join(f"{run['in_flight'][name]} {name}" for name in ("leased", "pending", "accepted"))
        doing.append(f"the service: {printable(run['phase'])}, policy step {step}, files: {flight}")
        if run["chain_error"]:
            doing.append(f"the service cannot follow the chain: {printable(run['chain_error'])}")
        for wait in run["waits"][:_SHOWN]:
            who, what = printable(wait["who"]), printable(wait["what"])
            doing.append(f"{who} is waiting for {what} ({ago(wait['since'], look.now)})")
    todo = ["reach the chain: name another RPC (--rpc, or `rpc` in the profile)"] if look.chain.down else []
    if look.chain.facts:
        todo += _pool_chores(look.who, look.chain.facts)
    if look.service.down and status != "settled":
        todo.append(f"bring the service back: muster pool serve ({gone.get('orchestrator') or look.service.down})")
    finished = bool(look.service.facts and look.service.facts["phase"] == "finished")
    if status in _TAKES_WORK:
        if finished:
            todo.append(
                f"the run is over: close the pool, then take the rest back: muster pool close --pool {look.who}"
            )
        elif "trainer" in gone:
            todo.append(f"start the trainer again: muster pool train ({gone['trainer']})")
    todo += alarm_lines(look.around)
    return look.answers(seen, heard, doing, earned, refused, todo)


def _members(view: Facts) -> int:
    return sum(node["standing"] == "member" for node in view["nodes"])


def _pool_chores(number: str, chain: Facts) -> list[str]:
    """Return what the pool's own state asks for."""
    view, lines, pool = chain["view"], [], f"--pool {number}"
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
    elif not _members(view):
        lines.append("find nodes: an operator with a stake joins by `muster node up --pool URL`")
    if chain["file"] and chain["free"] < _FEW_FILES * chain["file"]:
        left = chain["free"] // chain["file"]
        lines.append(f"the free budget buys {left} more of the largest files: muster pool fund {pool}")
    return lines
