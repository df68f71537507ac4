"""Which sequences share a forward pass of the verifier: the division that computes the fewest tokens, padding too."""

from collections.abc import Sequence

Sequences = Sequence[tuple[tuple[int, ...], tuple[int, ...]]]

# Tokens, padding included, in one forward pass.
PREFILL_TOKENS = 4096
# What a pass costs besides its tokens, in tokens.
_PASS = 256
# Passes end at multiples of this share of the largest possible.
_GRAIN = 8


def plan_passes(sequences: Sequences, members: Sequence[int], most: int, shared: bool) -> list[list[int]]:
    """The sequences at the places `members`, in passes of at most `most` and at most PREFILL_TOKENS (one at least).

    `shared`: prompts are computed once for all outputs of a pass that follow them, else they are part of each sequence.
    """
    if not members:
        return []
    places: dict[tuple[int, ...], int] = {}
    number = {at: places.setdefault(sequences[at][0], at) for at in members} if shared else {}

    def output(at: int) -> int:
        prompt, own = sequences[at]
        return len(own) + (0 if shared else len(prompt))

    # Neighbours of like length need little padding; neighbours with one prompt compute it once.
    orders = [sorted(members, key=output, reverse=True)]
    if shared:
        orders.append(sorted(members, key=lambda at: (len(sequences[at][0]), number[at], output(at)), reverse=True))
    plans = []
    for order in orders:
        facts = [(number.get(at, 0), len(sequences[at][0]) if shared else 0, output(at)) for at in order]
        cost, cuts = _cut(facts, most)
        plans.append((cost, [order[first:last] for first, last in cuts]))
    return min(plans, key=lambda plan: plan[0])[1]


def _cut(facts: Sequence[tuple[int, int, int]], most: int) -> tuple[int, list[tuple[int, int]]]:
    """The cheapest division of (prompt's number, its length, output's length) into consecutive passes: its cost in
    tokens, and where each pass begins and ends."""
    longest = max(max(prompt, output) for _, prompt, output in facts)
    base_unit = max(1, min(most, PREFILL_TOKENS // longest) // _GRAIN)
    ends = [*range(base_unit, len(facts), base_unit), len(facts)]
    best: dict[int, tuple[int, int]] = {0: (0, 0)}  # end → cost up to there, begin of its pass
    for first in (0, *ends[:-1]):
        prompts: set[int] = set()
        context, longest, start = 0, 0, first
        for last in (end for end in ends if end > first):
            for number, prompt, output in facts[start:last]:
                prompts.add(number)
                context, longest = max(context, prompt), max(longest, output)
            start = last
            before, after = len(prompts) * context, (last - first) * longest
            fits = last - first <= most and after <= PREFILL_TOKENS and (len(prompts) == 1 or before <= PREFILL_TOKENS)
            if not fits and last - first > base_unit:
                break
            cost = best[first][0] + _PASS + before + after
            if last not in best or cost < best[last][0]:
                best[last] = cost, first
    cuts, end = [], len(facts)
    while end:
        cuts.append((best[end][1], end))
        end = best[end][1]
    return best[len(facts)][0], cuts[::-1]
