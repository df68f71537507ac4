"""How requests tell what we want of them: words that vLLM hands on to whatever runs beside its model."""

from typing import Any, NamedTuple

# Of a request that is sampled: ticket, noise key, temperature, tokens of the rollout sampled before, and their tail.
NOISE = "muster_noise"
# A request that is only prefilled: its ticket, and how many of its last rows are wanted.
PREFILL = "muster_prefill"


class NoiseRequest(NamedTuple):
    """A completion. `sampled`: tokens of the rollout before it; `tail`: hidden states of their last chunk."""

    ticket: int
    key: tuple[int, int, int]
    temperature: float
    sampled: int
    tail: bytes

    def extra(self) -> dict[str, Any]:
        return {NOISE: [self.ticket, list(self.key), self.temperature, self.sampled, self.tail]}


class PrefillRequest(NamedTuple):
    """A prompt whose last `wanted` rows are looked at."""

    ticket: int
    wanted: int

    def extra(self) -> dict[str, Any]:
        return {PREFILL: [self.ticket, self.wanted]}


def request_of(params: Any) -> NoiseRequest | PrefillRequest | None:
    """Return ours, from vLLM's sampling parameters; None for a request that vLLM made for itself."""
    extra = (params.extra_args or {}) if params else {}
    if NOISE in extra:
        ticket, (k0, k1, k2), temperature, sampled, tail = extra[NOISE]
        return NoiseRequest(ticket, (k0, k1, k2), temperature, sampled, tail)
    return PrefillRequest(*extra[PREFILL]) if PREFILL in extra else None
