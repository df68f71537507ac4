"""Where ranks meet: the store of their group, which says who is there.

Whoever reaches a store can read and write all of it, and pickles travel through it. Torch's own listen on every address
of a machine; ours only on its loopback.
"""

import os
import socket
from datetime import timedelta

from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

LOOPBACK = "127.0.0.1"
_PORT = "MUSTER_STORE_PORT"


def loopback_store(limit: timedelta) -> TCPStore:
    """A store in this process, whose `port` nothing but this machine can reach. `limit` bounds every wait for a key."""
    listener = socket.create_server((LOOPBACK, 0))
    port = listener.getsockname()[1]
    return TCPStore(LOOPBACK, port, None, True, limit, wait_for_workers=False, master_listen_fd=listener.detach())


def meeting_environment(store: TCPStore) -> dict[str, str]:
    """What ranks that this machine's launcher starts need in order to meet at its store, and nowhere else."""
    interfaces = {name for _, name in socket.if_nameindex()}
    loopback = next((name for name in ("lo", "lo0") if name in interfaces), None)
    gloo = {"GLOO_SOCKET_IFNAME": loopback} if loopback else {}
    return {_PORT: str(store.port), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **gloo}


def meet(limit: timedelta) -> tuple[Store, int, int]:
    """The group's store, this rank, and the number of ranks; a process alone makes a store of its own."""
    if "WORLD_SIZE" not in os.environ:
        return loopback_store(limit), 0, 1
    if _PORT in os.environ:
        store = TCPStore(LOOPBACK, int(os.environ[_PORT]), None, False, limit)
        return store, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store, rank, world = next(rendezvous("env://", timeout=limit))
    store.set_timeout(limit)
    return store, rank, world
