"""A whole worker beside its engine alone: leases, noise, proofs, scores, journal and uploads, and a kill in the middle.

`python -m benchmarks worker [--quick] [--count FILES]`. The worker is the real one in a process of its own; its chain
and service are made up, and an upload is a synced file on this disk. Both sides compute the same prompts with the same
log-normal lengths (sigma 0.7), at most `slots` at once, on one thread; plain is vLLM's own generate and sampler where
it is installed, else that of the transformers engine without proofs. Half of the plain run comes before the worker's
and half after it, because other work on the machine slows both.

Keys: ratio (of tokens per second, worker to plain), occupancy (share of the batch in use while the engine computes),
plain and worker (tokens per second), load (of the machine, by core: above 1, the ratio says nothing); kill: the share
of all tokens that was computed twice, from above (repeated: the first rows that were not finished, as many as are
computed at once), and how many files are the same to the byte.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from chain.indexer.records import Account, FileNumbers, Pool, Step
from chain.indexer.state import State
from engines.base import Completion, Request, Sampling
from engines.torch_process import vllm_installed
from localnet.plan import DEMO_ENVIRONMENT
from protocol.accounts import Account as Key
from protocol.api.work import NoLease, ReceiptSigner, SubmissionResponse, WorkLease
from protocol.config import PoolConfig, WorkConfig
from protocol.identity import PoolId, WorkId
from protocol.models import save_byte_tokenizer
from protocol.seeds import Work
from runtime.engine_process import EngineProcesses
from runtime.process import EngineConfig
from runtime.weights_ahead import WeightsAhead
from trainer.model.tiny_model import PHRASES, tiny_model_config, tiny_qwen2
from worker.daemon import Worker
from worker.journal import Journal
from worker.produce import Planned, Producer
from worker.submit import WorkerCollaborators

POOL = PoolId(31337, "0x" + "22" * 20, 1)
KEY = Key.from_key("0x" + "11" * 32)
ENDLESS, ENGINE = Sampling(1.0, ()), EngineConfig(name="auto", batch=8)
SEED, MANIFEST = b"\x07" * 32, b"\x08" * 32
MEAN, SIGMA, MOST = 96, 0.7, 512
WORK = WorkConfig(problems_per_file=4, samples_per_problem=4, max_new_tokens=MOST, max_prompt_tokens=96)
CONFIG = PoolConfig(name="worker", model=tiny_model_config(), environments=(DEMO_ENVIRONMENT,), work=WORK)


class LogNormal(Producer):
    """Completions of log-normal lengths, which random weights do not make by themselves."""

    def requests(self, plan: Sequence[Planned]) -> list[Request]:
        def length(key: tuple[int, int, int]) -> int:
            return min(MOST, max(1, round(MEAN * random.Random(key[0]).lognormvariate(-SIGMA * SIGMA / 2, SIGMA))))

        return [Request(planned.prompt, planned.noise_key, length(planned.noise_key)) for planned in plan]

    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        assert self._keep is not None
        with self._keep(work, self.engine, ENDLESS) as engine:
            return engine.generate(self.requests(plan), ENDLESS)


class MadeUp:
    """Chain and service of one node: each file lands as soon as it is handed in, up to `files` of them."""

    def __init__(self, home: Path, weights: Path, files: int) -> None:
        self.home, self.files, self.folder, self.signer = home, files, weights, ReceiptSigner(KEY, POOL)
        terms: Any = SimpleNamespace(maxLag=2, receiptWindow=3600)
        steps = [Step(0, MANIFEST, b"", 0, 0, 0, "")]
        pool = Pool(1, KEY.address, b"", terms, 3600, 1, service=KEY.address, steps=steps)
        landed = len(list(home.glob("*.file")))
        self.account = Account(
            1, KEY.address, KEY.address, member=True, counter=landed, sequences=FileNumbers([0] * landed)
        )
        self.state = State(pools={1: pool}, accounts={(1, KEY.address): self.account})
        self.config, self.pool_id, self.newest_weights = SimpleNamespace(pool=1), POOL, 0
        self.chain = SimpleNamespace(now=0)
        self.client = SimpleNamespace(account=KEY, now=lambda: int(time.time()))
        self.first = self.last = 0.0
        self.stop: Callable[[], object] = lambda: None

    def pool(self) -> Pool:
        return self.state.pools[1]

    def refresh(self) -> State:
        return self.state

    def seeds(self, behind: int) -> dict[int, bytes]:
        return {0: SEED}

    def weights(self, *_: object) -> Path:
        return self.folder

    step_weights = weights

    def request_lease(self, counter: int, ready: int | None) -> WorkLease | NoLease:
        if counter >= self.files:
            return NoLease(wait=0.2, reason="enough")
        self.first = self.first or time.monotonic()
        return WorkLease(lease=f"{counter:032x}", step=0, counter=counter, expires=2e9, longest=36_000.0)

    def upload_rollouts(self, data: bytes) -> None:
        with (self.home / f"{self.account.counter:04d}.part").open("wb") as file:
            file.write(data)
            os.fsync(file.fileno())

    def hand_in(self, file: Any) -> SubmissionResponse:
        part = self.home / f"{self.account.counter:04d}.part"
        part.rename(part.with_suffix(".file"))
        self.account.sequences.append(0)
        self.account.counter, self.last = self.account.counter + 1, time.monotonic()
        if self.account.counter == self.files:
            self.stop()
        receipt = self.signer.sign(KEY.address, file.sha256, file.size, int(time.time()))
        return SubmissionResponse(state="waiting", receipt=receipt)

    def heartbeat(self, beat: object) -> Any:
        return SimpleNamespace(next=60.0, version="")

    def close(self) -> None:
        """Nothing to close."""


def save_model(folder: Path) -> Path:
    from transformers import Qwen2ForCausalLM

    folder.mkdir()
    known = save_byte_tokenizer(folder, PHRASES)
    model: Any = cast(Any, Qwen2ForCausalLM)(tiny_qwen2(1000, known - 2, known - 1))
    model.save_pretrained(folder)
    return folder


def work_of(counter: int) -> Work:
    return Work(WorkId(POOL, KEY.address, 0, counter), SEED, MANIFEST)


def serve(home: Path, weights: Path, files: int) -> None:
    """Be the worker's process: print a JSON object once all files are handed in."""
    engines, pool, journal = EngineProcesses(ENGINE, home), MadeUp(home, weights, files), Journal(home)
    producer, client = LogNormal(CONFIG, engines, journal.rows), pool
    ahead = WeightsAhead(client, 3600.0)  # type: ignore[arg-type]
    collaborators = WorkerCollaborators(KEY.address, client, pool, producer, journal, ahead)  # type: ignore[arg-type]
    config: Any = SimpleNamespace(pool=1, name="", home=home, heartbeat_seconds=60.0, poll_seconds=0.1)
    worker = Worker(config, collaborators)
    pool.stop = worker.stop

    worker.run()
    print(json.dumps({"seconds": pool.last - pool.first, "occupancy": engines.occupancy}), flush=True)
    os._exit(0)


def start(home: Path, weights: Path, files: int) -> "subprocess.Popen[str]":
    home.mkdir(exist_ok=True)
    argv = [sys.executable, "-m", "benchmarks.worker", str(home), str(weights), str(files)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def finished(process: "subprocess.Popen[str]") -> dict[str, float]:
    out = process.communicate(timeout=3000)[0]
    figures: dict[str, float] = json.loads(out.splitlines()[-1])
    return figures


def killed(home: Path, weights: Path, asked: Sequence[Sequence[Request]]) -> int:
    """Kill a worker once half of its files are handed in, and start it again; return the tokens that were computed in
    vain at most: of the first rows that were not finished, as many as are computed at once."""
    process = start(home, weights, len(asked))
    while (landed := len(list(home.glob("*.file")))) < len(asked) // 2:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    lines = [line.partition(b" ")[2] for path in home.glob("*.rows") for line in path.read_bytes().splitlines()]
    kept = Counter(len(row["tokens"]) for line in lines for row in json.loads(line).values())
    kept.update(
        size for entry in Journal(home).all() if entry.counter >= landed for size in sizes(asked[entry.counter])
    )
    left = list[int]()
    for size in (size for requests in asked[landed:] for size in sizes(requests)):
        if kept[size]:
            kept[size] -= 1
        else:
            left.append(size)
    finished(start(home, weights, len(asked)))
    return sum(left[: ENGINE.batch])


def sizes(requests: Sequence[Request]) -> list[int]:
    return [request.max_new_tokens for request in requests]


def run(quick: bool, progress: Callable[[str], None], count: int | None = None) -> dict[str, Any]:
    files = count or (4 if quick else 16)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        weights, engine = save_model(folder / "weights"), ENGINE.make()
        engine.load(weights)
        producer = LogNormal(CONFIG, engine)
        producer.load(weights)
        asked = [producer.requests(producer.plan(work_of(counter))) for counter in range(files)]
        total = sum(sum(sizes(requests)) for requests in asked)
        plain(engine, asked[0])  # what comes first compiles
        seconds = plain(engine, [request for requests in asked[: files // 2] for request in requests])
        whole = finished(start(folder / "whole", weights, files))
        seconds += plain(engine, [request for requests in asked[files // 2 :] for request in requests])
        progress(f"plain {total / seconds:.0f} tokens/s, worker {total / whole['seconds']:.0f}")
        repeated = killed(folder / "killed", weights, asked)
        same = [
            path.read_bytes() == (folder / "killed" / path.name).read_bytes() for path in folder.glob("whole/*.file")
        ]
    return {
        "engine": f"{engine.info.name} {engine.info.version}",
        "ratio": seconds / whole["seconds"],
        "occupancy": whole["occupancy"],
        "plain": total / seconds,
        "worker": total / whole["seconds"],
        "files": files,
        "slots": ENGINE.batch,
        "tokens": total,
        "load": os.getloadavg()[2] / (os.cpu_count() or 1),
        "kill": {"repeated": repeated / total, "same_bytes": sum(same)},
    }


def plain(engine: Any, asked: Sequence[Request]) -> float:
    """Return the seconds of the engine's own generate of all requests in one go."""
    if not vllm_installed():
        began = time.monotonic()
        engine.generate(asked, replace(ENDLESS, proven=False))
        return time.monotonic() - began
    from vllm import SamplingParams

    prompts = [{"prompt_token_ids": list(request.prompt)} for request in asked]
    params = [SamplingParams(temperature=1.0, max_tokens=request.max_new_tokens, ignore_eos=True) for request in asked]
    began = time.monotonic()
    engine._llm.generate(prompts, params, use_tqdm=False)
    return time.monotonic() - began


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
