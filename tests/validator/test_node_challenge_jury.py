"""A node challenge on a real chain, judged and executed by validators' processes: a cheat whose files pass one by one
loses its stake, and who accuses an honest node loses the bond."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chain.indexer.records import ChallengeOutcome, Submission
from chain.suite import Suite
from protocol.accounts import LocalAccount
from protocol.errors import UnreachableError
from protocol.evidence.figures import BETS, Sum, finding
from protocol.evidence.null_model import Bet, EvidenceConfig, PairNullModel
from protocol.seeds import audit_sample
from protocol.verdict import Code, Finding, Verdict
from tests.chain.game import work
from tests.conftest import TOKEN, Deployed
from tests.validator import tiny
from tests.validator.daemon_world import ValidatorWorld, turns, validator_world
from validator.judging.checks import SubmissionFacts, verdict_on

RATE = 1 << 15
ENGINES = {"name": "transformers", "version": "5.1", "dtype": "float32", "device": "cpu"}
HEADER = Finding("header", Code.ACCEPT, {"engine": "vllm 0.32.0", "dtype": "float32", "device": "cpu"})
LAW = PairNullModel(
    worker="vllm:float32:cpu",
    verifier="transformers:float32:cpu",
    bets={"unexplained": (Bet(tilt=1.0, rate=0.01, most=3.0),) * BETS},
)
CONFIG = tiny.CONFIG.model_copy(update={"evidence": EvidenceConfig(engines=("vllm:float32:cpu",))})
EVIDENCE = bytes(32)
# Votes end when all are in; a crowded machine takes its time.
WINDOWS = dict.fromkeys(("commitWindow", "revealWindow", "juryCommitWindow", "juryRevealWindow"), 240)
WINDOW = 600  # seconds for commits: the answers' time is a tenth of it, enough for a slow machine


class Figures:
    """A judge that accepts every file the first time; those of `cheats` have misses in every problem, and are refused
    when they are measured again, by other rows. `gone`: it cannot judge any more, as where nobody has the weights of an
    old step."""

    def __init__(self) -> None:
        self.cheats: set[str] = set()
        self.gone = False
        self.seeds: dict[int, set[bytes]] = {}

    def __call__(self, facts: SubmissionFacts, data: bytes | None, *_: object) -> Verdict:
        if self.gone:
            raise UnreachableError("nobody has the weights of this step", "")
        self.seeds.setdefault(facts.sequence, set()).add(facts.lane_seed)
        cheats = facts.work.id.node in self.cheats
        figures = {"unexplained": [Sum(8.0 * cheats, 20.0)] * 2}
        rows = audit_sample(facts.lane_seed, facts.sequence, facts.commitment.rows, facts.audit_rate)
        again = len(self.seeds[facts.sequence]) > 1
        code = Code.UNAVAILABLE if not data else Code.REJECT_SAMPLING if cheats and again else Code.ACCEPT
        findings = (HEADER, finding(figures, LAW.honest(), LAW.nats(figures)))
        return verdict_on(facts, CONFIG.digest, code, ENGINES, rows, findings)


@pytest.fixture
def world(deployed: Deployed, tmp_path: Path) -> Iterator[ValidatorWorld]:
    with validator_world(deployed, tmp_path, auditRate=RATE, **WINDOWS) as made:
        made.config, made.judge = CONFIG, Figures()  # type: ignore[assignment]
        yield made


def submitted(world: ValidatorWorld, count: int) -> tuple[LocalAccount, LocalAccount, list[int]]:
    """(operator, node, places): so many files of a new node, in one lane."""
    game = world.game
    operator, node = game.node()
    step = game.publish()
    files = game.submit_lane(step, *((node, work(f"{node.address} {number}")) for number in range(count)))
    return operator, node, [file.sequence for file in files]


def accepted(world: ValidatorWorld, places: list[int]) -> list[Submission]:
    """The validators judge them; then their windows are over."""
    game, validator = world.game, world.running[0][0]

    def files() -> list[Submission]:
        return [game.state.submissions[game.pool, place] for place in places]

    turns(validator, lambda: all(file.code == Code.ACCEPT for file in files()))
    game.deployed.chain.later(61)
    return files()


def accuse(world: ValidatorWorld, files: list[Submission]) -> tuple[Suite, int, int]:
    """(accuser, its balance before, the challenge)."""
    suite = world.game.deployed.suite(world.game.deployed.rich())
    before = suite.token.balance_of(suite.client.address)
    number = suite.node_challenges.open(files, EVIDENCE).send()
    world.game.mine_to(world.game.state.trials[world.game.state.challenges[number].trial].seed_block + 1)
    return suite, before, number


def concluded(world: ValidatorWorld, number: int) -> ChallengeOutcome:
    """Have the validators end a challenge; nobody appeals."""
    game, validator = world.game, world.running[0][0]

    def over() -> bool:
        return game.state.challenges[number].outcome is not ChallengeOutcome.OPEN

    turns(validator, lambda: over() or game.state.trials[game.state.challenges[number].trial].appeal_until > 0)
    if not over():
        game.deployed.chain.later(game.state.pools[game.pool].terms.appealWindow + 1)
    turns(validator, over)
    return game.state.challenges[number].outcome


def test_validators_judge_and_execute_a_challenge_and_a_false_one_costs_the_accuser(world: ValidatorWorld) -> None:
    game, judge = world.game, world.judge
    _, cheat, places = submitted(world, 4)
    judge.cheats.add(cheat.address)  # type: ignore[attr-defined]
    world.start()
    files = accepted(world, places)
    suite, before, number = accuse(world, files)
    assert concluded(world, number) is ChallengeOutcome.UPHELD
    challenge, trial = game.state.challenges[number], game.state.trials[game.state.challenges[number].trial]
    assert (challenge.code, challenge.back, challenge.slashed) == (Code.REJECT_SAMPLING, challenge.bond, 100 * TOKEN)
    assert {code for code, _ in trial.reveals.values()} == {int(Code.REJECT_SAMPLING)}
    # Every file was measured again, by the rows that the jury's own draw named.
    assert all(trial.seed in judge.seeds[file.sequence] and len(judge.seeds[file.sequence]) == 2 for file in files)  # type: ignore[attr-defined]
    assert game.state.accounts[game.pool, cheat.address].ejected
    assert suite.token.balance_of(suite.client.address) > before

    operator, _, places = submitted(world, 2)
    files = accepted(world, places)
    had = game.suite.token.balance_of(operator.address)
    suite, before, number = accuse(world, files)
    assert concluded(world, number) is ChallengeOutcome.REFUTED
    assert suite.token.balance_of(suite.client.address) == before - game.state.challenges[number].bond
    assert game.suite.token.balance_of(operator.address) > had
    turns(world.running[0][0], lambda: all(len(one.closed) == 5 for one in game.state.trials.values()))


def test_files_that_nobody_can_judge_any_more_cost_the_accuser_and_no_juror(deployed: Deployed, tmp_path: Path) -> None:
    """In a pool that its seats chose by its number too: else whoever names old files has jurors fined for nothing."""
    with validator_world(deployed, tmp_path, auditRate=RATE, **(WINDOWS | {"juryCommitWindow": WINDOW})) as world:
        world.config, world.judge = CONFIG, Figures()  # type: ignore[assignment]
        _, cheat, places = submitted(world, 8)
        world.judge.cheats.add(cheat.address)  # type: ignore[attr-defined]
        world.start()
        files, game = accepted(world, places), world.game
        world.judge.gone = True  # type: ignore[attr-defined]
        suite, before, number = accuse(world, files)
        for _ in range(2):
            trial = game.state.trials[game.state.challenges[number].trial]
            game.draw_jury(trial.trial)
            until = game.state.trials[trial.trial].commit_until
            game.deployed.chain.later(until - suite.client.now() - WINDOW // 11)
            turns(world.running[0][0], lambda tried=trial.trial: game.state.trials[tried].all_revealed)
            turns(
                world.running[0][0], lambda tried=trial.trial: not game.state.trials[tried].proceeds(suite.client.now())
            )
        assert concluded(world, number) is ChallengeOutcome.DISMISSED
        juries = [game.state.trials[trial] for trial in game.state.challenges[number].trials]
        assert {code for jury in juries for code, _ in jury.reveals.values()} == {int(Code.UNAVAILABLE)}
        attempts = 10 * (game.state.pools[game.pool].terms.juryFee // 4)
        assert suite.token.balance_of(suite.client.address) == before - attempts
        turns(world.running[0][0], lambda: all(len(one.closed) == 5 for one in game.state.trials.values()))
        assert sum(seat.penalised for seat in game.state.seats.values()) == 0
        assert not game.state.accounts[game.pool, cheat.address].ejected
