"""The shell of `muster validator up`: looks at chain and files, takes the next step, runs the process."""

import time
from dataclasses import dataclass, field
from pathlib import Path

import typer

from chain.client import ChainClient
from chain.indexer.records import Seat
from chain.suite import Suite
from cli.looks import unserved_pools
from cli.output import fields, seconds
from cli.profile import Profile
from cli.session import Session, open_session
from cli.up.keys import exists, open_profile_key
from cli.up.process import UpProcess
from cli.up.process_config import joined_config
from cli.up.steps import UpDo, UpStep
from cli.up.taking import take_shared
from cli.up.validator_steps import ValidatorFacts, next_step
from protocol.amounts import show_tokens
from protocol.errors import ConfigError
from protocol.files import write_atomic
from runtime.keystore import address_of
from validator.config import READY, UNSERVED

BONDING_GAS = 500_000
"""Approving and bonding a seat, with room; for each voting key."""
VOTING_GAS = 5_000_000
"""Some forty lanes."""
_LOOK_SECONDS, _REMIND_SECONDS = 1.0, 60.0


@dataclass
class ValidatorUp:
    """One validator's way to judging one pool. The process is started as soon as it is to become warm."""

    profile: Profile
    pool: int
    yes: bool = False
    session: Session = field(init=False)
    process: UpProcess | None = None
    _since: str = ""
    _said: tuple[str, float] = ("", 0.0)

    def __post_init__(self) -> None:
        self.session = open_session(self.profile.deployment, self.profile.rpc)
        if not self.profile.voters:
            raise ConfigError("the profile names no voting key", "add a table [[voters]], or: muster init validator")

    # ---- Looking

    def facts(self) -> ValidatorFacts:
        """What chain, files and process say now."""
        if not all(map(exists, (self.profile.key, *self.profile.voters))):
            return ValidatorFacts(self.pool)
        owner = address_of(self.profile.key.keystore)
        voters = [address_of(one.keystore) for one in self.profile.voters]
        client, state = self.session.client, self.session.state()
        pool = state.pools.get(self.pool)
        if pool is None:
            raise ConfigError(f"there is no pool {self.pool} on this deployment", "correct `pool` in the profile")
        price, seats = client.gas_price(), [seat for seat in state.seats.values() if seat.active]
        ours = {seat.voter: seat for seat in seats if seat.owner == owner}
        return ValidatorFacts(
            self.pool,
            owner,
            tuple((voter, client.balance(voter)) for voter in voters),
            agreed=self.yes or self._agreement.exists(),
            owner_wei=client.balance(owner),
            owner_needs=BONDING_GAS * len(voters) * price,
            voter_needs=VOTING_GAS * price,
            tokens=self.session.suite.token.balance_of(owner),
            bond=self.session.suite.seats.bond(),
            seated=frozenset(voter for voter in voters if _judges(ours.get(voter), pool.validator_group)),
            idle=frozenset(v for v in voters if v in ours and not _judges(ours[v], pool.validator_group)),
            foreign=frozenset(seat.voter for seat in seats if seat.voter in voters and seat.owner != owner),
            warm=self.process is not None and self.ready.exists(),
            pool_status=pool.status,
        )

    @property
    def ready(self) -> Path:
        """Appears once the process can judge."""
        return self.profile.home / READY

    @property
    def _agreement(self) -> Path:
        return self.profile.home / f"agreed-{self.pool}"

    # ---- Acting

    def prepare(self) -> None:
        """Take every step until all seats judge. Raises ConfigError if that cannot be."""
        while (step := next_step(facts := self.facts())).do is not UpDo.RUN:
            self.take(facts, step)

    def take(self, facts: ValidatorFacts, step: UpStep) -> None:
        """One step. Raises ConfigError for what only a person can change, ContractError for a refusal."""
        voters = ((f"voter {number}", key) for number, key in enumerate(self.profile.voters, 1))
        if take_shared(step, self.session.suite, (("owner", self.profile.key), *voters)):
            return
        if step.do is UpDo.ASK:
            self._ask(facts, step.amount)
        elif step.do is UpDo.WARM:
            self._warm(step)
        else:
            self._bond(step)

    def _ask(self, facts: ValidatorFacts, bonds: int) -> None:
        from cli.plan import confirm

        pool, values = self.session.state().pools[self.pool], self.session.suite.params.values()
        terms = {
            "pool": self.pool,
            "bond": f"{show_tokens(bonds)} tokens for {len(facts.voters)} seats",
            "fee": f"{show_tokens(pool.terms.fee)} tokens per file and seat that votes with the outcome",
            "a vote against the outcome": f"costs {show_tokens(values['minorityPenalty'])} tokens",
            "a vote that is missing": f"costs {show_tokens(values['withheldPenalty'])} tokens: keep it running",
            "a planted file let pass": f"costs {show_tokens(values['canarySlash'])} tokens",
            "a vote is due": f"within {seconds(pool.terms.commitWindow)}",
        }
        typer.echo(fields(terms))
        confirm("Bond under these terms, once the process can judge?")
        write_atomic(self._agreement, f"{int(time.time())}\n".encode())

    def start(self) -> None:
        """Start the process, which becomes warm by itself."""
        path = joined_config(self.profile, unattended=True)
        for told in (self.ready, self.profile.home / UNSERVED):
            told.unlink(missing_ok=True)
        self.process = UpProcess("validator", self.profile, path)
        self.process.start()

    def _warm(self, step: UpStep) -> None:
        if self.process is None:
            typer.echo(f"{step.why}; seats are bonded after that")
            self._since, self._said = time.strftime("%H:%M:%S"), ("", time.monotonic())
            self.start()
        else:
            self.process.check()
            self._say_why()
            time.sleep(_LOOK_SECONDS)

    def _say_why(self) -> None:
        """What the process, which tries again by itself, says of why it is not ready: when that changes, and every
        minute."""
        why, (said, when) = unserved_pools(self.profile.home).get(str(self.pool), ""), self._said
        if why != said or time.monotonic() >= when + _REMIND_SECONDS:
            self._said = why, time.monotonic()
            typer.echo(f"waiting for the process to be ready since {self._since}" + (f": {why}" if why else ""))

    def _bond(self, step: UpStep) -> None:
        client = ChainClient(
            self.session.client.provider.urls,
            self.session.client.chain_id,
            open_profile_key(self.profile.key, "owner key"),
        )
        seats, state = Suite(client, self.session.deployment, check=False).seats, self.session.state()
        wanted = state.pools[self.pool].validator_group
        if step.do is UpDo.BOND:
            number = seats.open_seat(step.address, [wanted]).send()
        else:
            number = next(seat.seat for seat in state.seats.values() if seat.active and seat.voter == step.address)
            seats.opt_in(number, wanted).send()
        typer.echo(f"{step.why}: seat {number}, from the next epoch on")
        client.close()


def _judges(seat: Seat | None, wanted: int) -> bool:
    return seat is not None and wanted in seat.groups
