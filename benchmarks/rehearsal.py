"""Does `muster node dry-run` say of a file what the pool's committees say of it?

`python -m benchmarks rehearsal [--quick] [--resume] [--seconds S]`. Files of the demo's model, two pools (fp32 and
bf16), are made by honest machines, by machines that are wrong, and by machines that are wrong by so little that their
figures lie about the thresholds. Each is judged by the rehearsal's own functions, with the engine that the command
takes, and in other processes by three seats (`FileJudge`) that fetch its bytes by HTTP and compute with another engine,
batch and number of threads; their votes are counted as the contract does. Both judge it with every rollout audited, and
with a quarter, drawn by each side for itself. They agree where the same happens to the file: paid, or refused for the
same reason. Everything is kept in build/rehearsal at once; `--resume` goes on, `--seconds` ends between two processes.
Keys: files, agree, agreement, and of each kind and pool, with everything audited; `quarter`: the same with a quarter;
`differing`: what, rehearsal, committee and their figures.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.journal import Line, lines
from benchmarks.rehearsal_machines import RATES, File, RehearsalCase, Station, case
from benchmarks.rehearsal_roles import journal
from engines.runtime import torch_environment
from protocol.errors import MusterError
from protocol.files import write_atomic
from protocol.verdict import Code, tally
from validator.replay import alike

HERE = Path(__file__).parents[1]
_PROCESS_SECONDS = 2 * 3600.0


def run(
    quick: bool, progress: Callable[[str], None], resume: bool = False, seconds: int | None = None
) -> dict[str, Any]:
    """See the module."""
    chosen, end = case(quick), time.monotonic() + (seconds or float("inf"))
    folder = HERE / "build" / ("rehearsal-quick" if quick else "rehearsal")
    prepare(folder, chosen, resume and not quick)
    with served(folder) as url:
        for number, place in product(range(len(chosen.slices)), chosen.places):
            if time.monotonic() < end:
                _process("quick" if quick else "full", folder, number, place, url)
                progress(f"slice {number + 1} of {len(chosen.slices)}: {place.name} is done")
    return summary(chosen, folder)


def prepare(folder: Path, chosen: RehearsalCase, resume: bool) -> None:
    """Leave of an earlier run what this one may go on with. The policies stay."""
    about = folder / "case"
    if not resume or not about.exists() or about.read_text() != chosen.digest:
        for name in ("journals", "rollouts"):
            shutil.rmtree(folder / name, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(about, chosen.digest.encode())


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the folder's objects by their keys; yields the base URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _process(which: str, folder: Path, number: int, place: Station, url: str) -> None:
    words = [which, str(folder), str(number), place.name, url]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "benchmarks.rehearsal_roles", *words],
        env=os.environ | torch_environment(place.engine.threads) | {"PYTHONPATH": str(HERE)},
        capture_output=True,
        timeout=_PROCESS_SECONDS,
        check=False,
    )
    if done.returncode:
        raise MusterError(f"{place.name} failed: {done.stderr.decode(errors='replace')[-2000:]}", "see above")


def summary(chosen: RehearsalCase, folder: Path) -> dict[str, Any]:
    """Of all files that everybody judged."""
    rehearsed = {line["file"]: line for path in _journals(chosen, folder, "rehearse") for line in lines(path)}
    votes: dict[str, dict[str, Line]] = {}
    for path in _journals(chosen, folder, "seat"):
        for line in lines(path):
            votes.setdefault(line["file"], {})[line["seat"]] = line
    seats = len({place.seat for place in chosen.places if "seat" in place.does})
    judged = [file for file in chosen.files if file.name in rehearsed and len(votes.get(file.name, {})) == seats]
    compared = {
        what: [ComparedFile.of(file, what, rehearsed[file.name], votes[file.name]) for file in judged] for what in RATES
    }
    everything, quarter = (figures(found) for found in compared.values())
    differing = [one.told() for found in compared.values() for one in found if not one.agrees]
    return {**everything, "quarter": quarter, "differing": differing}


def _journals(chosen: RehearsalCase, folder: Path, does: str) -> list[Path]:
    return [journal(folder, place.name, does) for place in chosen.places if does in place.does]


class ComparedFile:
    """One file by the rehearsal and by a committee, at an audit rate."""

    def __init__(self, file: File, audit: str, rehearsal: Line, seats: dict[str, Line]) -> None:
        self.file, self.audit, self.rehearsal, self.seats = file, audit, rehearsal, seats

    @classmethod
    def of(cls, file: File, audit: str, rehearsal: Line, seats: dict[str, Line]) -> "ComparedFile":
        return cls(file, audit, rehearsal[audit], {name: line[audit] for name, line in seats.items()})

    @property
    def rehearsed(self) -> Code:
        return Code(self.rehearsal["code"])

    @property
    def votes(self) -> list[Code]:
        return [Code(one["code"]) for one in self.seats.values()]

    @property
    def committee(self) -> Code:
        return tally(self.votes, len(self.votes))

    @property
    def agrees(self) -> bool:
        return alike(self.rehearsed, self.committee)

    @property
    def split(self) -> bool:
        """Whether the seats themselves differ."""
        return any(not alike(vote, self.votes[0]) for vote in self.votes)

    def told(self) -> dict[str, Any]:
        both = {"rehearsal": self.rehearsal, **self.seats}
        shown = {who: f"{Code(one['code']).label}: {one['figure']} {one['share']}" for who, one in both.items()}
        return {
            "what": self.file.name,
            "kind": self.file.machine.kind,
            "audited": self.audit,
            "rehearsal": self.rehearsed.label,
            "committee": self.committee.label,
            "figures": shown,
        }


def figures(found: list[ComparedFile]) -> dict[str, Any]:
    """Of all, and of each kind and pool. `split`: files on which the committee's seats do not agree themselves."""
    out = _counted(found)
    for kind in dict.fromkeys(one.file.machine.kind for one in found):
        own = [one for one in found if one.file.machine.kind == kind]
        pools = dict.fromkeys(one.file.machine.pool for one in own)
        out[kind] = _counted(own) | {
            pool: _counted([one for one in own if one.file.machine.pool == pool]) for pool in pools
        }
    return out


def _counted(found: list[ComparedFile]) -> dict[str, Any]:
    agree = sum(one.agrees for one in found)
    return {
        "files": len(found),
        "agree": agree,
        "agreement": round(agree / len(found), 5) if found else None,
        "accepted": sum(one.committee.is_accept for one in found),
        "split": sum(one.split for one in found),
    }
