"""Free ports on the loopback interface, and a clear refusal for taken ones."""

import errno
import random
import socket

from protocol.errors import ConfigError

_RANGE = range(20_000, 32_000)
"""Below the ports that systems give to outgoing connections: one of those may be taken by the time that the process it
was chosen for listens, seconds later, or again after a restart."""
_claimed: set[int] = set()


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def claim_port(name: str, wanted: int | None) -> int:
    """`wanted` if it is free (ConfigError otherwise); any free port, another each time, when `wanted` is None or 0."""
    if wanted:
        if not is_free(wanted):
            raise ConfigError(f"port {wanted} for {name} is in use", f"stop what uses it or pass --{name}-port")
        return wanted
    for port in random.SystemRandom().sample(_RANGE, len(_RANGE)):
        if port not in _claimed and is_free(port):
            _claimed.add(port)
            return port
    raise ConfigError(f"no port is free in {_RANGE.start}-{_RANGE.stop} for {name}", f"pass --{name}-port")
