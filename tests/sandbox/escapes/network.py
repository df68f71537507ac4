"""Services of the machine, of its neighbours, and of its hypervisor."""

import socket

from .base import Attempt, Told

AF_VSOCK = 40


# NetworkAccess


def loopback_service(told: Told) -> str:
    with socket.create_connection(("127.0.0.1", told["tcp"]), timeout=2) as connection:
        return connection.recv(64).decode()


def name_server(told: Told) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(1)
        asking.sendto(b"who is there", ("127.0.0.1", told["udp"]))
        return asking.recv(64).decode()


def abstract_socket(told: Told) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(2)
        connection.connect("\0" + told["abstract"])
        return connection.recv(64).decode()


def outer_interface(told: Told) -> str | None:
    """An address of the machine itself."""
    with socket.create_connection((told["address"], told["tcp_everywhere"]), timeout=2) as connection:
        return connection.recv(64).decode()


def hypervisor_socket(told: Told) -> str:
    """Network namespaces do not hold these."""
    socket.socket(AF_VSOCK, socket.SOCK_STREAM).close()
    return "AF_VSOCK"


NETWORK: tuple[Attempt, ...] = (loopback_service, name_server, abstract_socket, outer_interface, hypervisor_socket)
