"""False claims about a file: other work than the assigned one, inflated rewards, stolen work, forged proofs."""

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace

from attacks.base import Attack, Cheat, attack, other
from engines.base import Completion
from protocol.rollout_file.rows import Rollout
from protocol.seeds import Work, all_targets, assignments, noise_key
from protocol.toploc.codec import PRIME, PROOF_BYTES
from worker.produce import Planned, Produced, Producer


class _Reassigned(Cheat):
    """Cheats in the plan; a changed assignment brings the prompt that belongs to it."""

    def relabelled(self, rows: Sequence[Rollout]) -> list[Rollout]:
        """The rows with the prompts that they should have."""
        prompt = self.environment.prompt
        return [replace(row, prompt_tokens=prompt(row.problem_seed, row.target_length)) for row in rows]

    def with_problem(self, planned: Planned, seed: int, target: int) -> Planned:
        assignment = replace(planned.assignment, problem_seed=seed, target_length=target)
        return replace(planned, assignment=assignment, prompt=self.environment.prompt(seed, target))


@attack("chosen-problems", "works on problems of its own choice")
class ChosenProblems(_Reassigned):
    def plan(self, work: Work) -> list[Planned]:
        return [self.with_problem(p, 1000 + p.assignment.slot, p.assignment.target_length) for p in super().plan(work)]


@attack("repeated-problem", "works on its first problem again and again")
class RepeatedProblem(_Reassigned):
    def plan(self, work: Work) -> list[Planned]:
        plan = super().plan(work)
        return [self.with_problem(p, plan[0].assignment.problem_seed, p.assignment.target_length) for p in plan]


@attack("wrong-target", "takes the shortest target length everywhere, of whatever class")
class WrongTarget(_Reassigned):
    def plan(self, work: Work) -> list[Planned]:
        targets = all_targets(self.config.work) or (1, 2)

        def other(target: int) -> int:
            return min(targets) if target != min(targets) else max(targets)

        return [
            self.with_problem(p, p.assignment.problem_seed, other(p.assignment.target_length))
            for p in super().plan(work)
        ]


@attack("truncated-prompt", "leaves out the middle of every prompt")
class TruncatedPrompt(_Reassigned):
    def plan(self, work: Work) -> list[Planned]:
        return [replace(p, prompt=p.prompt[: len(p.prompt) // 2] + p.prompt[-2:]) for p in super().plan(work)]


@attack("altered-prompt", "changes one token of every prompt; strength 1: reports the right prompt all the same")
class AlteredPrompt(_Reassigned):
    def plan(self, work: Work) -> list[Planned]:
        rng = random.Random(work.seed)
        return [replace(planned, prompt=self._altered(planned.prompt, rng)) for planned in super().plan(work)]

    def score(self, plan: Sequence[Planned], completions: Sequence[Completion]) -> list[Rollout]:
        rows = super().score(plan, completions)
        return rows if self.strength < 1 else self.relabelled(rows)

    def _altered(self, prompt: tuple[int, ...], rng: random.Random) -> tuple[int, ...]:
        place = rng.randrange(len(prompt))
        return (*prompt[:place], self.another(prompt[place], rng), *prompt[place + 1 :])


@attack("hidden-prompt", "computes on a shortened prompt and reports the right one")
class HiddenPrompt(TruncatedPrompt):
    def score(self, plan: Sequence[Planned], completions: Sequence[Completion]) -> list[Rollout]:
        return self.relabelled(super().score(plan, completions))


# --- Curriculum


CURRICULUM_ATTACKS: dict[str, Attack] = {}
"""Of pools with a curriculum; elsewhere they change nothing."""


@attack("resting-problems", "draws its problems as if none were masked", registry=CURRICULUM_ATTACKS)
class RestingProblems(Cheat):
    def plan(self, work: Work) -> list[Planned]:
        plain = assignments(work, self.config.without_curricula)
        plan = []
        for planned in Producer.plan(self, work):
            assignment = plain[planned.assignment.slot]
            prompt = self.environment.prompt(assignment.problem_seed, assignment.target_length)
            plan.append(Planned(assignment, planned.sample, prompt, planned.noise_key))
        return plan


# --- Claims above what is due


@attack("inflated-reward", "claims full reward for every completion")
class InflatedReward(Cheat):
    def score(self, plan: Sequence[Planned], completions: Sequence[Completion]) -> list[Rollout]:
        # A row that earned everything anyway claims a smaller length penalty or a little more still.
        return [
            replace(row, task_reward=1.0, reward=1.0, length_penalty=0.0)
            if row.task_reward < 1.0 or row.length_penalty
            else replace(row, task_reward=1.5, reward=1.5)
            for row in super().score(plan, completions)
        ]


@attack("inflated-units", "claims more paid tokens than the file has; strength: factor", 1.5)
class InflatedUnits(Cheat):
    def seal(self, work: Work, rollouts: Sequence[Rollout]) -> Produced:
        honest = super().seal(work, rollouts)
        units = int(honest.commitment.units * max(1.0, self.strength)) + 1
        return replace(honest, commitment=replace(honest.commitment, units=units))


@attack("wrong-root", "commits to a Merkle root that is not the file's")
class WrongRoot(Cheat):
    def seal(self, work: Work, rollouts: Sequence[Rollout]) -> Produced:
        honest = super().seal(work, rollouts)
        return replace(honest, commitment=replace(honest.commitment, root=b"\x01" * 32))


# --- Earlier work, by others or by itself


VICTIM = "0x" + "Cc" * 19 + "01"


def _earlier_step(work: Work) -> Work:
    return Work(replace(work.id, step=max(0, work.id.step - 1)), bytes(32), bytes(31) + b"\x01")


def _victims(work: Work) -> Work:
    from eth_utils.address import to_checksum_address

    return other(work, node=str(to_checksum_address(VICTIM)))


def _another_counter(work: Work) -> Work:
    return other(work, counter=work.id.counter + 1)


def _file_of(name: str, help: str, elsewhere: Callable[[Work], Work]) -> None:
    """An attack that hands in the file of `elsewhere` for the assigned work."""

    @attack(name, help)
    class FileOf(Cheat):
        def make(self, work: Work) -> Produced:
            return super().make(elsewhere(work))


_file_of("other-file", "hands in another node's file as it is", _victims)
_file_of("own-old-file", "hands in its own file of an earlier counter again", _another_counter)
_file_of("own-old-step", "hands in its own file of an earlier step again", _earlier_step)


@attack("old-completions", "proves its own completions of an earlier step anew under today's problems")
class OldCompletions(Cheat):
    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        before = _earlier_step(work)
        old = super().complete(before, self.plan(before))
        return self.prove([(p.prompt, c.tokens, c.finish) for p, c in zip(plan, old, strict=True)])


@attack("other-lane", "hands in what another node made of the same problems at an earlier step, in another lane")
class OtherLane(Cheat):
    """The copy that fits best: same prompts, honest proofs and log-probabilities, only the noise is another's."""

    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        theirs = _victims(_earlier_step(work))
        return super().complete(
            work, [replace(p, noise_key=noise_key(theirs, p.assignment.slot, p.sample)) for p in plan]
        )


@attack("relabelled-file", "hands in another node's rollouts under its own header")
class RelabelledFile(Cheat):
    def make(self, work: Work) -> Produced:
        return self.seal(work, super().make(_victims(work)).rollouts)


@attack(
    "edited-copy",
    "copies another node's completions into its own problems, seeds and prompts; strength 1: proves them anew",
)
class EditedCopy(Cheat):
    def make(self, work: Work) -> Produced:
        stolen = super().make(_victims(work)).rollouts
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


@attack("changed-file", "serves other bytes than it committed to")
class ChangedFile(Cheat):
    def make(self, work: Work) -> Produced:
        honest = super().make(work)
        return replace(honest, data=honest.data + b"\x00")


# --- Forged proofs


Proofs = tuple[bytes, ...]


def _forged(name: str, help: str, forge: Callable[[bytes, random.Random], bytes]) -> None:
    """An attack whose rows show `forge` of each proof instead."""

    @attack(name, help)
    class Forged(Cheat):
        def score(self, plan: Sequence[Planned], completions: Sequence[Completion]) -> list[Rollout]:
            rng = random.Random(plan[0].assignment.problem_seed)
            rows = super().score(plan, completions)
            return [replace(row, proofs=tuple(forge(proof, rng) for proof in row.proofs)) for row in rows]


def _polynomial(coefficients: Iterable[int]) -> bytes:
    return b"".join(value.to_bytes(2, "big") for value in (PRIME, *coefficients))


_CONSTANT = _polynomial([0x4040, *([0] * 127)])
_forged("proofs-zero", "all proofs are zero bytes", lambda proof, rng: bytes(PROOF_BYTES))
_forged("proofs-modulus-0", "honest coefficients under modulus 0", lambda proof, rng: bytes(2) + proof[2:])
_forged("proofs-constant", "constant polynomials: every activation claimed equal", lambda proof, rng: _CONSTANT)
_forged("proofs-random", "random polynomials", lambda proof, rng: _polynomial(rng.choices(range(PRIME), k=128)))


def _dealt(rows: Iterable[Rollout], proofs: Iterable[bytes]) -> list[Rollout]:
    """The rows with as many proofs as before, of others in their order."""
    supply = itertools.cycle(proofs)
    return [replace(row, proofs=tuple(itertools.islice(supply, len(row.proofs)))) for row in rows]


@attack("proofs-swapped", "proofs of the neighbouring rollout")
class SwappedProofs(Cheat):
    def score(self, plan: Sequence[Planned], completions: Sequence[Completion]) -> list[Rollout]:
        rows = super().score(plan, completions)
        proofs = [proof for row in rows for proof in row.proofs]
        return _dealt(rows, proofs[1:] + proofs[:1])


@attack("proofs-other-file", "proofs of its own file of another counter")
class OtherFilesProofs(Cheat):
    def make(self, work: Work) -> Produced:
        elsewhere = super().make(other(work, counter=work.id.counter + 1))
        others = [proof for row in elsewhere.rollouts for proof in row.proofs]
        return self.seal(work, _dealt(super().make(work).rollouts, others))


def _miscounted(name: str, help: str, forge: Callable[[Proofs], Proofs]) -> None:
    """An attack whose file has proofs that do not fit its tokens; the format's own writer, which refuses that, is
    bypassed."""

    @attack(name, help)
    class Miscounted(Cheat):
        def seal(self, work: Work, rollouts: Sequence[Rollout]) -> Produced:
            from protocol.rollout_file.reader import to_parquet
            from protocol.rollout_file.rows import commit

            rows = [replace(row, proofs=forge(row.proofs)) for row in rollouts]
            header = self.header(work)
            data = to_parquet(header, rows)
            return Produced(header, tuple(rows), data, commit(data, rows))


_miscounted("proofs-too-few", "leaves the last proof of every rollout out", lambda proofs: proofs[:-1])
_miscounted("proofs-too-many", "adds a proof to every rollout", lambda proofs: (*proofs, proofs[-1]))
