"""From conversations to tokens, and which of them are learned: what the assistant says, and that it stops."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from protocol.errors import ConfigError
from trainer.sft.conversations import Conversation, Message


@dataclass(frozen=True)
class Example:
    """Token ids of a conversation; `learned` says of each whether its prediction is trained. The first never is."""

    tokens: tuple[int, ...]
    learned: tuple[bool, ...]

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.learned) or any(self.learned[:1]):
            raise ValueError("an example needs one mark a token, and nothing predicts its first one")

    @property
    def targets(self) -> int:
        """How many tokens are learned."""
        return sum(self.learned)


class ConversationEncoder:
    """Turns conversations into examples with a model's tokenizer.

    With `chat_template` the model's own template is used. Without it turns follow one another as they are, and an EOS
    ends each of the assistant's. Raises ConfigError where the tokenizer has no template or no EOS.
    """

    def __init__(self, tokenizer: Any, chat_template: bool) -> None:
        self._tokenizer, self._template = tokenizer, chat_template
        if tokenizer.eos_token_id is None:
            raise ConfigError("the model's tokenizer has no EOS token", "choose another model")
        if chat_template and not tokenizer.chat_template:
            raise ConfigError("the model's tokenizer has no chat template", "set `chat_template` = false")

    def encode(self, conversation: Conversation) -> Example:
        """Raises ConfigError if the template changes an answer, or earlier turns when a new one follows."""
        pieces: list[tuple[str, bool]] = []
        said = ""
        for number, message in enumerate(conversation.messages):
            if message.role == "assistant":
                before = self._before(conversation.messages[:number])
                if not before.startswith(said):
                    raise ConfigError(
                        "the model's chat template changes earlier turns when a new one follows",
                        "split the data into conversations of one answer each",
                    )
                answer = [(part.text, part.learned) for part in message.parts]
                answer.append((self._end(before, conversation.messages[: number + 1]), answer[-1][1]))
                pieces += [(before[len(said) :], False), *answer]
                said = before + "".join(text for text, _ in answer)
        return self._tokens(pieces)

    def _tokens(self, pieces: Sequence[tuple[str, bool]]) -> Example:
        tokens: list[int] = []
        learned: list[bool] = []
        for text, wanted in pieces:
            # A template brings its own special tokens; a prompt without one gets the tokenizer's, as in training by RL.
            ids = self._tokenizer.encode(text, add_special_tokens=not (tokens or self._template))
            tokens += ids
            learned += [wanted] * len(ids)
        return Example(tuple(tokens), tuple(learned))

    def _before(self, messages: Sequence[Message]) -> str:
        """Everything up to where the assistant begins to speak."""
        if self._template:
            return self._rendered(messages, prompt=True)
        eos = self._tokenizer.eos_token
        return "".join(one.text + (eos if one.role == "assistant" else "") for one in messages)

    def _end(self, before: str, messages: Sequence[Message]) -> str:
        """How the last of the turns ends."""
        eos = str(self._tokenizer.eos_token)
        if not self._template:
            return eos
        answer, whole = before + messages[-1].text, self._rendered(messages, prompt=False)
        if not whole.startswith(answer):
            raise ConfigError(
                "the model's chat template changes what the assistant says",
                "write the data as the template does, or set `chat_template` = false",
            )
        return whole[len(answer) :].rstrip() or eos

    def _rendered(self, messages: Sequence[Message], prompt: bool) -> str:
        turns = [{"role": one.role, "content": one.text} for one in messages]
        return str(self._tokenizer.apply_chat_template(turns, add_generation_prompt=prompt, tokenize=False))
