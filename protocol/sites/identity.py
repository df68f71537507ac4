"""What identifies a contribution: the run, the outer step, the weights that it starts from, and the site."""

from dataclasses import dataclass

from protocol.identity import PoolId

DOMAIN = "muster-sites"
"""EIP-712 domain of what sites sign."""


@dataclass(frozen=True, slots=True)
class ContributionPlace:
    """`config`: SHA-256 of the run's SitesConfig in hex. `base`: hex digest of the OuterState at `step`, from which the
    site's inner steps started. `site`: its address (EIP-55)."""

    pool: PoolId
    config: str
    step: int
    base: str
    site: str

    @property
    def words(self) -> tuple[int | str, ...]:
        pool = self.pool
        return pool.chain_id, pool.pools, pool.pool, self.config, self.step, self.base, self.site
