"""Real tasks in GENESYS's schema from end to end: rows, screen, filter, data pool, data set, verification, altered
rows.

Rows are what installed packages ship (benchmarks/genesys_rows.py). The model is the demo's tiny one, taught to answer
by rows that are kept apart (`held_out`): it guesses rather than computes, which is enough for some problems to be
solved sometimes. Everything after that is what people run: `muster env screen`, `muster env check`, `muster data
filter`, a data pool on the local network, `muster dataset export` and `verify`. Files lie in build/genesys; `--resume`
goes on with what is there, `--seconds` ends a slice after so long.
"""

import json
import random
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.genesys_altered import alter, named
from benchmarks.genesys_pool import Slice, selling, slices
from benchmarks.genesys_rows import PACKAGES, tasks
from benchmarks.genesys_teacher import teach
from dataset.document import Format
from dataset.rows import read_rows
from localnet.plan import pool_config
from protocol.api.endpoints import OBJECTS
from protocol.config import DataConfig, ModelConfig, PoolConfig
from protocol.environments import EnvironmentConfig
from protocol.errors import MusterError
from protocol.rollout_file.rows import Limits
from protocol.verdict import MAX_DOCUMENT_BYTES
from storage.keys import object_key
from storage.transfers import HttpObjects

HERE = Path(__file__).parents[1]
Progress = Callable[[str], None]
HELD_OUT = 1_500
"""Rows at the end that the model is taught with."""
GYM, QUICK_GYM, QUICK_PACKAGES = 60, 2, ("toolz",)
UPDATES, QUICK_UPDATES = 500, 4
SAMPLES, HIGHEST = 1, 0.99
ROLLOUTS, QUICK_ROLLOUTS = 20_000, 60
PER_FILE, QUICK_PER_FILE = 250, 32
FORMATS: tuple[Format, ...] = ("jsonl", "parquet")
_SECONDS = 2 * 3600.0


def run(quick: bool, progress: Progress, resume: bool = False, seconds: int | None = None) -> dict[str, Any]:
    """See the module."""
    folder, end = HERE / "build" / ("genesys-quick" if quick else "genesys"), time.monotonic() + (seconds or 10**9)
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    found = {"made": _stage(folder, "made", lambda: _made(folder, quick, progress))}
    model = folder / "model"
    found["screen"] = _stage(folder, "screen", lambda: _screened(folder, model, quick, progress))
    config = _config(model, found["screen"], quick)
    (folder / "pool.json").write_bytes(config.canonical())
    found["check"] = _stage(folder, "check", lambda: _checked(folder))
    found["filter"] = _stage(folder, "filter", lambda: _filtered(folder, model, config, progress))
    if (folder / "data_set.json").exists():
        found["data_set"] = json.loads((folder / "data_set.json").read_text())
        return found
    filtered = PoolConfig.load(folder / "filtered.json")
    with selling(filtered, model, folder / "network", progress, end) as part:
        if part.complete:
            found["data_set"] = _exported(folder, part, filtered, progress)
    found.setdefault("data_set", {"files": part.files})
    found["data_set"]["slices"] = slices(folder / "network")
    if part.complete:
        (folder / "data_set.json").write_text(json.dumps(found["data_set"]))
    return found


def _stage(folder: Path, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a stage found, now or in an earlier slice, with what it took."""
    path = folder / f"{name}.stage.json"
    if not path.exists():
        begin, used = time.monotonic(), _cpu()
        made = make() | {"seconds": round(time.monotonic() - begin), "cpu_seconds": round(_cpu() - used)}
        path.write_text(json.dumps(made))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _made(folder: Path, quick: bool, progress: Progress) -> dict[str, Any]:
    """Rows in an order that follows from their names, so that the last ones are of every kind."""
    rows, counts = tasks(progress, QUICK_PACKAGES if quick else PACKAGES, QUICK_GYM if quick else GYM)
    random.Random(7).shuffle(rows)
    (folder / "raw.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    types = Counter(row["task_type"] for row in rows)
    return {"rows": len(rows), "task_types": dict(types), "packages": [asdict(one) for one in counts]}


def _screened(folder: Path, model: Path, quick: bool, progress: Progress) -> dict[str, Any]:
    """The model is taught by the last rows, then `muster env screen` drops what a pool of it cannot use."""
    rows = [json.loads(line) for line in (folder / "raw.jsonl").read_text().splitlines()]
    if not model.is_dir():
        teach(rows[-min(HELD_OUT, len(rows) // 4) :], model, QUICK_UPDATES if quick else UPDATES, progress)
    (folder / "draft.json").write_bytes(_config(model, {"content": "0" * 64, "kept": 8}, quick).canonical())
    where = ("--pool-config", folder / "draft.json", "--weights", model, "--out", folder / "rows.jsonl")
    found = _muster("env", "screen", folder / "raw.jsonl", *where, "--proven", "--keep")
    progress(f"{found['kept']} of {found['rows']} rows kept")
    names = ("rows", "kept", "task_types", "dropped", "content")
    return {name: found[name] for name in names}


def _config(model: Path, screened: dict[str, Any], quick: bool) -> PoolConfig:
    """A data pool for answers of up to 64 tokens, each a byte, one try at a problem."""
    rows = screened["kept"]
    held_out = min(HELD_OUT, rows // 4)
    environment = EnvironmentConfig(
        name="genesys", label="packages", content=screened["content"], rows=rows, held_out=held_out
    )
    base = pool_config(1, 1)
    per_file = QUICK_PER_FILE if quick else PER_FILE
    shape = {"max_new_tokens": 64, "max_prompt_tokens": 440, "problems_per_file": per_file, "samples_per_problem": 1}
    asked = ModelConfig(
        source=str(model), license="Apache-2.0", prompt_template="{question}\nAnswer: ", answer_after=""
    )
    return base.model_copy(
        update={
            "name": "genesys",
            "model": asked,
            "environments": (environment,),
            "work": base.work.model_copy(update=shape),
            "data": DataConfig(rollouts=QUICK_ROLLOUTS if quick else ROLLOUTS),
        }
    )


def _checked(folder: Path) -> dict[str, Any]:
    """`muster env check` of the pool's configuration."""
    (one,) = _muster("env", "check", folder / "pool.json", "--problems", 64)["environments"]
    return {name: one[name] for name in ("problems", "disagreements", "references", "solved", "won", "content")}


def _filtered(folder: Path, model: Path, config: PoolConfig, progress: Progress) -> dict[str, Any]:
    """`muster env filter` over every row that is not held out: what is always solved is dropped."""
    (environment,), out = config.environments, folder / "filtered.json"
    where = ("--pool-config", folder / "pool.json", "--weights", model, "--out", out, "--batch", 64)
    plan = ("--candidates", environment.drawn_rows, "--samples", SAMPLES, "--lowest", 0, "--highest", HIGHEST)
    found = _muster("env", "filter", *where, *plan, "--engine", "transformers", "--dtype", "float32")
    tries = [json.loads(line) for line in (folder / "filtered.tries.jsonl").read_text().splitlines()[1:]]
    solved = Counter(one["solved"] for one in tries)
    progress(f"{found['kept']} of {found['candidates']} kept")
    found |= {"samples": SAMPLES, "lowest": 0, "highest": HIGHEST}
    found["solved"] = {str(count): solved[count] for count in sorted(solved)}
    return {name: value for name, value in found.items() if name != "out"}


def _exported(folder: Path, part: Slice, config: PoolConfig, progress: Progress) -> dict[str, Any]:
    """The pool's data set is exported and verified against chain and bucket, then rows of it are altered."""
    out, altered = folder / "data-set", folder / "altered"
    for one in (out, altered):
        shutil.rmtree(one, ignore_errors=True)
    plan = part.plan
    chain = ("--deployment", plan.deployment, "--rpc", plan.rpc_url)
    begin = _cpu()
    made = _muster("dataset", "export", "--pool", 1, "--pool", plan.http_url, "--out", out, *chain)
    exported = _cpu()
    sound = _muster("dataset", "verify", out, *chain)
    verified = _cpu()
    progress(f"{made['rows']} rows exported, sound: {sound['sound']}")
    objects = _compared(out, plan.http_url, config)
    said = {}
    for kind in FORMATS:
        places = alter(out, altered, kind)
        said[kind] = named(_muster("dataset", "verify", altered, *chain, code=1)["findings"], places)
        shutil.rmtree(altered)
    names = ("rows", "submissions", "nodes", "problems", "prompt_tokens", "output_tokens", "task_reward_mean")
    return {
        **{name: made[name] for name in names},
        "refused_files": part.rejected,
        "verified": sound["sound"],
        "verified_rows": sound["rows"],
        "bucket_objects": objects,
        "bytes": {one["path"]: one["bytes"] for one in made["files"]},
        "export_cpu_seconds": round(exported - begin, 1),
        "verify_cpu_seconds": round(verified - exported, 1),
        "largest_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10,
        "altered": sum(map(len, said.values())),
        "altered_found": sum(bool(line) for lines in said.values() for line in lines.values()),
        "altered_said": said,
    }


def _compared(out: Path, service: str, config: PoolConfig) -> int:
    """How many objects of the bucket the rows name, files and verdicts: each is fetched, and has its hash."""
    (path,) = sorted(out.glob("data/*.jsonl"))
    limits = Limits.of(config.work)
    wanted = dict[str, int]()
    for row in read_rows(path, "jsonl", 8 * limits.row_bytes + 65536):
        if isinstance(row, Exception):
            raise row
        wanted[object_key("rollouts", bytes.fromhex(row.file_sha256))] = limits.file_bytes
        wanted |= {object_key("verdicts", bytes.fromhex(one)): MAX_DOCUMENT_BYTES for one in row.verdicts}
    objects = HttpObjects([service + OBJECTS], timeout=60.0, allow_private=True)
    try:
        for key, most in wanted.items():
            objects(key, most)
    finally:
        objects.close()
    return len(wanted)


def _cpu() -> float:
    """Core seconds of this process and of all ended children and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + used.ru_utime + used.ru_stime


def _muster(*arguments: object, code: int = 0) -> dict[str, Any]:
    """What a command says."""
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", *map(str, arguments), "--json"],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode != code:
        raise MusterError(f"muster {arguments[0]} {arguments[1]} ended with {done.returncode}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
