"""Others' texts as this member's tokens, or not at all."""

import math

from swarm.generation import MemberModel
from swarm.inspection import FoundGroup
from trainer.batch import Group, TrainRollout


class Retokeniser:
    """Under one member's tokenizer. What a sharer says of its log-probs is not believed: it is taken to have said each
    token with the chance `certainty`. With 1, the most that a chance can be, an update's importance weight is the own
    policy's chance of saying the token: what the own policy never says it does not learn. Only what makes something
    likelier counts, and a text that stands there several times counts once: of the texts that are to become less likely
    a sharer could choose what others say best, and they weigh most. None: the chances are unknown, and all weigh 1."""

    def __init__(self, model: MemberModel, certainty: float | None) -> None:
        self._model = model
        self._taken = None if certainty is None else math.log(certainty)
        special = {token for token, added in model.tokenizer.added_tokens_decoder.items() if added.special}
        self._control = special | set(model.eos)

    def group(self, found: FoundGroup) -> Group | None:
        """The group for training; None where a text is no answer that this model could have given: one with its control
        tokens in it, one that its tokenizer changes, one that is longer than its own may be, or a prompt that is."""
        model, seed = self._model, found.problem_seed
        if not model.prompts.asks(seed, 0):
            return None
        prompt = model.prompts.prompt(seed, 0)
        made: list[TrainRollout] = []
        for one, reward in zip(found.group.completions, found.offer.rewards, strict=True):
            output = self._output(one.text, one.ended)
            if output is None:
                return None
            logprobs = self._logprobs(found, len(made), len(output))
            made.append(TrainRollout(prompt, output, reward, reward, logprobs, settings=model.settings(seed)))
        return tuple(made)

    def _logprobs(self, found: FoundGroup, place: int, tokens: int) -> tuple[float, ...]:
        """As they are taken to have been, infinite where the weight is to be 0."""
        if self._taken is None:
            return ()
        shared, rewards = found.group.completions, found.offer.rewards
        said = [(one.text, one.ended) for one in shared[: place + 1]]
        counts = rewards[place] > found.offer.mean and said[-1] not in said[:-1]
        return (self._taken if counts else math.inf,) * tokens

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
