"""Hosts of their own on one machine: network namespaces on a bridge, with lines of a given pace. Needs root, iproute2.

Pace is tbf's, in both directions. Delay is `python -m benchmarks.delay` before each server, as not every kernel has
netem.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from protocol.errors import ConfigError

SWITCH = "musterbench"
BURST = "256kb"
QUEUE = "100ms"


class Host:
    """A namespace with the one interface `line`, at `address`."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.space, self.address = name, f"{SWITCH}-{name}", f"10.77.0.{number + 1}"

    def inside(self, command: Sequence[str], tmp: Path) -> list[str]:
        """The command that runs `command` in this host, with `tmp` as its /tmp."""
        tmp.mkdir(parents=True, exist_ok=True)
        mounted = 'mount --bind "$0" /tmp && exec "$@"'
        return ["ip", "netns", "exec", self.space, "unshare", "-m", "sh", "-c", mounted, str(tmp.resolve()), *command]

    def sent(self) -> int:
        """Bytes that have left it, heads of packets included."""
        return self._count("tx_bytes")

    def received(self) -> int:
        """The same of those that came."""
        return self._count("rx_bytes")

    def _count(self, name: str) -> int:
        path = f"/sys/class/net/line/statistics/{name}"
        return int(_done(["ip", "netns", "exec", self.space, "cat", path]))


@contextmanager
def hosts(names: Sequence[str], megabits: float | None, fast: Sequence[str] = ()) -> Iterator[dict[str, Host]]:
    """One namespace for each name; lines of `megabits` a second both ways, or as fast as the machine, as those of
    `fast` are. Raises ConfigError where this user may not."""
    if os.geteuid():
        raise ConfigError("network namespaces need root", "run it as root")
    made = {name: Host(name, number) for number, name in enumerate(names)}
    _remove(made)
    try:
        _ip("netns", "add", SWITCH)
        _ip("-n", SWITCH, "link", "add", "bridge0", "type", "bridge")
        _ip("-n", SWITCH, "link", "set", "bridge0", "up")
        for number, host in enumerate(made.values()):
            _attach(host, f"port{number}", None if host.name in fast else megabits)
        yield made
    finally:
        _remove(made)


def _attach(host: Host, port: str, megabits: float | None) -> None:
    _ip("netns", "add", host.space)
    _ip("-n", SWITCH, "link", "add", port, "type", "veth", "peer", "name", "line", "netns", host.space)
    _ip("-n", SWITCH, "link", "set", port, "master", "bridge0", "up")
    _ip("-n", host.space, "addr", "add", f"{host.address}/24", "dev", "line")
    for device in ("line", "lo"):
        _ip("-n", host.space, "link", "set", device, "up")
    if megabits is not None:
        pace = ["tbf", "rate", f"{megabits}mbit", "burst", BURST, "latency", QUEUE]
        _done(["tc", "-n", host.space, "qdisc", "add", "dev", "line", "root", *pace])
        _done(["tc", "-n", SWITCH, "qdisc", "add", "dev", port, "root", *pace])


def _remove(made: dict[str, Host]) -> None:
    for space in (SWITCH, *(host.space for host in made.values())):
        with suppress(ConfigError):
            _ip("netns", "delete", space)


def _ip(*words: str) -> None:
    _done(["ip", *words])


def _done(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"{' '.join(command[:6])}: {done.stderr.strip()}", "run as root, with iproute2 installed")
    return done.stdout
