"""`python -m benchmarks.rehearsal_roles CASE FOLDER SLICE PLACE URL`: one process of benchmarks/rehearsal.py.

It makes the files of a slice, judges them as the rehearsal does, or as a seat does that fetches their bytes from URL.
What it finds of each is a line in FOLDER/journals at once; what stands there already is not done again.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import groupby
from pathlib import Path

from attacks.registry import REGISTRY
from benchmarks.journal import Line, append, lines, resumed
from benchmarks.offline_pool import OfflinePool, short, strongest
from benchmarks.rehearsal_machines import (
    BASE,
    COARSE,
    FINE,
    RATES,
    File,
    RehearsalCase,
    Station,
    case,
    manifest_of,
    policy,
)
from calibration.dry_run import Draw, RehearsedFile, judged_with, made_with, usual_verifier
from engines.base import Engine
from environments.pool import PoolEnvironments
from protocol.config import PoolConfig
from protocol.files import write_atomic
from protocol.lifetime import die_with_parent
from protocol.rollout_file.rows import Commitment
from protocol.verdict import Verdict
from runtime.process import EngineConfig
from storage.keys import object_key
from storage.transfers import HttpObjects
from validator.judging.context import SubmissionFacts
from validator.judging.pipeline import FileJudge, LoadedEngine
from validator.judging.sources import Sources
from worker.produce import Producer

Engines = Callable[[EngineConfig], Engine]
_FETCH_SECONDS = 60.0


def journal(folder: Path, place: str, does: str) -> Path:
    return folder / "journals" / f"{place}-{does}.jsonl"


def made_files(folder: Path) -> dict[str, Commitment]:
    """Commitments of all that was made, by the files' names."""
    found = [one for path in (folder / "journals").glob("*-make.jsonl") for one in lines(path)]
    return {
        one["file"]: Commitment(bytes.fromhex(one["sha256"]), bytes.fromhex(one["root"]), one["units"], one["rows"])
        for one in found
    }


def object_path(folder: Path, sha256: bytes) -> Path:
    return folder / object_key("rollouts", sha256)


def make_policies(folder: Path, base: Path, config: PoolConfig) -> None:
    """The base model and later policies of it, in FOLDER/policies; once."""
    from benchmarks.attacks import policies

    target = folder / "policies"
    if target.exists():
        return
    aside = folder / "policies.new"
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(base, aside / BASE)
    offline = OfflinePool.of(base, "float32", config.model)
    for rate in (COARSE, FINE):
        for behind, newest in enumerate(reversed(policies(offline, rate))):
            shutil.copytree(newest, aside / policy(rate, behind))
    aside.rename(target)


class Doing:
    """What a place does with some files, into its journals."""

    def __init__(self, chosen: RehearsalCase, folder: Path, place: Station, files: list[File]) -> None:
        self._folder, self._place, self._configs, self._files = folder, place, chosen.configs, files
        self._engines: Engines = cache(lambda config: config.make())

    def run(self, url: str) -> None:
        """All of it; seats fetch from `url`."""
        for does in self._place.does:
            path = journal(self._folder, self._place.name, does)
            path.parent.mkdir(parents=True, exist_ok=True)
            done = {line["file"] for line in resumed(path)}
            todo = [file for file in self._place.files(does, self._files) if file.name not in done]
            does_it: dict[str, Callable[[list[File]], Iterator[Line]]] = {
                "make": self._make,
                "rehearse": self._rehearse,
                "seat": partial(self._judge, url=url),
            }
            for line in does_it[does](todo):
                append(path, line)

    def _policy(self, name: str) -> Path:
        return self._folder / "policies" / name

    def _make(self, files: list[File]) -> Iterator[Line]:
        """As the worker does; wrong machines by the attacks' code."""

        def by(file: File) -> tuple[str, str, str]:
            return file.machine.engine.model_dump_json(), file.machine.name, file.policy_of_maker

        for _, same in groupby(sorted(files, key=by), key=by):
            (first, *_) = own = list(same)
            producer = self._producer(first)
            producer.load(self._policy(first.policy_of_maker))
            for file in own:
                yield {"file": file.name} | self._stored(made_with(producer, file.work))

    def _producer(self, file: File) -> Producer:
        machine = file.machine
        config, engine = self._configs[machine.pool], self._engines(machine.engine)
        if not machine.attack:
            return Producer(config, engine)
        return REGISTRY[machine.attack].build(config, engine, machine.strength)

    def _stored(self, made: RehearsedFile) -> Line:
        about = made.commitment
        path = object_path(self._folder, about.sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, made.data)
        return {"sha256": about.sha256.hex(), "root": about.root.hex(), "units": about.units, "rows": about.rows}

    def _rehearse(self, files: list[File]) -> Iterator[Line]:
        """As `muster node dry-run` does: by the engine that it takes, with rows that it draws itself."""
        made = made_files(self._folder)

        def by(file: File) -> tuple[str, str, str]:
            verifier = usual_verifier(file.machine.engine, file.machine.pool)
            return file.machine.pool, verifier.model_dump_json(), file.policy

        for (pool, engine, policy_name), same in groupby(sorted(files, key=by), key=by):
            config, folder = self._configs[pool], self._policy(policy_name)
            verifier = self._engines(EngineConfig.model_validate_json(engine))
            verifier.load(folder)
            environments = PoolEnvironments.of(config, folder).at(folder)
            for file in same:
                about = made[file.name]
                data = object_path(self._folder, about.sha256).read_bytes()
                one = RehearsedFile(data, about, verifier.info, 0.0)
                draws = {what: Draw(file.number, file.seed("rehearsal"), rate) for what, rate in RATES.items()}
                yield {"file": file.name} | {
                    what: told(judged_with(verifier, environments, config, file.work, one, draw).verdict)
                    for what, draw in draws.items()
                }

    def _judge(self, files: list[File], url: str) -> Iterator[Line]:
        """As a validator does for its seats: the bytes by HTTP, rows by the beacon's draw."""
        made, sources = made_files(self._folder), Sources(HttpObjects([url], _FETCH_SECONDS))
        folders = {manifest_of(path.name): path for path in (self._folder / "policies").iterdir()}

        @cache
        def seat(pool: str) -> FileJudge:
            engine = self._engines(self._place.engine.model_copy(update={"dtype": pool}))
            return FileJudge(self._configs[pool], LoadedEngine(engine), sources, lambda work: folders[work.manifest])

        for file in sorted(files, key=lambda file: (file.machine.pool, file.policy)):
            facts = {
                what: SubmissionFacts(file.work, made[file.name], 3 * file.number + 2, file.seed("beacon"), rate)
                for what, rate in RATES.items()
            }
            said = {what: told(seat(file.machine.pool).verdict(one)) for what, one in facts.items()}
            yield {"file": file.name, "seat": self._place.seat} | said


def told(verdict: Verdict) -> Line:
    """What is kept of a verdict: its code, and the figure that came closest to its threshold or went furthest past."""
    ratio, what = strongest(verdict)
    return {"code": int(verdict.code), "share": None if ratio is None else short(ratio), "figure": what}


def main(which: str, name: str, number: str, place: str, url: str) -> None:
    die_with_parent()
    chosen, folder = case(which == "quick"), Path(name)
    (own,) = [one for one in chosen.places if one.name == place]
    if not (folder / "policies").exists():
        from trainer.base_model import base_model

        config = next(iter(chosen.configs.values()))
        make_policies(folder, base_model(config.model, config.environments[0], 1), config)
    Doing(chosen, folder, own, chosen.slice(int(number))).run(url)
    os._exit(0)  # Python takes a process that used vLLM apart for many seconds


if __name__ == "__main__":
    main(*sys.argv[1:])
