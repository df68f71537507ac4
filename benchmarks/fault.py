"""One fault: how it is really made, what `status` and a watch have to say of it, and how it is undone."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.fault_network import FaultNetwork


@dataclass
class Fault:
    """`make` ends when the fault is there, `undo` when it no longer is; what they share is in `kept`. `said`: what of
    `status` names it, `cure` what says what to do, both regular expressions; `alarm`: the event that a watch posts.
    `status`: whose status is looked at; `environment` is what that command runs in. `well`: whether what suffered works
    again, looked at after `undo`."""

    name: str
    said: str
    cure: str
    alarm: str
    make: Callable[["Fault", FaultNetwork], None]
    undo: Callable[["Fault", FaultNetwork], None]
    status: Callable[[FaultNetwork], tuple[Path, str]] = lambda network: (network.operator(), "node")
    well: Callable[["Fault", FaultNetwork], bool] = lambda fault, network: network.files() > fault.kept["files"]
    prepare: Callable[["Fault", FaultNetwork], None] = lambda fault, network: None
    environment: dict[str, str] = field(default_factory=dict)
    over: bool = True
    """Whether `status` names it no longer once it is undone: what a chain has recorded stays."""
    computes: bool = False
    """Whether it is a fault of what computes."""
    kept: dict[str, Any] = field(default_factory=dict)

    def named(self, status: dict[str, Any]) -> bool:
        """Whether a status document names fault and cure."""
        shown = [line for key in ("seen", "doing", "refused", "todo") for line in status.get(key, ())]
        text = "\n".join([*shown, *(one["why"] for one in status.get("down", ()))])
        return bool(re.search(self.said, text)) and self.tells_cure(text)

    def tells_cure(self, text: str) -> bool:
        return bool(re.search(self.cure, text))
