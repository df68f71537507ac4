"""Work done before, by others or by itself: whole files, files under a new header, copies with edits."""

from dataclasses import replace

from attacks.base import Cheat, attack
from worker.produce import Order, Produced

VICTIM = "0x" + "Cc" * 19 + "01"


def _victims_order(order: Order) -> Order:
    from eth_utils.address import to_checksum_address

    return replace(order, node=str(to_checksum_address(VICTIM)))


@attack("other-file", "hands in another node's file as it is")
class OtherFile(Cheat):
    def make(self, order: Order) -> Produced:
        return super().make(_victims_order(order))


@attack("own-old-file", "hands in its own file of an earlier counter again")
class OwnOldFile(Cheat):
    def make(self, order: Order) -> Produced:
        return super().make(replace(order, counter=order.counter + 1))


@attack("relabelled-file", "hands in another node's rollouts under its own header")
class RelabelledFile(Cheat):
    def make(self, order: Order) -> Produced:
        return self.seal(order, super().make(_victims_order(order)).rollouts)


@attack("edited-copy", "copies another node's completions into its own problems, seeds and prompts")
class EditedCopy(Cheat):
    def make(self, order: Order) -> Produced:
        stolen = super().make(_victims_order(order)).rollouts
        rows = []
        for planned, row in zip(self.plan(order), stolen, strict=True):
            task = planned.assignment
            score = self.workbook.score(task.problem_seed, task.target_length, row.output_tokens)
            changes = replace(
                row,
                problem_seed=task.problem_seed,
                target_length=task.target_length,
                prompt_tokens=planned.prompt,
                task_reward=score.task_reward,
                length_penalty=score.length_penalty,
                reward=score.reward,
            )
            rows.append(changes)
        return self.seal(order, rows)


@attack("changed-file", "serves other bytes than it committed to")
class ChangedFile(Cheat):
    def make(self, order: Order) -> Produced:
        honest = super().make(order)
        return replace(honest, data=honest.data + b"\x00")
