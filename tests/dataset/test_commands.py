"""`muster dataset verify` as people run it: what it prints, and its exit codes."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from tests.dataset.world import SoldWork, forged


@pytest.fixture
def options(sold: SoldWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sold.game.deployed.deployment.save(tmp_path / "deployment.json")
    return ["--deployment", str(tmp_path / "deployment.json"), "--rpc", sold.game.deployed.chain.url]


def test_exit_codes_say_whether_rows_are_true(exported: Path, options: list[str], tmp_path: Path) -> None:
    runner = CliRunner()
    done = runner.invoke(app, ["dataset", "verify", str(exported), *options])
    assert done.exit_code == 0, done.output
    assert "18 rows checked" in done.output
    assert done.output.endswith("every row is on chain\n")
    bad = forged(exported, tmp_path / "forged", lambda rows: rows[:-1])
    done = runner.invoke(app, ["dataset", "verify", str(bad), *options])
    assert done.exit_code == 1
    assert "WRONG  row 5 of submission 17 is missing" in done.output
    done = runner.invoke(app, ["dataset", "verify", str(exported), "--signer", "0x" + "11" * 20, *options])
    assert done.exit_code == 1
    assert "signed by nobody" in done.output
