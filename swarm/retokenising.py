"""Others' texts as this member's tokens, or not at all."""

from swarm.generation import MemberModel
from swarm.inspection import FoundGroup
from trainer.rollouts import Group, TrainRollout


class Retokeniser:
    """Under one member's tokenizer. Log-probs are left unknown: what counts is how likely its own policy finds the
    text (the learner computes that), not what the sharer says of its own."""

    def __init__(self, model: MemberModel) -> None:
        self._model = model
        special = {token for token, added in model.tokenizer.added_tokens_decoder.items() if added.special}
        self._control = special | set(model.eos)

    def group(self, found: FoundGroup) -> Group | None:
        """The group for training; None where a text is no answer that this model could have given: one with its control
        tokens in it, one that its tokenizer changes, one that is longer than its own may be, or a prompt that is."""
        model, seed = self._model, found.problem_seed
        if not model.prompts.asks(seed, 0):
            return None
        prompt, made = model.prompts.prompt(seed, 0), []
        for one, reward in zip(found.group.completions, found.offer.rewards, strict=True):
            output = self._output(one.text, one.ended)
            if output is None:
                return None
            made.append(TrainRollout(prompt, output, reward, reward, settings=model.settings(seed)))
        return tuple(made)

    def _output(self, text: str, ended: bool) -> tuple[int, ...] | None:
        model, longest = self._model, self._model.config.work.max_new_tokens
        tokens = model.tokenizer.encode(text, add_special_tokens=False)
        if ended:
            tokens = [*tokens, model.end]
        if not 1 <= len(tokens) <= longest or max(tokens) >= model.prompts.vocabulary:
            return None
        own = tokens[:-1] if ended else tokens
        # A control token inside a text would be trained as if the policy had chosen to end there.
        if self._control.intersection(own):
            return None
        again = model.tokenizer.decode(own, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return tuple(tokens) if again == text else None
