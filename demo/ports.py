"""Free ports on the loopback interface, and a clear refusal for taken ones."""

import errno
import socket

from protocol.errors import ConfigError


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
    """`wanted` if it is free (ConfigError otherwise); any free port when `wanted` is None or 0."""
    if wanted:
        if not is_free(wanted):
            raise ConfigError(f"port {wanted} for {name} is in use", f"stop what uses it or pass --{name}-port")
        return wanted
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
