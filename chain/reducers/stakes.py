"""Token, nodes' stake and seats."""

from chain.events import Event
from chain.records import Node, Seat
from chain.reducers.registry import ZERO, on
from chain.state import State

# ---- Token


@on("MusterToken", "Transfer")
def _transfer(state: State, event: Event) -> None:
    sender, to, amount = event.args["from"], event.args["to"], event.args["value"]
    if sender != ZERO:
        state.balances[sender] = state.balances.get(sender, 0) - amount
    if to != ZERO:
        state.balances[to] = state.balances.get(to, 0) + amount
    state.transfers[sender, to] = state.transfers.get((sender, to), 0) + amount


# ---- Nodes and their stake


@on("Stakes", "NodeRegistered")
def _node_registered(state: State, event: Event) -> None:
    a = event.args
    state.nodes[a["node"]] = Node(a["node"], a["operator"], a["stake"], block=event.block)


@on("Stakes", "StakeDeposited", "StakeWithdrawn")
def _stake_set(state: State, event: Event) -> None:
    state.nodes[event.args["node"]].stake = event.args["stake"]


@on("Stakes", "NodeBound")
def _node_bound(state: State, event: Event) -> None:
    node = state.nodes[event.args["node"]]
    node.pool, node.release_at = event.args["pool"], 0


@on("Stakes", "NodeUnbound")
def _node_unbound(state: State, event: Event) -> None:
    node = state.nodes[event.args["node"]]
    node.pool, node.release_at = 0, event.args["releaseAt"]


@on("Stakes", "NodeFrozen", "NodeReleased")
def _node_frozen(state: State, event: Event) -> None:
    state.nodes[event.args["node"]].frozen = event.args["frozen"]


@on("Stakes", "NodeSlashed")
def _node_slashed(state: State, event: Event) -> None:
    a = event.args
    node = state.nodes[a["node"]]
    node.stake, node.frozen = a["stake"], a["frozen"]
    node.slashed += a["amount"]
    if not node.stake:
        node.pool = 0
    # Which file caused it is in the FileFinalized that Pools emits right after, in the same transaction.
    state.pending_slashes[a["node"]] = (a["amount"], a["fees"])


# ---- Seats


@on("Seats", "SeatOpened")
def _seat_opened(state: State, event: Event) -> None:
    a = event.args
    state.seats[a["seat"]] = Seat(a["seat"], a["owner"], a["voter"], a["bond"], a["activeFrom"])


@on("Seats", "SeatReopened")
def _seat_reopened(state: State, event: Event) -> None:
    a = event.args
    owner = state.seats[a["seat"]].owner
    state.seats[a["seat"]] = Seat(a["seat"], owner, a["voter"], a["bond"], a["activeFrom"])


@on("Seats", "SeatOptedIn")
def _seat_opted_in(state: State, event: Event) -> None:
    seat = state.seats[event.args["seat"]]
    seat.groups = (*seat.groups, event.args["group"])


@on("Seats", "SeatOptedOut")
def _seat_opted_out(state: State, event: Event) -> None:
    a = event.args
    seat = state.seats[a["seat"]]
    seat.groups = tuple(one for one in seat.groups if one != a["group"])
    seat.left_groups[a["group"]] = a["epoch"]


@on("Seats", "VoterSet")
def _voter_set(state: State, event: Event) -> None:
    state.seats[event.args["seat"]].voter = event.args["voter"]


@on("Seats", "SeatToppedUp")
def _seat_topped_up(state: State, event: Event) -> None:
    state.seats[event.args["seat"]].bond = event.args["bond"]


@on("Seats", "SeatLeft")
def _seat_left(state: State, event: Event) -> None:
    seat = state.seats[event.args["seat"]]
    seat.left_epoch, seat.evicted = event.args["epoch"], event.args["evicted"]


@on("Seats", "SeatUnbonding")
def _seat_unbonding(state: State, event: Event) -> None:
    state.seats[event.args["seat"]].release_at = event.args["releaseAt"]


@on("Seats", "SeatClosed")
def _seat_closed(state: State, event: Event) -> None:
    seat = state.seats[event.args["seat"]]
    seat.closed, seat.bond = True, 0


@on("Seats", "SeatPenalised")
def _seat_penalised(state: State, event: Event) -> None:
    seat = state.seats[event.args["seat"]]
    seat.bond = event.args["bond"]
    seat.penalised += event.args["amount"]


@on("Seats", "SeatFrozen", "SeatReleased")
def _seat_frozen(state: State, event: Event) -> None:
    state.seats[event.args["seat"]].frozen = event.args["frozen"]
