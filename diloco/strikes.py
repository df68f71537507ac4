"""Who holds up an outer step sits out the next ones."""

from pydantic import Field

from protocol.api.base import SignedBody

MAX_STEP = 1 << 32
MAX_STRIKES, MAX_DISPUTED = 7, 3
FORGIVEN_AFTER = 8


class Strikes(SignedBody):
    """The penalty of a worker that held up outer steps: the others lost an attempt or a timeout by it.

    Its contribution was refused, it signed two, fell silent, left with a part of the work, or could not use its files.
    The m-th strike excludes it from the 2^(m−1) − 1 outer steps after the next commit, at most 63. A strike is forgiven
    for every eight outer steps that it contributes to. A worker that says it cannot use a file may be right, and one
    that says it could may lie: by that alone it gets three strikes at most. `until`: the outer step it may take part in
    again; `made`: steps contributed to since a strike came or went."""

    count: int = Field(0, ge=0, le=64)
    until: int = Field(0, ge=0, lt=2 * MAX_STEP)
    made: int = Field(0, ge=0, le=64)

    def held_up(self, step: int, disputed: bool) -> "Strikes":
        """Return the strikes after outer step `step`, which the worker held up."""
        count = max(self.count, min(self.count + 1, MAX_DISPUTED if disputed else MAX_STRIKES))
        return Strikes(count=count, until=step + (1 << (count - 1)))

    def contributed(self) -> "Strikes":
        """Return the strikes after an outer step that was made of its contribution too."""
        if self.made + 1 < FORGIVEN_AFTER:
            return self.model_copy(update={"made": self.made + 1})
        return Strikes(count=self.count - 1, until=self.until)
