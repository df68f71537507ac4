"""What a run of several sites must be for them to train a pool's policy."""

from protocol.config import PoolConfig
from protocol.errors import ConfigError
from protocol.sites.dealing import MAX_ITEMS
from protocol.sites.run import SitesRun


def check_run_of(run: SitesRun, pool: PoolConfig) -> None:
    """Raise ConfigError unless sites can train the policy of `pool` in this run."""
    minibatches = pool.train.minibatches
    if run.work != "given":
        raise ConfigError(f"the sites of {run.name} train on data of their own", 'set `work` to "given"')
    if run.settings.inner_steps != minibatches:
        raise ConfigError(
            f"{run.name} has {run.settings.inner_steps} inner steps, its pool {minibatches} updates a policy step",
            f"set `settings.inner_steps` to {minibatches}, the pool's `train.minibatches`",
        )
    if run.pool_config != pool.digest.hex():
        raise ConfigError(
            f"{run.name} is for a pool whose document has the SHA-256 {run.pool_config}, not {pool.digest.hex()}",
            "give trainer and sites the pool's own document, and name its SHA-256 as `pool_config` of the run",
        )
    if not len(run.sites) <= pool.train.files_per_step <= pool.train.max_files <= MAX_ITEMS:
        raise ConfigError(
            f"{len(run.sites)} sites for {pool.train.files_per_step} to {pool.train.max_files} files a policy step",
            f"name at most one site a file, and at most {MAX_ITEMS} files a step (`train.files_per_step`, `filter`)",
        )
    if pool.train.lora is not None:
        raise ConfigError("sites train whole weights", "use a pool without `train.lora`")
