"""Which policy step of a pool is an outer state of its sites, and whom its manifest names: the keeper says that a
second time there, signed, and under a digest that the chain has."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from protocol.errors import MusterError
from protocol.sites.recorded import StepRecord
from protocol.sites.run import SitesRun
from storage.keys import object_key
from storage.weights.manifest import MAX_STORED_BYTES, Manifest, ManifestScope, unseal

log = logging.getLogger("muster.sites")


@dataclass(frozen=True)
class PolicyNaming:
    """Policy step `policy_step` is an outer state, made by `sites` (ascending as the manifest has them)."""

    policy_step: int
    sites: tuple[str, ...]


def naming_of(
    state: int, manifests: Sequence[bytes], read: Callable[[str, int], bytes], run: SitesRun
) -> PolicyNaming | None:
    """What the keeper's manifests say of outer state `state`; None where none of them names it: it may not be published
    yet. `manifests`: digests of all policy steps; `read`: of the bucket. What cannot be had, or is not the keeper's,
    says nothing."""
    for policy_step in range(state, len(manifests)):  # steps without files make no outer step, so never before
        found = _manifest(manifests[policy_step], read, run)
        made_by = None if found is None else found.made_by
        if made_by is None or made_by.run != run.digest:
            continue
        if made_by.outer_step == state:
            return PolicyNaming(policy_step, made_by.sites)
        if made_by.outer_step > state:
            return None
    return None


def naming_faults(record: StepRecord, naming: PolicyNaming) -> list[str]:
    """Where the record of an outer step has other sites than the manifest of the policy step that it led to."""
    counted = {one.site for one in record.contributions if one.weight}
    if counted == set(naming.sites):
        return []
    return [
        f"the manifest of policy step {naming.policy_step} names the sites {_listed(naming.sites)}, recorded are "
        f"{_listed(counted)}"
    ]


def _manifest(digest: bytes, read: Callable[[str, int], bytes], run: SitesRun) -> Manifest | None:
    scope = ManifestScope(run.pool_id, run.keeper)
    try:
        return unseal(read(object_key("manifests", digest), MAX_STORED_BYTES), digest, scope)
    except MusterError as error:
        log.info("manifest %s says nothing of sites: %s", digest.hex()[:16], error.what)
        return None


def _listed(sites: Sequence[str] | set[str]) -> str:
    return ", ".join(sorted(sites)) or "none"
