"""Where the sequences of one packed row lie, and how attention takes them apart again."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

# A shorter sequence joins a group whose longest it reaches to three quarters, or nearly: a call costs like some tokens.
_SHARE, _SLACK = 0.75, 16


@dataclass(frozen=True)
class AttentionGroups:
    """Sequences of like length side by side, padded on the right to the longest of their group.

    take: [P] int64, the packed token that stands at each padded place (some token of its sequence where padding
    stands). places: [L] int64, the padded place of each packed token. shapes: (sequences, length) of each group.
    """

    take: Tensor
    places: Tensor
    shapes: tuple[tuple[int, int], ...]

    @property
    def padded(self) -> bool:
        return self.take.numel() > self.places.numel()

    @property
    def sizes(self) -> list[int]:
        """Padded tokens of each group."""
        return [count * length for count, length in self.shapes]


class PackedLayout:
    """Sequences of these `lengths` one after another in a row of L tokens, on a device."""

    def __init__(self, lengths: Sequence[int], device: torch.device | str = "cpu") -> None:
        if not lengths or min(lengths) < 1:
            raise ValueError("a packed row holds at least one sequence, and no empty ones")
        self.lengths, self.device = tuple(lengths), torch.device(device)

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    @property
    def longest(self) -> int:
        return max(self.lengths)

    @cached_property
    def positions(self) -> Tensor:
        """[1, L] int64: from 0 in every sequence."""
        return torch.cat([torch.arange(length) for length in self.lengths]).unsqueeze(0).to(self.device)

    @cached_property
    def bounds(self) -> Tensor:
        """[S + 1] int32: where each sequence begins, and the end of the last."""
        return torch.tensor([0, *accumulate(self.lengths)], dtype=torch.int32, device=self.device)

    @cached_property
    def groups(self) -> AttentionGroups:
        """Neighbours of like length together: few groups where the row is ordered by length."""
        starts = [0, *accumulate(self.lengths)]
        take, places, shapes, offset = [], [], [], 0
        for first, last in _runs(self.lengths):
            longest = max(self.lengths[first:last])
            for number in range(first, last):
                length = self.lengths[number]
                within = torch.arange(longest)
                take.append(starts[number] + within.clamp(max=length - 1))
                places.append(offset + within[:length])
                offset += longest
            shapes.append((last - first, longest))
        return AttentionGroups(torch.cat(take).to(self.device), torch.cat(places).to(self.device), tuple(shapes))


def _runs(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive (first, last + 1) whose lengths are alike enough for one padded call."""
    runs, first, low, high = [], 0, lengths[0], lengths[0]
    for number, length in enumerate(lengths):
        low, high = min(low, length), max(high, length)
        if low < _SHARE * high - _SLACK:
            runs.append((first, number))
            first, low, high = number, length, length
    return [*runs, (first, len(lengths))]
