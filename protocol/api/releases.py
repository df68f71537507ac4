"""Which versions of muster a pool accepts, from which policy step on: said by its owner, ahead of time.

It decides who gets new leases, and nothing else: files that a node has made, votes and pay depend on no version.
"""

from typing import Annotated

from pydantic import Field, field_validator

from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.base import ResponseBody, Rows, Signature, StepNumber
from protocol.encoding import canonical_json
from protocol.errors import IntegrityError
from protocol.identity import PoolId
from protocol.signing import check_signer

DOMAIN, STRUCT = "muster-releases", "Releases(uint256 pool,string releases)"
Version = Annotated[str, Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z.+-]{0,31}$")]


class Release(ResponseBody):
    """From policy step `from_step` on, a pool accepts these versions, the newest last, and no others."""

    from_step: StepNumber
    versions: Annotated[Rows[Version], Field(min_length=1, max_length=16)]


class Releases(ResponseBody):
    """A pool's releases in order of their steps; `signature` is its owner's, of the EIP-712 STRUCT."""

    releases: Annotated[Rows[Release], Field(min_length=1, max_length=64)]
    signature: Signature

    @field_validator("releases")
    @classmethod
    def _in_order(cls, value: list[Release]) -> list[Release]:
        steps = [release.from_step for release in value]
        if steps != sorted(set(steps)):
            raise ValueError("steps must rise")
        return value

    @classmethod
    def signed(cls, account: LocalAccount, pool: PoolId, releases: list[Release]) -> "Releases":
        signature = signing.sign(account, _digest(pool, releases))
        return cls(releases=releases, signature="0x" + signature.hex())

    def check(self, pool: PoolId, owner: str) -> None:
        """Raise IntegrityError unless the pool's owner signed this for it."""
        check_signer(_digest(pool, self.releases), self.signature, owner, IntegrityError, f"the releases of {pool}")

    def at(self, step: int) -> Release | None:
        """Return what holds at a policy step; None before the first release, when every version may work."""
        return next((release for release in reversed(self.releases) if release.from_step <= step), None)

    def refusal(self, version: str, step: int) -> str:
        """Return why `version` gets no new work at a policy step, and what to do; empty if it does."""
        now = self.at(step)
        if now is None or version in now.versions:
            return ""
        return f"the pool accepts muster {' or '.join(now.versions)}, and this is {version}: muster upgrade"

    def notice(self, version: str, step: int) -> str:
        """Return the refusal, or at which step to come `version` will get no new work any more; empty if at none."""
        for later in [release for release in self.releases if release.from_step > step]:
            if version not in later.versions and not self.refusal(version, step):
                accepted = " or ".join(later.versions)
                return (
                    f"from policy step {later.from_step} on (now {step}) the pool accepts muster {accepted}, and this "
                    f"is {version}: muster upgrade before that"
                )
        return self.refusal(version, step)

    def wanted(self, step: int) -> str:
        """Return the newest version that is accepted at a policy step and at all known ones to come. Raises
        IntegrityError if there is none."""
        coming = [set(release.versions) for release in self.releases if release.from_step > step]
        now = self.at(step)
        both = [version for version in (now or self.releases[0]).versions if all(version in later for later in coming)]
        if not both:
            raise IntegrityError("no version is accepted both now and later", "upgrade at the step that changes it")
        return both[-1]


def _digest(pool: PoolId, releases: list[Release]) -> bytes:
    text = canonical_json([release.model_dump() for release in releases]).decode()
    return signing.digest(pool.domain(DOMAIN), STRUCT, pool.pool, text)
