"""Limits of all processes of a sandbox together, through cgroups, where we may make some: versions 1 and 2."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.policy import IsolationPolicy
from sandbox.watchdog import remove_folders

ROOT = Path("/sys/fs/cgroup")
_PERIOD = 100_000


@dataclass(frozen=True)
class Cgroup:
    """Folders of one group (one per controller in version 1) → what is written into their files, in this order. A name
    that ends in `?` is of a file that not every kernel has."""

    settings: Mapping[Path, Mapping[str, str]]

    def make(self) -> None:
        """Raises OSError where that is not allowed; what was made is removed again."""
        try:
            for folder, files in self.settings.items():
                folder.mkdir()
                for name, value in files.items():
                    if not name.endswith("?") or (folder / name.rstrip("?")).exists():
                        (folder / name.rstrip("?")).write_text(value)
        except OSError:
            self.remove()
            raise

    def enter(self) -> None:
        """Move this process, and all that it starts from now on, into the group."""
        for folder in self.settings:
            (folder / "cgroup.procs").write_text("0")

    def remove(self, patience: float = 5.0) -> None:
        """Kill what is still in it and remove it; gives up after `patience` seconds."""
        remove_folders(list(self.settings), patience)


def plan_cgroup(policy: IsolationPolicy, name: str, own: str, root: Path = ROOT) -> Cgroup:
    """The group called `name` for a policy. `own`: the text of /proc/self/cgroup. Version 1: under our own group of
    each controller. Version 2: directly under `root`: a group with processes of its own has no limited children."""
    controllers = dict(_controllers(own))
    if not {"memory", "pids"} <= controllers.keys():
        return Cgroup({root / name: _version_2(policy)})
    wanted = _version_1(policy)
    return Cgroup({root / one / controllers[one].lstrip("/") / name: wanted[one] for one in wanted})


def _controllers(own: str) -> list[tuple[str, str]]:
    found = []
    for line in own.splitlines():
        _, names, path = line.split(":", 2)
        found += [(name, path) for name in names.split(",") if name]
    return found


def _version_1(policy: IsolationPolicy) -> dict[str, dict[str, str]]:
    settings: dict[str, dict[str, str]] = {"pids": {"pids.max": str(policy.processes)}}
    if policy.memory is not None:
        limit = str(policy.memory)
        settings["memory"] = {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes?": limit}
    if policy.cpus is not None:
        quota = str(int(policy.cpus * _PERIOD))
        settings["cpu"] = {"cpu.cfs_period_us": str(_PERIOD), "cpu.cfs_quota_us": quota}
    return settings


def _version_2(policy: IsolationPolicy) -> dict[str, str]:
    settings = {"pids.max": str(policy.processes)}
    if policy.memory is not None:
        settings |= {"memory.max": str(policy.memory), "memory.swap.max?": "0"}
    if policy.cpus is not None:
        settings["cpu.max"] = f"{int(policy.cpus * _PERIOD)} {_PERIOD}"
    return settings
