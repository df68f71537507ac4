"""What a run of several sites must be for them to train a pool's policy."""

from protocol.config import PoolConfig
from protocol.errors import ConfigError
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
    if pool.train.lora is not None:
        raise ConfigError("sites train whole weights", "use a pool without `train.lora`")
