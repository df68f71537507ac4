"""A recorded outer step checked by anybody who may read chain and bucket: `muster site verify STEP`."""

from dataclasses import dataclass
from pathlib import Path

from chain.client import ChainClient
from chain.contracts.site_runs import RecordedStep, RunView, SiteRuns
from chain.deployment import Deployment
from protocol.documents import load_document
from protocol.errors import ConfigError
from protocol.sites.outer import OuterState
from protocol.sites.run import SitesRun
from storage.bucket import Bucket
from trainer.sites.config import KeeperConfig, RunMemberConfig, SiteConfig
from trainer.sites.exchange import SiteExchange
from trainer.sites.first_state import first_state
from trainer.sites.recomputed import StepClaim, faults_of
from trainer.sites.run_chain import check_place, check_run


@dataclass(frozen=True)
class VerifiedStep:
    """`faults`: what of the record does not follow from log and bucket, in words."""

    run: int
    recorded: RecordedStep
    faults: list[str]


def member_config(path: Path) -> RunMemberConfig:
    """A site's or keeper's configuration. Raises ConfigError."""
    try:
        return load_document(path, SiteConfig)
    except ConfigError:
        return load_document(path, KeeperConfig)


def verified(config: RunMemberConfig, step: int) -> VerifiedStep:
    """Make the step again. Raises ConfigError where it is not recorded, MissingObjectError where something that was
    published is gone, UnreachableError."""
    if config.chain is None:
        raise ConfigError("this run is on no chain that the configuration names", "name it as `chain`")
    run, deployment = load_document(config.run, SitesRun), Deployment.load(config.chain.deployment)
    check_place(run, deployment)
    client = ChainClient(config.chain.rpc, deployment.chain_id)
    deployment.check_genesis(client)
    runs, number = SiteRuns(client, deployment), config.chain.run
    view = runs.run_of(number)
    check_run(view, number, run)
    recorded = runs.recorded(number, step)
    if recorded is None:
        raise ConfigError(f"outer step {step} is not recorded", f"{view.steps} are: muster site show {number}")
    claim, first = claim_of(runs, number, view, recorded), first_state(config.model)
    check_first(view, first)
    return VerifiedStep(number, recorded, faults_of(claim, SiteExchange(Bucket(config.s3), run), first))


def claim_of(runs: SiteRuns, number: int, view: RunView, recorded: RecordedStep) -> StepClaim:
    """What the chain says of a step, with the state that it says the step before led to. Raises UnreachableError."""
    step, base = recorded.record.step, view.start.hex()
    if step > 0:
        before = runs.recorded(number, step - 1)
        assert before is not None, "steps are recorded in order"
        base = before.record.state
    return StepClaim(base, recorded.record, recorded.number, recorded.previous, recorded.body)


def check_first(view: RunView, first: OuterState) -> None:
    """Raises ConfigError where `first` is another model's than the run's, by which every step would look wrong."""
    if view.start != first.digest:
        raise ConfigError(
            f"the run begins from state {view.start.hex()[:16]}…, this model is {first.digest.hex()[:16]}…",
            "name the run's own base model",
        )
