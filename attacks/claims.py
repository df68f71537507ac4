"""False claims about a file: other work than the assigned one, inflated rewards, stolen work, forged proofs."""

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace

from attacks.base import Attack, Cheat, alters, attack, other_work
from engines.base import Completion
from protocol.rollout_file.rows import Rollout
from protocol.seeds import Work, all_targets, assignments, noise_key
from protocol.signing import checked_address
from protocol.toploc.codec import PRIME, PROOF_BYTES
from worker.produce import Planned, Produced, Producer

Plan = list[Planned]
Rows = list[Rollout]
CURRICULUM_ATTACKS: dict[str, Attack] = {}  # of pools that have a curriculum; elsewhere they change nothing
VICTIM = checked_address("0x" + "cc" * 19 + "01")


def _with_problem(cheat: Cheat, planned: Planned, seed: int, target: int) -> Planned:
    assignment = replace(planned.assignment, problem_seed=seed, target_length=target)
    return replace(planned, assignment=assignment, prompt=cheat.environment.prompt(seed, target))


def _relabelled(cheat: Cheat, rows: Rows) -> Rows:
    """Return the rows with the prompts that they should have."""
    prompt = cheat.environment.prompt
    return [replace(row, prompt_tokens=prompt(row.problem_seed, row.target_length)) for row in rows]


@alters("plan", "chosen-problems", "works on problems of its own choice")
def chosen_problems(cheat: Cheat, plan: Plan, work: Work) -> Plan:
    return [_with_problem(cheat, p, 1000 + p.assignment.slot, p.assignment.target_length) for p in plan]


@alters("plan", "repeated-problem", "works on its first problem again and again")
def repeated_problem(cheat: Cheat, plan: Plan, work: Work) -> Plan:
    return [_with_problem(cheat, p, plan[0].assignment.problem_seed, p.assignment.target_length) for p in plan]


@alters("plan", "wrong-target", "takes the shortest target length, or the longest where the shortest is due")
def wrong_target(cheat: Cheat, plan: Plan, work: Work) -> Plan:
    available = all_targets(cheat.config.work) or (1, 2)
    shortest, longest = min(available), max(available)
    targets = [longest if p.assignment.target_length == shortest else shortest for p in plan]
    return [_with_problem(cheat, p, p.assignment.problem_seed, target) for p, target in zip(plan, targets, strict=True)]


def _truncated(cheat: Cheat, plan: Plan, work: Work) -> Plan:
    return [replace(p, prompt=p.prompt[: len(p.prompt) // 2] + p.prompt[-2:]) for p in plan]


alters("plan", "truncated-prompt", "leaves out the middle of every prompt")(_truncated)


@attack("hidden-prompt", "computes on a shortened prompt and reports the right one")
class HiddenPrompt(Cheat):
    def plan(self, work: Work) -> Plan:
        return _truncated(self, super().plan(work), work)

    def score(self, plan: Sequence[Planned], completions: Sequence[Completion]) -> Rows:
        return _relabelled(self, super().score(plan, completions))


@attack("altered-prompt", "changes one token of every prompt; strength 1: still reports the right prompt")
class AlteredPrompt(Cheat):
    def plan(self, work: Work) -> Plan:
        rng, plan = random.Random(work.seed), []
        for planned in super().plan(work):
            prompt, position = list(planned.prompt), rng.randrange(len(planned.prompt))
            prompt[position] = self.another(prompt[position], rng)
            plan.append(replace(planned, prompt=tuple(prompt)))
        return plan

    def score(self, plan: Sequence[Planned], completions: Sequence[Completion]) -> Rows:
        rows = super().score(plan, completions)
        return rows if self.strength < 1 else _relabelled(self, rows)


@alters("plan", "masked-problems", "draws its problems as if none were masked", registry=CURRICULUM_ATTACKS)
def masked_problems(cheat: Cheat, plan: Plan, work: Work) -> Plan:
    plain = [assignments(work, cheat.config.without_curricula)[p.assignment.slot] for p in plan]
    return [_with_problem(cheat, p, own.problem_seed, own.target_length) for p, own in zip(plan, plain, strict=True)]


# Claims above what is due


@alters("score", "inflated-reward", "claims full reward for every completion")
def inflated_reward(cheat: Cheat, rows: Rows, *_: object) -> Rows:
    # A row that earned everything claims a little more still.
    return [
        replace(row, task_reward=1.0, reward=1.0, length_penalty=0.0)
        if row.task_reward < 1.0 or row.length_penalty
        else replace(row, task_reward=1.5, reward=1.5)
        for row in rows
    ]


@alters("seal", "inflated-units", "claims more paid tokens than the file has; strength: factor", 1.5)
def inflated_units(cheat: Cheat, honest: Produced, *_: object) -> Produced:
    units = int(honest.commitment.units * max(1.0, cheat.strength)) + 1
    return replace(honest, commitment=replace(honest.commitment, units=units))


@alters("seal", "wrong-root", "commits to a Merkle root that is not the file's")
def wrong_root(cheat: Cheat, honest: Produced, *_: object) -> Produced:
    return replace(honest, commitment=replace(honest.commitment, root=b"\x01" * 32))


@alters("make", "changed-file", "serves other bytes than it committed to")
def changed_file(cheat: Cheat, honest: Produced, work: Work) -> Produced:
    return replace(honest, data=honest.data + b"\x00")


# Earlier work, by others or by itself


def _work_of_earlier_step(work: Work) -> Work:
    return Work(replace(work.id, step=max(0, work.id.step - 1)), bytes(32), bytes(31) + b"\x01")


def _victims_work(work: Work) -> Work:
    return other_work(work, node=VICTIM)


def _work_of_next_counter(work: Work) -> Work:
    return other_work(work, counter=work.id.counter + 1)


def _register_copied_file(name: str, help: str, elsewhere: Callable[[Work], Work]) -> None:
    """Register an attack that hands in the file of `elsewhere` for the assigned work."""

    @attack(name, help)
    class FileOf(Cheat):
        def make(self, work: Work) -> Produced:
            return super().make(elsewhere(work))


_register_copied_file("other-file", "hands in another node's file as it is", _victims_work)
_register_copied_file("own-old-file", "hands in its own file of another counter", _work_of_next_counter)
_register_copied_file("own-old-step", "hands in its own file of an earlier step again", _work_of_earlier_step)


@attack("old-completions", "proves its own completions of an earlier step again under today's problems")
class OldCompletions(Cheat):
    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        before = _work_of_earlier_step(work)
        return self.proven(plan, super().complete(before, self.plan(before)))


@attack("other-lane", "hands in what another node made of the same problems at an earlier step, in another lane")
class OtherLane(Cheat):
    """The copy that fits best: same prompts, honest proofs and log-probabilities, only the noise is another's."""

    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        theirs = _victims_work(_work_of_earlier_step(work))
        copied = [replace(p, noise_key=noise_key(theirs, p.assignment.slot, p.sample)) for p in plan]
        return super().complete(work, copied)


@attack("relabelled-file", "hands in another node's rollouts under its own header")
class RelabelledFile(Cheat):
    def make(self, work: Work) -> Produced:
        return self.seal(work, super().make(_victims_work(work)).rollouts)


@attack(
    "edited-copy",
    "copies another node's completions into its own problems, seeds and prompts; strength 1: proves them again",
)
class EditedCopy(Cheat):
    def make(self, work: Work) -> Produced:
        stolen = super().make(_victims_work(work)).rollouts
        rows = []
        for planned, row in zip(self.plan(work), stolen, strict=True):
            task = planned.assignment
            score = self.environment.score(task.problem_seed, task.target_length, row.output_tokens)
            row = replace(row, problem_seed=task.problem_seed, target_length=task.target_length)
            rows.append(replace(row, prompt_tokens=planned.prompt, **asdict(score)))
        if self.strength >= 1:
            proven = self.prove([(row.prompt_tokens, row.output_tokens, row.finish) for row in rows])
            rows = [replace(r, logprobs=c.logprobs, proofs=c.proofs) for r, c in zip(rows, proven, strict=True)]
        return self.seal(work, rows)


# Forged proofs


def _register_forged_proofs(name: str, help: str, forge: Callable[[bytes, random.Random], bytes]) -> None:
    """Register an attack whose rows show `forge` of each proof instead."""

    @alters("score", name, help)
    def forged(cheat: Cheat, rows: Rows, plan: Sequence[Planned], *_: object) -> Rows:
        rng = random.Random(plan[0].assignment.problem_seed)
        return [replace(row, proofs=tuple(forge(proof, rng) for proof in row.proofs)) for row in rows]


def _polynomial(coefficients: Iterable[int]) -> bytes:
    return b"".join(value.to_bytes(2, "big") for value in (PRIME, *coefficients))


_CONSTANT = _polynomial([0x4040, *([0] * 127)])
_register_forged_proofs("proofs-zero", "all proofs are zero bytes", lambda proof, rng: bytes(PROOF_BYTES))
_register_forged_proofs(
    "proofs-modulus-0", "honest coefficients under modulus 0", lambda proof, rng: bytes(2) + proof[2:]
)
_register_forged_proofs(
    "proofs-constant", "constant polynomials: every activation claimed equal", lambda proof, rng: _CONSTANT
)
_register_forged_proofs(
    "proofs-random", "random polynomials", lambda proof, rng: _polynomial(rng.choices(range(PRIME), k=128))
)


def _with_proofs(rows: Iterable[Rollout], proofs: Iterable[bytes]) -> Rows:
    """Return the rows with as many proofs as before, of others in their order."""
    supply = itertools.cycle(proofs)
    return [replace(row, proofs=tuple(itertools.islice(supply, len(row.proofs)))) for row in rows]


@alters("score", "proofs-swapped", "proofs of the neighbouring rollout")
def swapped_proofs(cheat: Cheat, rows: Rows, *_: object) -> Rows:
    proofs = [proof for row in rows for proof in row.proofs]
    return _with_proofs(rows, proofs[1:] + proofs[:1])


@alters("make", "proofs-other-file", "proofs of its own file of another counter")
def other_files_proofs(cheat: Cheat, honest: Produced, work: Work) -> Produced:
    others = Producer.make(cheat, _work_of_next_counter(work)).rollouts
    return cheat.seal(work, _with_proofs(honest.rollouts, [proof for row in others for proof in row.proofs]))


def _register_wrong_proof_count(name: str, help: str, forge: Callable[[tuple[bytes, ...]], tuple[bytes, ...]]) -> None:
    """Register an attack whose file has proofs that do not fit its tokens, which the format's writer would refuse."""

    @alters("seal", name, help)
    def miscounted(cheat: Cheat, honest: Produced, work: Work, rollouts: Sequence[Rollout]) -> Produced:
        from protocol.rollout_file.reader import to_parquet
        from protocol.rollout_file.rows import commit

        rows = [replace(row, proofs=forge(row.proofs)) for row in rollouts]
        data = to_parquet(honest.header, rows)
        return Produced(honest.header, tuple(rows), data, commit(data, rows))


_register_wrong_proof_count("proofs-too-few", "leaves the last proof of every rollout out", lambda proofs: proofs[:-1])
_register_wrong_proof_count("proofs-too-many", "adds a proof to every rollout", lambda proofs: (*proofs, proofs[-1]))
