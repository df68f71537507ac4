"""`muster node dry-run`: real files of a tiny model, judged by the real pipeline, before any stake."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.diagnose.checks import cached_weights
from cli.run.dry_run import dry_run_text, dry_run_view, engines, judge_file, make_file
from engines.base import EngineInfo
from protocol.encoding import parse_tokens
from protocol.errors import ConfigError, MusterError
from protocol.evidence.figures import BETS
from protocol.evidence.null_model import Bet, EvidenceConfig, PairNullModel, StepNullModels
from protocol.identity import PoolId
from protocol.seeds import AUDIT_EVERYTHING
from protocol.verdict import Code
from runtime.entry import alone
from runtime.process import EngineConfig
from storage.keys import object_key
from storage.weights.manifest import ManifestScope
from tests.cli.muster import Muster
from tests.cli.pool_files import create_pool
from tests.conftest import TOKEN, Deployed
from tests.storage.mirror import bucket
from tests.storage.weights.folders import ShardStore, publish
from tests.validator import tiny
from tests.validator.world import BY_NAME, context
from validator.judging.checks import CheckContext, verdict_on
from validator.judging.measurements import evidence

ENGINE = EngineConfig(batch=8)
MONEY: Any = SimpleNamespace(rate=1000, minStake=200 * TOKEN, challengeWindow=120)


def dry_run_of(weights: Path | None = None) -> tuple[dict[str, Any], str]:
    """A file made from `weights` (the pool's if None), judged with the pool's weights."""
    work, pool_weights = tiny.work_of(), tiny.model_folder()
    made = make_file(tiny.CONFIG, ENGINE, weights or pool_weights, work)
    verdict, took = judge_file(tiny.CONFIG, ENGINE, pool_weights, work, made, 5, AUDIT_EVERYTHING)
    view = dry_run_view(work, made, verdict, took, MONEY, tiny.CONFIG)
    return view, dry_run_text(view)


def test_an_honest_file_is_accepted_with_every_figure_and_its_pay() -> None:
    view, text = dry_run_of()
    assert (view["verdict"], view["accepted"]) == ("accept", True)
    figures = {f"{one['check']} {f['figure']}": f for one in view["findings"] for f in one["figures"]}
    assert {"toploc mantissa_mean", "sampling gap", "logprobs mean", "distribution surprise"} <= set(figures)
    assert all(figure["share"] < 1 for figure in figures.values())
    (forced_end,) = (figure for name, figure in figures.items() if name.startswith("eos "))
    assert forced_end["limit"] == tiny.CONFIG.checks.eos_probability_min
    assert forced_end["share"] == pytest.approx(forced_end["limit"] / forced_end["measured"]), "the other way round"
    assert view["pay"] == view["units"] * MONEY.rate
    assert view["pay_per_hour"] == view["pay"] * 3_600_000 // round(view["made_seconds"] * 1000)
    assert "verdict: accept: every check passed" in text
    assert "would have been paid: 0.0" in text


def test_altered_weights_are_refused_and_the_check_is_named() -> None:
    view, text = dry_run_of(weights=tiny.model_folder(seed=1))
    assert view["verdict"] == "reject: weights"
    assert "logprobs: " in text


def test_a_node_hears_before_it_joins_that_its_history_would_accuse_it() -> None:
    """One file is enough where every problem pays; a calibrated node's file pays less than nothing."""
    bets = {"gaps": (Bet(tilt=1, rate=0.1, most=2),) * BETS}
    model = PairNullModel(worker="hf:float32:cpu", verifier="hf:float32:cpu", bets=bets)
    base, own = context(), EngineInfo("hf", "1", "float32", "cpu")
    models = StepNullModels(audit_rate=base.facts.audit_rate, pairs=(model,))
    wild = replace(base, measurements=tuple(replace(row, gaps=(9.0,) * len(row.gaps)) for row in base.measured))

    def said(file: CheckContext, known: StepNullModels | None) -> str:
        findings = [BY_NAME["header"](file), evidence(file, own, known)]
        verdict = verdict_on(file.facts, b"", Code.ACCEPT, vars(own), (), findings)
        pool = tiny.CONFIG.model_copy(update={"evidence": EvidenceConfig(engines=("hf:float32:cpu",))})
        made: Any = SimpleNamespace(commitment=file.facts.commitment, data=b"", engine=own, seconds=1.0)
        return str(dry_run_view(file.facts.work, made, verdict, 1.0, MONEY, pool)["evidence"])

    assert said(wild, models).startswith("WOULD BE ACCUSED after 3 such files, above all by gaps")
    assert said(base, models) == "nothing shown: files like this one never accuse a node"
    assert said(base, None).startswith("unknown: the policy step has no null model for files of hf:float32:cpu")


def test_a_process_that_fails_or_dies_says_so() -> None:
    with pytest.raises(ConfigError, match="is not a number of tokens"):
        alone("a try", 60, parse_tokens, "many")
    with pytest.raises(MusterError, match=r"a try ended early \(exit code 9\)"):
        alone("a try", 60, os._exit, 9)
    with pytest.raises(MusterError, match="took more than 1 s"):
        alone("a try", 1, time.sleep, 300)


def test_engines_are_the_pools_dtype_unless_another_is_written() -> None:
    config = tiny.CONFIG.model_copy(update={"model": tiny.CONFIG.model.model_copy(update={"dtype": "bfloat16"})})
    made, judged = engines(config, None, "transformers")
    assert (made.name, made.dtype, made.threads) == ("transformers", "bfloat16", 1)
    assert (judged.name, judged.dtype, judged.device) == ("transformers", "bfloat16", "cpu")
    made, judged = engines(config, None, "vllm:float32:cuda")
    assert (made.dtype, judged.dtype, judged.device) == ("float32", "bfloat16", "cuda")
    with pytest.raises(ConfigError, match="--worker 'abacus'"):
        engines(config, None, "abacus")


@pytest.fixture
def served() -> Iterator[tuple[ShardStore, str]]:
    """(objects, the URL of a service that serves them as a pool's does)."""
    objects = ShardStore()
    with bucket(objects) as url:
        yield objects, url


def test_the_command_dry_runs_with_the_pools_own_weights_and_without_a_key(
    muster: Muster, shared_suite: Deployed, served: tuple[ShardStore, str], tmp_path: Path
) -> None:
    objects, url = served
    owner = shared_suite.chain.account()
    suite = shared_suite.suite(owner)
    number = create_pool(suite, tmp_path, tiny.CONFIG.digest)
    order = ("node", "dry-run", "--pool", f"{number}@{url}", "--worker", "transformers")
    assert "has published no weights yet" in muster.refused(*order)
    objects[object_key("configs", tiny.CONFIG.digest)] = tiny.CONFIG.canonical()
    scope = ManifestScope(PoolId(shared_suite.chain.chain_id, suite.pools.address, number), str(owner.address))
    manifest = publish(tiny.model_folder(), objects, scope, 0, None, owner)
    suite.pools.publish_step(number, 0, manifest.digest).send()
    shared_suite.chain.mine(5)
    view = muster.ok(*order, "--json").json
    assert (view["verdict"], view["pool"], view["step"]) == ("accept", number, 0)
    assert view["pay"] == view["units"] * TOKEN // 1000
    done = muster.run(*order, "--worker", "transformers:bfloat16", "--json")
    view, text = done.json, dry_run_text(done.json)
    assert (done.code, view["verdict"], view["pay"]) == (1, "reject: weights", 0)
    (toploc,) = [finding for finding in view["findings"] if finding["check"] == "toploc"]
    assert any(figure["share"] >= 1 for figure in toploc["figures"])
    for words in ("toploc: ", "costs the stake, 200 or more", "compute in the pool's dtype"):
        assert words in text
    assert f"there is no pool {number + 900}" in muster.refused(*order, "--pool", f"{number + 900}@{url}")
    fetch, cache = ("weights", "fetch", "--pool", f"{number}@{url}"), tmp_path / "cache"
    got = muster.ok(*fetch, "--cache", cache, "--json").json
    assert (got["step"], got["manifest"]) == (0, manifest.digest.hex())
    assert cached_weights(cache).state == "ok"
    assert "has no policy step 3; steps are 0 to 0" in muster.refused(*fetch, "3", "--cache", cache)
