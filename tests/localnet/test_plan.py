"""What a run is made of, and where it keeps things."""

import json
import socket
from pathlib import Path

import pytest

from chain.seat_classes import needed
from localnet.plan import Options, make_plan, new_run_folder
from localnet.pool import pool_config, pool_terms
from protocol.errors import ConfigError


def test_the_latest_run_is_found_by_its_link(tmp_path: Path) -> None:
    first, second = new_run_folder(tmp_path, 7), new_run_folder(tmp_path, 7)
    assert first != second
    assert (tmp_path / "latest").resolve() == second
    assert "seed7" in second.name


def test_a_taken_port_is_named_before_a_folder_is_made(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} for s3 is in use.*--s3-port"):
            make_plan(Options(7, 2, tmp_path, s3_port=port))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("installed", [True, False])
def test_honest_validators_compute_differently_and_vllm_is_used_where_it_is(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localnet.plan.vllm_installed", lambda: installed)
    plan = make_plan(Options(7, 2, tmp_path))
    honest = {(one.engine, one.batch) for one in plan.validators if not one.attack}
    assert len(honest) == 2
    assert ("vllm" in {node.engine for node in plan.nodes}) == installed
    (lazy,) = [one for one in plan.validators if one.attack == "lazy"]
    others = sum(one.seats for one in plan.validators if one is not lazy)
    assert (others, lazy.seats) == (needed(pool_terms(pool_config(7, 2))), 1)
    assert [node.name for node in plan.nodes if node.cheats] == ["mallory"]
    assert len({plan.chain_port, plan.s3_port, plan.http_port}) == 3
    assert json.loads(plan.write_config("trainer", {"home": plan.home("trainer")}).read_text()) == {
        "home": str(tmp_path / "latest" / "homes" / "trainer").replace("latest", plan.root.name)
    }
