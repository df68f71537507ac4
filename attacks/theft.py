"""Work done before, by others or by itself: whole files, files under a new header, copies with edits."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from attacks.base import Cheat, attack, other
from engines.base import Completion
from protocol.seeds import Work, noise_key
from worker.produce import Planned, Produced

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
