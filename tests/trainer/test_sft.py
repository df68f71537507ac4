"""What is learned of a conversation: the assistant's words and that it stops, nothing else; unusable data is named."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file

from engines.loading import load_model
from protocol.config import AdamWConfig, OptimizerConfig, ScheduleConfig
from protocol.errors import ConfigError
from protocol.files import file_digests
from protocol.models import EOS, load_tokenizer, save_byte_tokenizer
from tests.cli.muster import Muster
from tests.trainer.crew import on_ranks
from tests.trainer.helpers import largest_difference
from trainer.config import SftConfig
from trainer.distributed import Ranks
from trainer.exits import EXIT_DONE, EXIT_STOPPED, UnstableError
from trainer.model.policy import Policy
from trainer.model.sharding import Placement, make_placement
from trainer.sft import (
    Conversation,
    ConversationEncoder,
    Example,
    SftLearner,
    SftRun,
    batch_indices,
    packed_row,
    read_conversations,
)

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FORGETFUL = (
    "{% for m in messages %}{% if loop.last or m.role == 'user' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SHOUTING = "{% for m in messages %}{{ m.content | upper }}{% endfor %}{% if add_generation_prompt %}>{% endif %}"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_byte_tokenizer(folder, ["<|im_start|>", "<|im_end|>", "</think>"])
    return load_tokenizer(folder)


@pytest.fixture
def chat(tokenizer: Any) -> Any:
    tokenizer.chat_template = CHATML
    yield tokenizer
    tokenizer.chat_template = None


def talk(*turns: tuple[str, Any]) -> Conversation:
    return Conversation.model_validate({"messages": [{"role": role, "content": content} for role, content in turns]})


def split(tokenizer: Any, example: Example) -> list[tuple[bool, str]]:
    """The example as runs of learned and unlearned text."""
    runs: list[tuple[bool, list[int]]] = []
    for token, wanted in zip(example.tokens, example.learned, strict=True):
        if not runs or runs[-1][0] != wanted:
            runs.append((wanted, []))
        runs[-1][1].append(token)
    return [(wanted, tokenizer.decode(ids)) for wanted, ids in runs]


def test_only_what_the_assistant_says_is_learned_and_that_it_stops_after_a_prompt_as_in_training_by_rl(
    chat: Any,
) -> None:
    said = talk(("system", "Be brief."), ("user", "2+2?"), ("assistant", "4"), ("user", "Sure?"), ("assistant", "Yes"))
    assert split(chat, ConversationEncoder(chat, True).encode(said)) == [
        (False, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"),
        (True, "4<|im_end|>"),
        (False, "\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n"),
        (True, "Yes<|im_end|>"),
    ]

    example = ConversationEncoder(chat, True).encode(talk(("user", "2+2?"), ("assistant", "4")))
    text = chat.apply_chat_template([{"role": "user", "content": "2+2?"}], add_generation_prompt=True, tokenize=False)
    prompt = chat.encode(text, add_special_tokens=False)
    assert list(example.tokens[: len(prompt)]) == prompt
    assert example.learned.index(True) == len(prompt)


def test_without_a_template_turns_follow_one_another_and_eos_ends_each_answer(tokenizer: Any) -> None:
    encoder = ConversationEncoder(tokenizer, False)
    parts = [{"text": "</think>"}, {"text": "17", "learned": False}]
    said = talk(("user", "1+1="), ("assistant", "2"), ("user", "9+8="), ("assistant", parts))
    assert split(tokenizer, encoder.encode(said)) == [
        (False, "1+1="),
        (True, f"2{EOS}"),
        (False, "9+8="),
        (True, "</think>"),
        (False, f"17{EOS}"),
    ]


def test_templates_that_change_what_was_said_are_refused(tokenizer: Any) -> None:
    twice = talk(("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"))
    for template, said in ((FORGETFUL, "changes earlier turns"), (SHOUTING, "changes what the assistant says")):
        tokenizer.chat_template = template
        with pytest.raises(ConfigError, match=said):
            ConversationEncoder(tokenizer, True).encode(twice)
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="has no chat template"):
        ConversationEncoder(tokenizer, True)


def test_a_packed_row_predicts_every_learned_token_from_the_one_before() -> None:
    first = Example((5, 6, 7, 8), (False, False, True, True))
    second = Example((1, 2, 3), (False, True, False))
    row = packed_row([first, second], [1, 0], torch.device("cpu"))
    assert row.tokens.tolist() == [[1, 2, 3, 5, 6, 7, 8]]
    assert row.rows.tolist() == [0, 4, 5]
    assert row.targets.tolist() == [2, 7, 8]
    assert row.sequence.tolist() == [0, 1, 1]
    assert row.layout.positions.tolist() == [[0, 1, 2, 0, 1, 2, 3]]
    dummy = packed_row([first], [], torch.device("cpu"))
    assert dummy.targets.numel() == 0
    with pytest.raises(ValueError, match="nothing predicts its first one"):
        Example((1, 2), (True, True))


USER = {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "row 2: it is not JSON"),
        ('{"messages": []}', "row 2: `messages`"),
        (json.dumps({"messages": [USER, USER]}), "no turn is the assistant's"),
        (json.dumps({"messages": [{"role": "assistant", "content": "x"}, USER]}), "cannot speak first"),
        (json.dumps({"messages": [USER, {"role": "robot", "content": "x"}]}), "row 2: `messages.1.role`"),
        (json.dumps({"text": "x"}), "row 2: `messages`"),
        (json.dumps({"messages": [USER, {"role": "assistant", "content": []}]}), "row 2: `messages.1.content"),
    ],
)
def test_data_that_cannot_be_used_names_its_row(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(f"{talk(('user', 'x'), ('assistant', 'y')).model_dump_json()}\n{line}\n")
    with pytest.raises(ConfigError) as error:
        list(read_conversations(path))
    assert said in str(error.value)
    assert str(path) in str(error.value)


def test_data_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="data is no JSON: it begins with"):
        list(read_conversations(tmp_path / "data"))


RATES = OptimizerConfig(
    method=AdamWConfig(learning_rate=1e-2), schedule=ScheduleConfig(warmup_updates=0), grad_clip=1.0
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "data.jsonl"
    said = [talk(("user", "x" * number), ("assistant", "yz" * (1 + number % 3))) for number in range(1, 13)]
    path.write_text("\n\n".join(one.model_dump_json() for one in said))
    return path


def config(base: Path, data: Path, home: Path, **changes: Any) -> SftConfig:
    fields: dict[str, Any] = {
        "home": home, "model": str(base), "data": data, "out": home / "out", "chat_template": False, "dtype": "float32",
        "updates": 12, "batch": 4, "checkpoint_updates": 5, "heldout": 2, "optimizer": RATES,
    }  # fmt: skip
    return SftConfig(**(fields | changes))


class StoppedRun(SftRun):
    """Asked to stop before a certain update."""

    def __init__(self, settings: SftConfig, before: int) -> None:
        super().__init__(settings, Placement())
        self._before = before

    def _update(self) -> None:
        super()._update()
        if self._learner.updates == self._before:
            self.stop()


def records(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home / "metrics.jsonl").read_text().splitlines()]


def test_the_data_is_learned_and_the_model_can_be_loaded(base: Path, data: Path, tmp_path: Path) -> None:
    assert SftRun(config(base, data, tmp_path, updates=32, checkpoint_updates=20), Placement()).run() == EXIT_DONE
    lines = records(tmp_path)
    assert [line["step"] for line in lines] == list(range(1, 33))
    assert lines[-1]["loss"] < lines[0]["loss"] / 2
    assert [line["step"] for line in lines if "heldout_loss" in line] == [20, 32]
    assert lines[-1]["heldout_loss"] < lines[0]["loss"] / 2
    Policy(tmp_path / "out")
    assert "muster_trainer_heldout_loss" in (tmp_path / "metrics.prom").read_text()


@pytest.fixture(scope="module")
def steady(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a run that nobody stops."""
    home = tmp_path_factory.mktemp("steady")
    assert SftRun(config(base, data, home), Placement()).run() == EXIT_DONE
    return home


@pytest.mark.parametrize("before", [3, 5, 11])
def test_a_stopped_run_goes_on_to_the_same_weights(
    base: Path, data: Path, steady: Path, tmp_path: Path, before: int
) -> None:
    stopped = config(base, data, tmp_path / "stopped")
    assert StoppedRun(stopped, before).run() == EXIT_STOPPED
    assert not stopped.out.exists()
    assert SftRun(stopped, Placement()).run() == EXIT_DONE
    assert file_digests(stopped.out) == file_digests(steady / "out")
    told = [[(line["step"], line["loss"]) for line in records(home)] for home in (steady, stopped.home)]
    assert told[0] == told[1]


def test_a_run_that_is_over_is_only_written_again_and_another_one_is_refused(
    base: Path, data: Path, tmp_path: Path
) -> None:
    settings = config(base, data, tmp_path, updates=5)
    assert SftRun(settings, Placement()).run() == EXIT_DONE
    written = file_digests(settings.out)
    assert SftRun(settings, Placement()).run() == EXIT_DONE
    assert file_digests(settings.out) == written
    with pytest.raises(ConfigError, match="holds checkpoints of another fine-tuning"):
        SftRun(config(base, data, tmp_path, updates=6), Placement()).run()


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_checkpoint(
    base: Path, data: Path, tmp_path: Path
) -> None:
    wild = OptimizerConfig(method=AdamWConfig(learning_rate=1e30), schedule=ScheduleConfig(warmup_updates=0))
    settings = config(base, data, tmp_path, optimizer=wild, checkpoint_updates=1)
    with pytest.raises(UnstableError, match="the last checkpoint is kept; lower the learning rate"):
        SftRun(settings, Placement()).run()
    assert not settings.out.exists()


def test_settings_that_leave_nothing_to_do_are_refused(base: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has 0 conversations that fit, 2 of them held out"):
        SftRun(config(base, data, tmp_path, max_tokens=3), Placement())
    for epochs, updates in ((None, None), (1, 3)):
        with pytest.raises(ValidationError, match="either `epochs` or `updates`"):
            config(base, data, tmp_path, epochs=epochs, updates=updates)


def test_every_epoch_takes_every_example_once_in_an_order_of_its_own(base: Path, data: Path, tmp_path: Path) -> None:
    settings = config(base, data, tmp_path, updates=None, epochs=3, batch=4)
    taken = [batch_indices(settings, 10, update) for update in range(8)]
    assert [len(batch) for batch in taken] == [4] * 7 + [2]
    stream = [place for batch in taken for place in batch]
    epochs = [stream[start : start + 10] for start in (0, 10, 20)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def fine_tuned(ranks: Ranks, settings: SftConfig) -> int:
    return SftRun(settings, make_placement(settings.parallel, settings.memory, "cpu", ranks)).run()


def test_two_ranks_learn_what_one_process_learns(base: Path, data: Path, steady: Path, tmp_path: Path) -> None:
    assert on_ranks(2, fine_tuned, config(base, data, tmp_path)) == [EXIT_DONE, EXIT_DONE]
    losses = [[line["loss"] for line in records(home)] for home in (steady, tmp_path)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    alone, together = (load_file(home / "out" / "model.safetensors") for home in (steady, tmp_path))
    assert largest_difference(alone, {name: together[name] for name in alone}) < 1e-4


def test_the_command_fine_tunes_and_names_what_is_wrong(base: Path, data: Path, tmp_path: Path) -> None:
    settings, muster = config(base, data, tmp_path, updates=2), Muster(tmp_path)
    (tmp_path / "sft.json").write_text(settings.model_dump_json())
    done = muster.ok("pool", "train", "--sft", tmp_path / "sft.json")
    assert "update 2 of 2: loss" in done.err
    assert (tmp_path / "out" / "model.safetensors").is_file()
    (tmp_path / "wrong.toml").write_text('home = "h"\nmodel = "m"\ndata = "d"\nout = "o"\nepoch = 1\n')
    assert "wrong.toml: `epoch`" in muster.refused("pool", "train", "--sft", tmp_path / "wrong.toml")
    other = settings.model_copy(update={"home": tmp_path / "other", "data": tmp_path / "none"})
    (tmp_path / "none.json").write_text(other.model_dump_json())
    assert "cannot read" in muster.refused("pool", "train", "--sft", tmp_path / "none.json")


def test_loss_and_gradient_are_those_of_the_formula_over_learned_tokens(base: Path) -> None:
    examples = [
        Example(tuple(range(3, 14)), (False,) * 3 + (True,) * 8),
        Example((9, 8, 7, 6, 5), (False, False, True, False, True)),
        Example((9, 8), (False, True)),
    ]
    model: Any = load_model(base, "float32").requires_grad_(True)
    lost = []
    for one in examples:
        logs = torch.log_softmax(model(input_ids=torch.tensor([one.tokens])).logits[0], -1)
        lost += [-logs[at - 1, one.tokens[at]] for at, wanted in enumerate(one.learned) if wanted]
    mean = torch.stack(lost).mean()
    torch.autograd.backward([mean])
    wanted_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
    learner = SftLearner(Policy(base), RATES, 10)
    assert learner.loss(examples) == pytest.approx(float(mean.detach()), abs=1e-5)
    metrics = learner.update(examples)
    assert metrics.grad_norm == pytest.approx(float(wanted_norm), rel=1e-5)
    assert metrics.loss == pytest.approx(float(mean.detach()), abs=1e-5)
    assert learner.loss(examples) < metrics.loss
