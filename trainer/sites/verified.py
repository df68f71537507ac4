"""A recorded outer step checked by anybody who may read chain and bucket: `muster site verify STEP`."""

import logging
from dataclasses import dataclass

from chain.client import ChainClient
from chain.contracts.pools import Pools
from chain.contracts.site_runs import RecordedStep, RunView, SiteRuns
from chain.deployment import Deployment
from chain.published_steps import published_manifests
from protocol.documents import load_document
from protocol.errors import ConfigError, MusterError, UnreachableError
from protocol.sites.run import SitesRun
from storage.bucket import Bucket
from trainer.sites.config import RunMemberConfig
from trainer.sites.exchange import SiteExchange
from trainer.sites.first_state import first_state
from trainer.sites.policy_naming import PolicyNaming, naming_faults, naming_of
from trainer.sites.recomputed import StepClaim, faults_of
from trainer.sites.run_chain import check_place, check_run, check_start

log = logging.getLogger("muster.sites")


@dataclass(frozen=True)
class VerifiedStep:
    """`faults`: what of the record does not follow from log and bucket, or is otherwise in the manifest of the policy
    step that it led to, in words. `policy_step`: that one; None where there is none, or none that can be read."""

    run: int
    recorded: RecordedStep
    faults: list[str]
    policy_step: int | None = None


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
    check_start(view, first.digest)
    bucket = Bucket(config.s3)
    faults, naming = faults_of(claim, SiteExchange(bucket, run), first), None
    if run.work == "given" and run.pool:
        naming = _naming(Pools(client, deployment), bucket, run, step + 1)
    if naming is not None:
        faults += naming_faults(recorded.record, naming)
    return VerifiedStep(number, recorded, faults, None if naming is None else naming.policy_step)


def _naming(pools: Pools, bucket: Bucket, run: SitesRun, state: int) -> PolicyNaming | None:
    """What the pool's manifests say; nothing where they cannot be had: the step can be judged without."""
    try:
        return naming_of(state, published_manifests(pools, run.pool), bucket.get, run)
    except MusterError as error:
        log.warning("the manifests of pool %d are not compared: %s", run.pool, error)
        return None


def claim_of(runs: SiteRuns, number: int, view: RunView, recorded: RecordedStep) -> StepClaim:
    """What the chain says of a step, with the state that it says the step before led to. Raises UnreachableError."""
    step, base = recorded.record.step, view.start.hex()
    if step > 0:
        before = runs.recorded(number, step - 1)
        if before is None:  # steps are recorded in order: another endpoint answered, or the chain was reorganised
            raise UnreachableError(f"the chain's endpoint lacks the record of outer step {step - 1}", "try again")
        base = before.record.state
    return StepClaim(base, recorded.record, recorded.number, recorded.previous, recorded.body)
