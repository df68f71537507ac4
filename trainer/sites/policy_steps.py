"""A pool's trainer as the keeper of several sites: each policy step with files is one outer step of theirs.

The log says which files a step trains on before any site hears of them, so whatever is killed, the step is made of the
same files; the trainer takes it over once it is settled.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from protocol.encoding import canonical_json, load_document, parse_json, sha256_hex
from protocol.errors import ConfigError, IntegrityError, UnreachableError
from protocol.files import write_folder
from protocol.signing import checked_address
from protocol.sites.outer import OuterState
from protocol.sites.run import SitesRun
from protocol.training import TrainConfig
from trainer.advantage import ADVANTAGES, select
from trainer.base_model import base_model
from trainer.batch import Group
from trainer.checkpoint import STATE
from trainer.config import TrainerConfig
from trainer.data import StepFiles
from trainer.model.policy import Policy
from trainer.model.sharding import Placement
from trainer.records import Records, file_id
from trainer.sites.exchange import SiteExchange
from trainer.sites.keeper import SitesKeeper
from trainer.sites.logbook import items_given
from trainer.sites.model_tensors import model_tensors, set_tensors
from trainer.sites.pool_run import check_run_of
from trainer.sites.settled import SettledStep, settled_step
from trainer.sites.status_file import StatusFile
from trainer.sites.timeouts import Timeouts
from trainer.step_metrics import StepMetrics
from trainer.train import Check, Trainer, TrainerServices

log = logging.getLogger("muster.trainer")
T = TypeVar("T")


class Until(Protocol):
    """Repeats an attempt until it returns something; None if asked to stop first (`trainer.waiting.Waiting.until`)."""

    def __call__(
        self, what: str, attempt: Callable[[], T | None], pause: float = 0.0, why: Callable[[], str] = str
    ) -> T | None: ...


class SitesPolicy:
    """The policy at policy step `step`, which is the sites' outer state `outer`: steps without files are no outer
    steps."""

    def __init__(self, policy: Policy, placement: Placement) -> None:
        self.policy, self.placement = policy, placement
        self.step = self.outer = 0


class SitesGroup:
    """Keeper and policy of a run of several sites, in the place of a trainer's own learners. A PolicyGroup."""

    def __init__(
        self,
        keeper: SitesKeeper,
        policy: Policy,
        placement: Placement,
        home: Path,
    ) -> None:
        self.keeper, self.learner = keeper, SitesPolicy(policy, placement)
        self._held = 0  # the outer state whose weights the policy has
        self.shown = StatusFile(home, keeper.status)
        self.shown.write()
        keeper.start()

    @property
    def given(self) -> Sequence[str]:
        """The files that the outer step after the policy's was given."""
        outer, book = self.learner.outer, self.keeper.book
        if book.boundary.step == outer:
            return book.items or ()
        return next((items_given(book.exchange, at) for at, one in book.chapters_back() if one.step == outer), ())

    def advance(self) -> SettledStep:
        """Take the outer step that was settled over into the policy."""
        keeper, policy = self.keeper, self.learner
        settled = settled_step(keeper.exchange, keeper.book, policy.outer, keeper.state.layout)
        policy.step, policy.outer = policy.step + 1, policy.outer + 1
        self._take_over()
        return settled

    def start_checkpoint(self, folder: Path, extra: dict[str, Any]) -> None:
        """The weights are those of the outer state, which keeper and log have."""
        said = {"run": self.keeper.run.digest, "step": self.learner.step, "outer": self.learner.outer, "extra": extra}
        sealed = canonical_json({"state": said, "sha256": sha256_hex(canonical_json(said))})

        def fill(aside: Path) -> None:
            (aside / STATE).write_bytes(sealed)

        write_folder(folder, fill)

    def finish_checkpoint(self) -> None:
        """It is complete once it was begun."""

    def load_checkpoint(self, folder: Path) -> dict[str, Any]:
        """Raises IntegrityError where it is damaged; ConfigError where it is another run's, or the log is elsewhere: an
        older one would not fit either, and to begin anew would be to train on the same files again."""
        try:
            sealed = parse_json((folder / STATE).read_bytes())
            said = sealed["state"]
            if sha256_hex(canonical_json(said)) != sealed["sha256"]:
                raise ValueError("its hash differs")
            if said.get("run") != self.keeper.run.digest:
                raise ConfigError(
                    f"{folder} is of another run of sites, or of a trainer without any",
                    "name that run's document in `sites`, or none; or begin a pool from its weights, in another home",
                )
            step, outer, extra = int(said["step"]), int(said["outer"]), dict(said["extra"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise IntegrityError(f"the checkpoint {folder} is damaged: {error}", "remove it") from None
        self._check(outer)
        self.learner.step, self.learner.outer = step, outer
        if outer == self.keeper.state.step:
            self._take_over()
        return extra

    def export(self, folder: Path) -> None:
        if self._held != self.learner.outer:
            raise IntegrityError(
                f"{folder} is gone, and the sites are one outer step further", "restore the trainer's home folder"
            )
        self.learner.policy.export(folder)

    def renew(self) -> None:
        """Raises ConfigError where the sites have gone on since."""
        self._check(0)
        self.learner.step = self.learner.outer = 0

    def end(self, code: int) -> None:
        self.keeper.finish()
        self.shown.write()

    def _check(self, outer: int) -> None:
        at = self.keeper.state.step
        if at not in (outer, outer + 1):
            raise ConfigError(
                f"the sites stand at outer step {at}, the checkpoint at {outer}", "restore the trainer's home folder"
            )

    def _take_over(self) -> None:
        set_tensors(self.learner.policy.model, self.keeper.state.weights)
        self._held = self.keeper.state.step


class SiteSteps:
    """Policy steps made by sites. A step that `check` refuses stops the run: it is in the log, and what the files did
    apart from one another is not known. A StepRunner."""

    def __init__(self, group: SitesGroup, train: TrainConfig, check: Check, records: Records, until: Until) -> None:
        self._group, self._train, self._check = group, train, check
        self._records, self._until = records, until
        self._settled: SettledStep | None = None
        self._making = False

    @property
    def bound(self) -> Sequence[str]:
        return self._group.given

    def train_step(self, batch: StepFiles) -> StepMetrics | None:
        """Give the files to the sites, and wait until their outer step is settled."""
        group, policy, self._settled = self._group, self._group.learner, None
        files, keeper = [file_id(sub) for sub in batch.files], group.keeper
        if not files:
            policy.step += 1
            return self._metrics([], None)

        def attempt() -> SettledStep | None:
            if keeper.state.step == policy.outer:
                keeper.give(files)
            if set(group.given) != set(files):
                raise IntegrityError(
                    f"outer step {policy.outer} was given files that the chain does not have any more",
                    "begin another pool from the newest policy step",
                )
            while keeper.state.step == policy.outer and keeper.turn():
                pass
            group.shown()
            return group.advance() if keeper.state.step > policy.outer else None

        self._making = True
        what = f"waiting for outer step {policy.outer} of the sites"
        self._settled = settled = self._until(what, attempt, why=keeper.waiting_for)
        self._making = False
        if settled is None:
            return None
        metrics = self._metrics(batch.groups, settled)
        self._check(metrics, self._records.metrics())
        return metrics

    def step_fields(self) -> dict[str, Any]:
        settled = self._settled
        if settled is None or not settled.counted:
            return {}
        made_by = {"run": self._group.keeper.run.digest, "outer_step": settled.step + 1, "sites": list(settled.counted)}
        return {"made_by": made_by | {"attempt": settled.attempt}}

    def file_fields(self, file: str) -> dict[str, Any]:
        return {} if self._settled is None else {"site": self._settled.site_of(file)}

    def poll(self) -> None:
        """Hear of sites that join and leave."""
        if self._making:
            return
        try:
            self._group.keeper.turn()
        except UnreachableError as error:
            log.info("the sites are not heard: %s", error.what)
        self._group.shown()

    def _metrics(self, groups: Sequence[Group], settled: SettledStep | None) -> StepMetrics:
        """Rewards as computed here, everything else as the sites say."""
        made = settled or SettledStep(0, 0, {}, {})
        selection = select(groups, ADVANTAGES[self._train.algorithm.advantage])
        rollouts = [rollout for group in groups for rollout in group]
        count = max(1, len(rollouts))
        known = any("mismatch" in one.figures for one in made.counted.values())
        return StepMetrics(
            step=self._group.learner.step,
            loss=made.mean("loss"),
            reward_mean=sum(one.reward for one in rollouts) / count,
            task_reward_mean=sum(one.task_reward for one in rollouts) / count,
            entropy=made.mean("entropy"),
            grad_norm=made.largest("grad_norm"),
            clip_low=made.mean("clip_low"),
            clip_high=made.mean("clip_high"),
            kl=made.mean("kl"),
            groups_used=selection.used,
            groups_dropped=selection.dropped,
            rollouts=len(rollouts),
            tokens=int(made.total("tokens")),
            output_length_mean=sum(len(one.output) for one in rollouts) / count,
            learning_rate=made.largest("learning_rate"),
            mismatch=made.mean("mismatch") if known else None,
            mismatches=(),
            trained_tokens=int(made.total("trained_tokens")),
            flops=made.total("flops"),
            seconds=0.0,
        )


def keep_sites(config: TrainerConfig, outside: TrainerServices, base: Path, placement: Placement) -> SitesGroup:
    """The keeper's part of a trainer whose configuration names `sites`. Raises ConfigError where the run's document
    does not fit the pool, MusterError."""
    assert config.sites is not None
    run, pool = load_document(config.sites, SitesRun), outside.client.pool_config()
    check_run_of(run, pool)
    if run.keeper != outside.account.address:
        raise ConfigError(f"the keeper of {run.name} is {run.keeper}", "name the pool's owner in the run's document")
    ours = outside.client.pool_id
    if run.pool_id != replace(ours, pools=checked_address(ours.pools)):
        raise ConfigError(f"{run.name} is for {run.pool_id}", f"name {ours} in the run's document")
    if placement.ranks.world > 1:
        raise ConfigError("the keeper of several sites trains nothing itself", "set `parallel.ranks` to 1")
    home = outside.client.home / "sites"
    policy = Policy(base, pool.model.dtype, placement)
    first = OuterState.start(model_tensors(policy.model))
    keeper = SitesKeeper(SiteExchange(outside.bucket, run), outside.account, first, home)
    log.info("time-outs of %s:\n%s", run.name, Timeouts.of_run(run).table())
    return SitesGroup(keeper, policy, placement, home)


def sites_trainer(config: TrainerConfig, services: TrainerServices, placement: Placement) -> Trainer:
    """Return the trainer of a pool whose policy steps are made by sites."""
    pool = services.client.pool_config()
    base = config.base or base_model(pool.model, pool.environments[0], config.seed)
    group = keep_sites(config, services, base, placement)

    def steps(trainer: Trainer) -> SiteSteps:
        return SiteSteps(group, pool.train, trainer.check, trainer.records, trainer.wait_until)

    return Trainer(config, services, placement, group, steps)
