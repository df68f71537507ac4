"""What each mode protects and what it does not, in words. docs/isolation.md says the same at length."""

from collections.abc import Iterator
from dataclasses import dataclass

from sandbox.policy import IsolationPolicy, Mode, NetworkAccess

_HOST_NETWORK = "services on this machine's loopback and abstract sockets (it uses the host's network)"
_PER_PROCESS = "memory of all its processes together (counted per process: no cgroup can be made here)"


@dataclass(frozen=True)
class Claims:
    """Both as phrases that a list can be made of."""

    protected: tuple[str, ...]
    unprotected: tuple[str, ...]

    def text(self) -> str:
        """One line each for what is protected and what is not."""
        lines = [f"protected: {'; '.join(self.protected)}"] if self.protected else []
        lines += [f"NOT protected: {'; '.join(self.unprotected)}"] if self.unprotected else []
        return "\n".join(lines)


def claims(mode: Mode, policy: IsolationPolicy, accounting: bool) -> Claims:
    """`accounting`: whether limits hold for all processes together (containers; bubblewrap in a cgroup)."""
    if mode is Mode.PLAIN:
        return Claims((), tuple(_plainly()))
    protected = [
        "files outside its mounts",
        "other processes and their memory",
        "devices that are not its own",
        "capabilities, set-user-id programs, mounts, new namespaces",
    ]
    unprotected = list(_reachable(mode, policy))
    if policy.network is NetworkAccess.NONE:
        protected.append(f"the network, but for {', '.join(policy.hosts)}" if policy.hosts else "the network")
    if policy.memory is not None:
        (protected if accounting else unprotected).append("memory" if accounting else _PER_PROCESS)
    (protected if accounting or mode is Mode.BUBBLEWRAP else unprotected).append("number of processes")
    if policy.cpus is not None:
        (protected if accounting else unprotected).append("processor time")
    if policy.memory is None:
        unprotected.append("memory (no limit is set)")
    return Claims(tuple(protected), (*unprotected, "the kernel, against faults of its own"))


def _reachable(mode: Mode, policy: IsolationPolicy) -> Iterator[str]:
    if policy.network is NetworkAccess.HOST or (policy.network is NetworkAccess.OUTBOUND and not mode.is_container):
        yield _HOST_NETWORK
    if policy.network is not NetworkAccess.NONE:
        yield "machines that this one can reach"
    if policy.gpu:
        yield "the GPU and its driver"


def _plainly() -> Iterator[str]:
    yield from ("every file of this user, keys included", "the network", "other processes of this user", "devices")
    yield from ("memory", "number of processes", "processor time")
