"""A pool's terms file: exact amounts, clear refusals."""

from dataclasses import replace
from pathlib import Path

import pytest

from chain import deploy
from chain.contracts import Params
from chain.deployment import FOLDER, NetworkConfig
from cli.pool.config import load_terms
from localnet.plan import EPOCH_BLOCKS, pool_config, pool_terms
from protocol.errors import ConfigError
from tests.conftest import CHAIN_ID, Chain

GOOD = """
rate = "0.000001"
fee = "0.05"
jury_fee = "0.5"
min_stake = "100"
leverage = 4
committee = 3
jury = 5
appeal_jury = 0
commit_window = 60
reveal_window = 30
challenge_window = 120
appeal_window = 60
jury_commit_window = 60
jury_reveal_window = 60
receipt_window = 60
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "terms.toml"
    path.write_text(text)
    return path


def test_amounts_become_base_units_and_defaults_hold(tmp_path: Path) -> None:
    terms = load_terms(written(tmp_path, GOOD), b"\x11" * 32, 65536)
    assert (terms.rate, terms.fee, terms.juryFee, terms.minStake) == (1000, 50_000_000, 500_000_000, 100 * 10**9)
    assert (terms.jury, terms.appealJury, terms.challengeWindow) == (5, 0, 120)
    assert terms.auditRate == 65536
    assert terms.inviteOnly is False
    assert terms.configHash == b"\x11" * 32
    config = pool_config(7, 30)
    local = load_terms(Path("local"), config.digest, config.work.units)
    assert pool_terms(config) == replace(local, drawBlocks=64, group=0), "the demo pays and waits as a local pool does"
    assert local.drawBlocks <= 3 * NetworkConfig.load("local").suite.epoch_blocks
    assert pool_terms(config).drawBlocks <= 3 * EPOCH_BLOCKS
    for name in ("none.toml", "mainnet"):
        with pytest.raises(ConfigError, match=f"cannot read {name}"):
            load_terms(Path(name), bytes(32), 1)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"0.000001"', "0.000001", "`rate`"),
        ('"0.000001"', '"1e-6"', "`rate`"),
        ('"0.000001"', '"5"', "`rate`"),
        ("leverage = 4", "leverage = 70000", "`leverage`"),
        ("leverage = 4", "leverage = true", "`leverage`"),
        ("leverage = 4", "", "`leverage`"),
        ("leverage = 4", "leverage = 4\nlevrage = 5", "`levrage`"),
        ("leverage = 4", "leverage =", "is not TOML"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_terms(written(tmp_path, GOOD.replace(old, new)), bytes(32), 1)


@pytest.mark.parametrize("network", sorted(path.stem for path in FOLDER.glob("*.toml")))
def test_each_networks_contracts_take_the_terms_that_come_with_it(network: str, anvil: Chain, tmp_path: Path) -> None:
    config = NetworkConfig.load(network).model_copy(update={"chain_id": CHAIN_ID})
    client = anvil.client(anvil.account())
    params = Params(client, deploy.deploy(client, config, tmp_path))
    locked = params.check_terms(load_terms(Path(network), bytes(32), 1 << 16).as_tuple())
    assert 0 < locked <= config.suite.unbonding
    suite = config.suite
    assert suite.timelock_delay > 4 * suite.epoch_blocks * suite.block_seconds, "a seat can unbond before a proposal"


def test_windows_on_base_outlast_a_sequencer_that_halts_for_an_hour() -> None:
    terms = vars(load_terms(Path("base-sepolia"), bytes(32), 1))
    windows = {name: value for name, value in terms.items() if name.endswith("Window")}
    assert len(windows) == 7
    assert min(windows.values()) >= 3600, windows
