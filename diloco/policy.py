"""A pool's trainer as the coordinator of a DiLoCo run: each policy step with files is one outer step of the workers.

The log says which files a step trains on before any worker hears of them, so a step is made of the same files whatever
is killed."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from diloco.chain import StepRecorder
from diloco.config import DilocoRun, PolicyCoordinatorConfig, Timeouts
from diloco.coordinator import Coordinator
from diloco.log import MadeStep, read_step, schedule_before
from diloco.outer import OuterState
from diloco.store import StatusFile
from diloco.tasks import check_pool_run, model_tensors, set_tensors
from diloco.transport import Transport
from protocol.encoding import canonical_json, load_document, parse_json, sha256_hex
from protocol.errors import ConfigError, IntegrityError, UnreachableError
from protocol.files import write_atomic, write_folder
from protocol.signing import checked_address
from trainer.checkpoint import STATE
from trainer.data.advantage import select
from trainer.data.batch import Group
from trainer.data.files import StepFiles
from trainer.model.base_model import base_model
from trainer.model.policy import Policy
from trainer.model.sharding import Placement
from trainer.reports.records import file_id
from trainer.reports.step_metrics import StepMetrics, rollout_figures
from trainer.train import Check, StepRunner, Trainer, TrainerServices

log = logging.getLogger("muster.trainer")
# Reported metrics outside these bounds are left out: they are a worker's claim, which nothing proves.
_PLAUSIBLE: Mapping[str, tuple[float, float]] = {
    "loss": (-1e3, 1e3), "entropy": (0.0, 20.0), "clip_low": (0.0, 1.0), "clip_high": (0.0, 1.0), "kl": (-1.0, 1e3),
    "learning_rate": (0.0, 1.0), "mismatch": (-1.0, 1e3), "flops": (0.0, 1e24),
}  # fmt: skip
_NO_ENTROPY = 1e9  # what the guard sees where nobody reported an entropy: it never trips


class DilocoPolicy:
    """Coordinator and policy in the place of a trainer's own learners. A PolicyGroup, and its own learner. The policy
    at policy step `step` is the workers' outer state `outer`: policy steps without files are no outer steps."""

    def __init__(self, coordinator: Coordinator, policy: Policy, placement: Placement, home: Path) -> None:
        self.coordinator, self.policy, self.placement = coordinator, policy, placement
        self.step = self.outer = 0
        self._loaded = 0  # the outer state whose weights the policy has
        self.show = StatusFile(home, coordinator.status)
        self.show.write()
        coordinator.start()

    @property
    def learner(self) -> "DilocoPolicy":
        return self

    @property
    def assigned(self) -> Sequence[str]:
        """The files that the outer step after the policy's was assigned."""
        newest = self.coordinator.log
        if newest.commit.step == self.outer:
            return newest.schedule.items or ()
        after = next((commit for _, commit in newest.commits_back() if commit.step == self.outer + 1), None)
        return () if after is None else schedule_before(newest.transport, after).items or ()

    def advance(self) -> MadeStep:
        """Take the committed outer step over into the policy."""
        coordinator = self.coordinator
        outer_step = read_step(coordinator.transport, coordinator.log, coordinator.state, self.outer)
        self.step, self.outer = self.step + 1, self.outer + 1
        self._load()
        return outer_step

    def start_checkpoint(self, folder: Path, extra: dict[str, Any]) -> None:
        """Write the steps and `extra`; the weights are those of the outer state, which the log and the bucket have."""
        state = {"run": self.coordinator.run.digest, "step": self.step, "outer": self.outer, "extra": extra}
        sealed = canonical_json({"state": state, "sha256": sha256_hex(canonical_json(state))})
        write_folder(folder, lambda aside: write_atomic(aside / STATE, sealed))

    def finish_checkpoint(self) -> None:
        """Do nothing: a checkpoint is complete once it was begun."""

    def load_checkpoint(self, folder: Path) -> dict[str, Any]:
        """Restore the steps, and return `extra`. Raises IntegrityError where it is damaged; ConfigError where it is of
        another run, or the log is elsewhere: an older one would not fit either, and to begin again would be to train on
        the same files again."""
        try:
            sealed = parse_json((folder / STATE).read_bytes())
            state = sealed["state"]
            if sha256_hex(canonical_json(state)) != sealed["sha256"]:
                raise ValueError("its hash differs")
            if state.get("run") != self.coordinator.run.digest:
                hint = "name that run's document as `run`; or begin a pool from its weights, in another home"
                raise ConfigError(f"{folder} is of another DiLoCo run, or of a trainer without one", hint)
            step, outer, extra = int(state["step"]), int(state["outer"]), dict(state["extra"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise IntegrityError(f"the checkpoint {folder} is damaged: {error}", "remove it") from None
        self._restore(step, outer)
        if outer == self.coordinator.state.step:
            self._load()
        return extra

    def gather(self) -> Callable[[Path], object]:
        if self._loaded != self.outer:
            what = f"the folder of step {self.step} is gone, and the workers are one outer step further"
            raise IntegrityError(what, "restore the trainer's home folder")
        return self.policy.gather()

    def renew(self) -> None:
        """Begin from policy step 0. Raises ConfigError where the workers have moved on since."""
        self._restore(0, 0)

    def end(self, code: int) -> None:
        self.coordinator.finish()
        self.show.write()

    def _restore(self, step: int, outer: int) -> None:
        newest = self.coordinator.state.step
        if newest not in (outer, outer + 1):
            what = f"the workers are at outer step {newest}, the checkpoint at {outer}"
            raise ConfigError(what, "restore the trainer's home folder")
        self.step, self.outer = step, outer

    def _load(self) -> None:
        set_tensors(self.policy.model, self.coordinator.state.weights)
        self._loaded = self.coordinator.state.step


class DilocoSteps(StepRunner):
    """Policy steps made by workers. `check` (the guards) sees figures that this trainer computed itself: the length of
    the outer update, and rewards. Of the workers' reported entropies it sees the largest, so that no single report can
    stop the run."""

    def __init__(self, group: DilocoPolicy, trainer: Trainer, check: Check) -> None:
        self._group, self._trainer, self._check = group, trainer, check
        self._made: MadeStep | None = None
        self._waiting = False

    @property
    def bound(self) -> Sequence[str]:
        return self._group.assigned

    def train_step(self, batch: StepFiles) -> StepMetrics | None:
        """Assign the files to the workers, and wait until their outer step is committed. A step that the guards refuse
        stops the run: it is in the log."""
        group, coordinator, self._made = self._group, self._group.coordinator, None
        files = [file_id(submission) for submission in batch.files]
        if not files and not group.assigned:
            group.step += 1
            return self._metrics([], [])

        def attempt() -> MadeStep | None:
            if coordinator.state.step == group.outer:
                coordinator.assign(files)
            if set(group.assigned) != set(files):
                what = f"outer step {group.outer} was assigned files that the chain no longer has"
                raise IntegrityError(what, "begin another pool from the newest policy step")
            while coordinator.state.step == group.outer and coordinator.turn():
                pass
            group.show()
            return group.advance() if coordinator.state.step > group.outer else None

        self._waiting = True
        what = f"waiting for outer step {group.outer} of the workers"
        self._made = outer_step = self._trainer.wait_until(what, attempt, why=coordinator.waiting_for)
        self._waiting = False
        if outer_step is None:
            return None
        reports = [contribution.metrics for contribution in outer_step.counted.values()]
        metrics = self._metrics(batch.groups, reports)
        entropy = max(plausible(reports, "entropy"), default=_NO_ENTROPY)
        self._check(replace(metrics, entropy=entropy), self._trainer.records.metrics())
        return metrics

    def step_fields(self) -> dict[str, Any]:
        outer_step = self._made
        if outer_step is None or not outer_step.counted:
            return {}
        run = self._group.coordinator.run.digest
        who = {
            "run": run,
            "outer_step": outer_step.step + 1,
            "workers": list(outer_step.counted),
            "attempt": outer_step.attempt,
        }
        return {"made_by": who}

    def file_fields(self, file: str) -> dict[str, Any]:
        return {} if self._made is None else {"worker": self._made.worker_of(file)}

    def poll(self) -> None:
        """Read what workers send that join and leave."""
        if self._waiting:
            return
        try:
            self._group.coordinator.turn()
        except UnreachableError as error:
            log.info("the workers cannot be read: %s", error.what)
        self._group.show()

    def _metrics(self, groups: Sequence[Group], reports: Sequence[Mapping[str, float]]) -> StepMetrics:
        """Return the step's metrics: rewards, tokens and the outer update's length as computed here; the means of what
        the workers plausibly report for the rest, and their lowest entropy."""
        selection = select(groups, self._trainer.pool_config.train.algorithm)
        reported = {name: plausible(reports, name) for name in _PLAUSIBLE}
        averaged = ("loss", "clip_low", "clip_high", "kl")
        means: dict[str, Any] = {name: fmean(reported[name] or [0.0]) for name in averaged}
        return StepMetrics(
            step=self._group.step,
            entropy=min(reported["entropy"], default=0.0),
            grad_norm=self._group.coordinator.update_norm if reports else 0.0,
            tokens=sum(len(sample.output) for sample in selection.samples),
            learning_rate=max(reported["learning_rate"], default=0.0),
            mismatch=fmean(reported["mismatch"]) if reported["mismatch"] else None,
            mismatches=(),
            masked=0.0,
            flops=sum(reported["flops"]),
            seconds=0.0,
            **means,
            **rollout_figures(groups, selection),
        )


def plausible(reports: Iterable[Mapping[str, float]], name: str) -> list[float]:
    """Return the values of a metric that workers with any signal report, without those out of bounds."""
    least, most = _PLAUSIBLE[name]
    values = [report[name] for report in reports if name in report and report.get("tokens")]
    return [value for value in values if least <= value <= most]


def start_policy(
    config: PolicyCoordinatorConfig, services: TrainerServices, base: Path, placement: Placement
) -> DilocoPolicy:
    """Start the coordinator of the run that trains a pool's policy, from the folder `base` of policy step 0. Raises
    ConfigError where the run's document does not fit the pool; MusterError."""
    run, pool = load_document(config.run, DilocoRun), services.client.pool_config()
    check_pool_run(run, pool)
    if run.coordinator != services.account.address:
        what = f"the coordinator of {run.name} is {run.coordinator}"
        raise ConfigError(what, "name the pool's owner in the run's document")
    ours = services.client.pool_id
    if run.pool_id != replace(ours, pools=checked_address(ours.pools)):
        raise ConfigError(f"{run.name} is for {run.pool_id}", f"name {ours} in the run's document")
    home = services.client.home / "diloco"
    policy = Policy(base, pool.model.dtype, placement)
    first, transport = OuterState.start(model_tensors(policy.model)), Transport(services.bucket, run)
    recorder = None
    if config.chain_run is not None:
        recorder = StepRecorder(lambda: services.client.suite.diloco_runs, config.chain_run, transport, first)
    coordinator = Coordinator(transport, services.account, first, home, recorder)
    log.info("timeouts of %s:\n%s", run.name, Timeouts.of(run).table())
    return DilocoPolicy(coordinator, policy, placement, home)


def policy_trainer(config: PolicyCoordinatorConfig, services: TrainerServices) -> Trainer:
    """Return a pool's trainer whose policy steps are made by DiLoCo workers. Raises as `start_policy`."""
    pool = services.client.pool_config()
    base = config.base or base_model(pool.model, pool.environments[0], config.seed)
    placement = Placement(device=config.engine.device, memory=config.memory)
    group = start_policy(config, services, base, placement)
    return Trainer(config, services, placement, group, lambda trainer: DilocoSteps(group, trainer, trainer.check))
