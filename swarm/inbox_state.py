"""What a member knows of others that must be as old as its weights."""

from dataclasses import dataclass, field
from typing import Any

from protocol.swarm.plausibility import Shape
from protocol.swarm.record import TruthRecord


@dataclass
class InboxState:
    """`heard`: sharer → its rounds that were taken → key; `kept`: key → own round
    in which it came; `used`: names of groups among these that were trained on; `records`: sharer → its record;
    `shapes`: of the newest own completions, oldest first; `drawn`: whose groups the newest own rounds were trained on,
    oldest first; `last`: sharer → own round in which its newest true envelope came, of those who shared lately;
    `doubted`: as `drawn`, of the groups that were left out as nothing that the own policy would say."""

    heard: dict[str, dict[int, str]] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    records: dict[str, TruthRecord] = field(default_factory=dict)
    shapes: list[Shape] = field(default_factory=list)
    drawn: list[list[str]] = field(default_factory=list)
    last: dict[str, int] = field(default_factory=dict)
    doubted: list[list[str]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        return {
            "heard": {sharer: {str(n): key for n, key in rounds.items()} for sharer, rounds in self.heard.items()},
            "kept": self.kept,
            "used": sorted(self.used),
            "records": {sharer: vars(record) for sharer, record in self.records.items()},
            "shapes": [list(shape) for shape in self.shapes],
            "drawn": self.drawn,
            "last": self.last,
            "doubted": self.doubted,
        }

    @classmethod
    def of(cls, document: dict[str, Any]) -> "InboxState":
        heard = {sharer: {int(n): key for n, key in rounds.items()} for sharer, rounds in document["heard"].items()}
        records = {sharer: TruthRecord(**record) for sharer, record in document["records"].items()}
        shapes = [Shape(*values) for values in document["shapes"]]
        drawn, doubted = ([list(one) for one in document[name]] for name in ("drawn", "doubted"))
        kept = dict(document["kept"])
        last = dict(document["last"])
        return cls(heard, kept, set(document["used"]), records, shapes, drawn, last, doubted)
