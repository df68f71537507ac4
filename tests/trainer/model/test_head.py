"""The chunked head against plain log_softmax over whole logits, values and gradients."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from protocol.errors import ConfigError
from tests.trainer.model.architectures import architecture
from trainer.model.head import ChunkedHead, HeadTask, install_head


def a_head(hidden: int, vocabulary: int, bias: bool, dtype: torch.dtype) -> ChunkedHead:
    head = ChunkedHead(hidden, vocabulary, bias=bias, dtype=dtype)
    for parameter in head.parameters():
        nn.init.normal_(parameter, std=0.5)
    return head


def plain(head: nn.Linear, hidden: Tensor, task: HeadTask) -> tuple[Tensor, Tensor]:
    logits = nn.functional.linear(hidden[0][task.rows], head.weight, head.bias)
    logs = torch.log_softmax(logits / task.temperature, -1)
    return logs.gather(-1, task.targets[:, None])[:, 0], -(logs.exp() * logs).sum(-1)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 9), st.integers(1, 12), st.booleans(), st.booleans(), st.sampled_from([0.7, 1.0]), st.data())
def test_chunked_equals_plain_within_1e_6(
    rows: int, chunk: int, bias: bool, entropy: bool, temperature: float, data: st.DataObject
) -> None:
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    head = a_head(8, 23, bias, torch.float64)
    head.chunk_bytes = 4 * 23 * chunk
    hidden = torch.randn(1, 11, 8, dtype=torch.float64, requires_grad=True)
    task = HeadTask(torch.randint(0, 11, (rows,)), torch.randint(0, 23, (rows,)), temperature, entropy)
    head.task = task
    logp, spread = head(hidden)[0].unbind(-1)
    wanted_logp, wanted_spread = plain(head, hidden, task)
    assert torch.allclose(logp, wanted_logp, atol=1e-6)
    assert torch.allclose(spread, wanted_spread, atol=1e-6)
    weights = torch.randn(2, rows, dtype=torch.float64)
    inputs = [hidden, *head.parameters()]
    got = torch.autograd.grad((weights[0] * logp + entropy * weights[1] * spread).sum(), inputs)
    wanted_loss = (weights[0] * wanted_logp + entropy * weights[1] * wanted_spread).sum()
    for ours, theirs in zip(got, torch.autograd.grad(wanted_loss, inputs), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("kind", ["qwen2 tied", "llama untied", "phi bias"])
def test_a_model_keeps_its_parameters_and_gradients(kind: str) -> None:
    plainly, chunked = architecture(kind, torch.float64), architecture(kind, torch.float64)
    head = install_head(chunked, chunk_bytes=4 * 97 * 3)
    assert dict(chunked.named_parameters()).keys() == dict(plainly.named_parameters()).keys()
    assert chunked.state_dict().keys() == plainly.state_dict().keys()
    tokens = torch.arange(2, 19)[None]
    head.task = HeadTask(torch.arange(4, 16), tokens[0, 5:17], 0.9)
    logp, entropy = chunked(input_ids=tokens, use_cache=False).logits[0].unbind(-1)
    logs = (plainly(input_ids=tokens, use_cache=False).logits[0, 4:16] / 0.9).log_softmax(-1)
    wanted = logs.gather(-1, tokens[0, 5:17, None])[:, 0]
    assert torch.allclose(logp, wanted, atol=1e-6)
    (logp - entropy).sum().backward()
    (wanted + (logs.exp() * logs).sum(-1)).sum().backward()
    for (name, one), other in zip(chunked.named_parameters(), plainly.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-6), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_add_up_in_one_buffer(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    """The gradient of two rows is the sum of theirs; nothing else of the weight's size is made for the second, nor for
    the products of a narrower type."""
    monkeypatch.setattr("trainer.model.head._PRODUCT", 50)
    torch.manual_seed(0)
    head = a_head(16, 300, False, torch.float32)
    rows = [torch.randn(1, 9, 16) for _ in range(2)]
    head.task = HeadTask(torch.arange(9), torch.randint(0, 300, (9,)))

    def run(chosen: list[Tensor]) -> Tensor:
        head.weight.grad = None
        for row in chosen:
            with torch.autocast("cpu", dtype, enabled=dtype == torch.bfloat16):
                head(row)[..., 0].sum().backward()
        assert head.weight.grad is not None
        return head.weight.grad

    one, other = (run([row]).clone() for row in rows)
    assert torch.allclose(run(rows), one + other, rtol=1e-5, atol=1e-6)
    made: list[int] = []

    class Sizes(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            known = {one.untyped_storage().data_ptr() for one in args if isinstance(one, Tensor)}
            if isinstance(result, Tensor) and result.untyped_storage().data_ptr() not in known:
                made.append(result.numel())
            return result

    with torch.autocast("cpu", dtype, enabled=dtype == torch.bfloat16):
        loss = head(rows[1])[..., 0].sum()
    with Sizes():  # type: ignore[no-untyped-call]
        loss.backward()
    copies = dtype == torch.bfloat16  # of the weight, for the products
    assert sum(size >= head.weight.numel() for size in made) == copies


def test_logits_of_more_than_a_chunk_never_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    linear = nn.functional.linear

    def watched(*arguments: Any) -> Tensor:
        made = linear(*arguments)
        sizes.append(made.shape[0])
        return made

    head = a_head(8, 23, False, torch.float32)
    head.chunk_bytes = 4 * 23 * 5
    head.task = HeadTask(torch.arange(17), torch.arange(17))
    monkeypatch.setattr(nn.functional, "linear", watched)
    head(torch.randn(1, 17, 8, requires_grad=True)).sum().backward()
    assert sizes == [5, 5, 5, 2] * 2


def test_a_head_without_a_task_and_one_that_is_no_projection_are_refused() -> None:
    with pytest.raises(RuntimeError, match="needs its task"):
        a_head(4, 7, False, torch.float32)(torch.zeros(1, 3, 4))
    model = architecture("qwen2 tied")
    model.set_output_embeddings(nn.Sequential())
    with pytest.raises(ConfigError, match="not a linear projection"):
        install_head(model)
