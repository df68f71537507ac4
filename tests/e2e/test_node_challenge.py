"""A node challenge on the whole local network: every file of a cheat passes, together they convict it, and who accuses
an honest node so loses the bond. Two validators' builds and a third that neither used agree on both challenges."""

from pathlib import Path

import pytest

from chain.indexer.records import ChallengeOutcome, Status, Submission
from chain.indexer.state import State
from engines.torch_process import arithmetic_of
from localnet.plan import POOL, NodeSpec, pool_config
from protocol.config import BF16_CHECKS, DataConfig, PoolConfig
from protocol.encoding import TOKEN
from protocol.evidence.null_model import EvidenceConfig
from tests.e2e.networks import FAST, JUDGES, CaseDemo, asked, network_plan
from tests.validator import tiny

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(1800)]
ENGINES = tuple(f"{name}:float32:{arithmetic_of('cpu')}" for name in ("vllm", "transformers"))
CHEAT = "weights-noise=0.001"
"""In float32 honest mantissas differ by 0.0003 a chunk, those of this cheat by 0.2 on this model."""
ROLLOUTS = 8 * 128


def lenient_config() -> PoolConfig:
    """A data pool in float32 whose checks let pass what bfloat16's must; its trainer learns the null models, which do
    not. Its model is random: what it answers does not matter here."""
    model = tiny.CONFIG.model.model_copy(update={"source": str(tiny.model_folder())})
    return pool_config(1, 1).model_copy(
        update={
            "model": model,
            "data": DataConfig(rollouts=ROLLOUTS),
            "checks": BF16_CHECKS,
            "evidence": EvidenceConfig(engines=ENGINES),
        }
    )


def test_a_cheat_whose_files_pass_is_convicted_and_a_false_accuser_pays(tmp_path: Path) -> None:
    nodes = (NodeSpec("ada", FAST), NodeSpec("mallory", "transformers", CHEAT))
    plan = network_plan(tmp_path, 1, nodes, JUDGES, worker_batch=128, patience=3)
    demo = CaseDemo(plan, lenient_config())
    mallory, ada = (demo.ring[f"node-{name}"].address for name in ("mallory", "ada"))
    with demo.up():
        monitor = demo._new_monitor()
        now = demo.onboarding.client("deployer").now

        def final(state: State, node: str) -> list[Submission]:
            return [one for one in state.submissions_of(POOL, node) if one.is_final(now())]

        state = demo.wait(monitor, lambda state: len(final(state, mallory)) >= 2 and len(final(state, ada)) >= 1)
        assert {one.status for one in final(state, mallory)} == {Status.ACCEPTED}, "every file passes by itself"
        accuser = demo.ring["deployer"]
        token = demo.onboarding.suite("deployer").token
        token.mint(accuser.address, 10 * TOKEN).send()
        acting = ("--keystore", accuser.keystore, "--password-file", accuser.password_file, "--yes")

        had = token.balance_of(accuser.address)
        upheld, refuted = (
            asked(plan, "challenge", "open", "--node", node, *acting)["challenge"] for node in (mallory, ada)
        )

        def concluded(state: State) -> bool:
            return all(one.outcome is not ChallengeOutcome.OPEN for one in state.challenges.values())

        state = demo.wait(monitor, concluded)
        convicted, acquitted = state.challenges[upheld], state.challenges[refuted]
        assert (convicted.outcome, acquitted.outcome) == (ChallengeOutcome.DIFFERENT, ChallengeOutcome.REFUTED)
        assert state.accounts[POOL, mallory].ejected
        assert not state.accounts[POOL, ada].ejected
        assert (convicted.slashed, convicted.back, acquitted.back) == (0, convicted.bond, 0)
        assert not [one for one in state.slashes if one.kind == "node"]
        assert token.balance_of(accuser.address) == had - acquitted.bond

        check_recomputed(demo, upheld, refuted)
        check_alone(demo, upheld)


def check_recomputed(demo: CaseDemo, upheld: int, refuted: int) -> None:
    """A build that no validator had comes to the same as every juror of either build, and so do the documents."""
    where = ("--pool", demo.plan.http_url, "--cache", demo.plan.root / "verify")
    for number, engine in ((upheld, "transformers"), (refuted, FAST)):
        found = asked(demo.plan, "verify", "challenge", number, *where, "--engine", engine, "--batch", "5")
        assert found["follows"], found["faults"]
        assert len(found["votes"]) == 5
        assert all(vote["agrees"] for vote in found["votes"]), found["votes"]
        assert {vote["document"]["code"] for vote in found["votes"]} == {found["ours"]["code"]}
        assert found["ours"]["accused"] is (number == upheld)
        built = {name.split()[0] for vote in found["votes"] for name in vote["document"]["engines"]}
        assert built <= {"transformers", FAST}
        published = asked(demo.plan, "verify", "challenge", number, *where, "--published")
        assert (published["follows"], published["ours"]) == (True, None)


def check_alone(demo: CaseDemo, upheld: int) -> None:
    """The node's whole life says so too, and no file of it alone was refused."""
    plan, node = demo.plan, demo.ring["node-mallory"].address
    where = "--pool", plan.http_url, "--cache", plan.root / "verify"
    assert asked(plan, "verify", "node", node, "--published", *where, code=1)["accused"]
    shown = asked(plan, "challenge", "show", upheld)
    assert set(shown["votes"].values()) == {"different"}
