"""Chat templates in the manner of known families, written for these tests: what turns may stumble over in each."""

from dataclasses import dataclass
from typing import Any

from protocol.models import load_tokenizer
from tests.validator.world import tokenizer_folder


@dataclass(frozen=True)
class ChatFamily:
    """`control`: its special tokens. `ends`: those that end a turn, the template's own first. `tool`: whether it has a
    place for a tool's reply. `drops`: whether it changes what earlier turns said."""

    name: str
    template: str
    control: tuple[str, ...]
    ends: tuple[str, ...]
    tool: bool = True
    drops: bool = False

    def tokenizer(self) -> Any:
        """A tokenizer of bytes with the family's control tokens and template."""
        tokenizer: Any = load_tokenizer(tokenizer_folder())
        tokenizer.add_special_tokens({"additional_special_tokens": list(self.control)})
        tokenizer.chat_template = self.template
        return tokenizer

    def eos_ids(self, tokenizer: Any) -> tuple[int, ...]:
        return tuple(tokenizer.convert_tokens_to_ids(end) for end in self.ends)


_CHATML = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
CHATML = ChatFamily(
    "ChatML, a tool's replies in the user's turn, thoughts of answers before the last question dropped",
    "{%- if tools %}<|im_start|>system\nYou may call:\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    "<|im_end|>\n{% endif %}"
    "{%- set asked = namespace(last=-1) %}"
    "{%- for m in messages %}{% if m.role == 'user' %}{% set asked.last = loop.index0 %}{% endif %}{% endfor %}"
    "{%- for m in messages %}"
    "{%- if m.role == 'tool' %}"
    "{%- if loop.previtem.role != 'tool' %}<|im_start|>user{% endif %}\n<tool_response>\n{{ m.content }}\n"
    "</tool_response>{% if loop.last or loop.nextitem.role != 'tool' %}<|im_end|>\n{% endif %}"
    "{%- elif m.role == 'assistant' %}<|im_start|>assistant\n"
    "{{ m.content.split('</think>')[-1] if loop.index0 < asked.last else m.content }}<|im_end|>\n"
    "{%- else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    _CHATML,
    ("<|im_end|>", "<|endoftext|>"),
    drops=True,
)
HEADERS = ChatFamily(
    "headers, every text trimmed, the day in the system's turn, a stop token of its own after calls",
    "{%- set head = '<|header|>' %}{%- set body = '<|body|>\n\n' %}"
    "<|begin|>{{ head }}system{{ body }}Today: {{ strftime_now('%d %b %Y') }}\n"
    "{%- if tools %}{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}{% endif %}<|turn|>"
    "{%- for m in messages %}"
    "{%- if m.role == 'tool' %}{{ head }}environment{{ body }}{{ m.content | trim | tojson }}<|turn|>"
    "{%- else %}{{ head }}{{ m.role }}{{ body }}{{ m.content | trim }}<|turn|>{% endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ head }}assistant{{ body }}{% endif %}",
    ("<|begin|>", "<|header|>", "<|body|>", "<|turn|>", "<|call|>", "<|stop|>"),
    ("<|turn|>", "<|call|>", "<|stop|>"),
    drops=True,
)
BRACKETS = ChatFamily(
    "brackets, the tools before the last question, replies named by calls of nine characters",
    "<s>{%- for m in messages %}"
    "{%- if m.role == 'tool' %}"
    "{%- if m.tool_call_id is undefined or m.tool_call_id | length != 9 %}"
    "{{ raise_exception('a call has nine characters') }}{% endif %}"
    '[RESULT] {"content": {{ m.content }}, "call": "{{ m.tool_call_id }}"}[/RESULT]'
    "{%- elif m.role == 'assistant' %} {{ m.content }}</s>"
    "{%- else %}{% if loop.last and tools %}[TOOLS] {{ tools | tojson }}[/TOOLS]{% endif %}"
    "[INST] {{ m.content }}[/INST]{% endif %}"
    "{%- endfor %}",
    ("<s>", "</s>", "[INST]", "[/INST]", "[RESULT]", "[/RESULT]", "[TOOLS]", "[/TOOLS]"),
    ("</s>",),
)
ALTERNATING = ChatFamily(
    "the user and the model by turns, and nobody else",
    "<bos>{%- for m in messages %}"
    "{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "<start>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end>\n"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}<start>model\n{% endif %}",
    ("<bos>", "<start>", "<end>", "<eos>"),
    ("<end>", "<eos>"),
    tool=False,
    drops=True,
)
REASONING = ChatFamily(
    "bars, thoughts of every answer dropped, empty texts left out",
    "<|bos|>{%- for m in messages if m.content %}"
    "{%- if m.role == 'assistant' %}<|model|>{{ m.content.split('</think>')[-1] }}<|done|>"
    "{%- elif m.role == 'tool' %}<|output|>{{ m.content }}<|/output|>"
    "{%- else %}<|user|>{{ m.content }}{% endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}<|model|><think>\n{% endif %}",
    ("<|bos|>", "<|user|>", "<|model|>", "<|done|>", "<|output|>", "<|/output|>"),
    ("<|done|>",),
    drops=True,
)
CHANNELS = ChatFamily(
    "channels, a tool's reply only after a call that the template has seen",
    "{%- for m in messages %}"
    "{%- if m.role == 'tool' and not loop.previtem.tool_calls %}"
    "{{ raise_exception('a tool speaks after its call') }}{% endif %}"
    "<|open|>{{ m.role }}<|say|>{{ m.content }}<|close|>"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}<|open|>assistant{% endif %}",
    ("<|open|>", "<|say|>", "<|close|>", "<|return|>"),
    ("<|close|>", "<|return|>"),
    tool=False,
)
FAMILIES = (CHATML, HEADERS, BRACKETS, ALTERNATING, REASONING, CHANNELS)
