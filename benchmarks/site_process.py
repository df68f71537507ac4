"""A keeper or a site of `python -m benchmarks site_faults` as a process: `python -m benchmarks.site_process FILE`.

Everything is as in `muster site`, but for the inner steps, which cost next to nothing.
"""

import sys
from pathlib import Path
from typing import Literal

from benchmarks.site_letters import LetterTable
from protocol.accounts import Account
from protocol.encoding import Document, load_document
from protocol.lifetime import die_with_parent
from protocol.sites.outer import OuterState
from protocol.sites.run import SitesRun
from runtime.logs import start_logging
from runtime.process import make_home, serve
from storage.s3 import Bucket, S3Settings
from trainer.sites.exchange import SiteExchange
from trainer.sites.home import hold_home
from trainer.sites.keeper import SitesKeeper
from trainer.sites.main import KeeperDaemon, SiteDaemon
from trainer.sites.site import Site


class SiteProcessConfig(Document):
    """`secret`: the key, 32 bytes in hex: of a run that is over in minutes. `saving_seconds`: that writing the inner
    work takes, in the background."""

    role: Literal["keeper", "site"]
    home: Path
    run: Path
    s3: S3Settings
    secret: str
    poll_seconds: float = 0.3
    steps: int = 0
    saving_seconds: float = 0.0


def main() -> None:
    start_logging()
    die_with_parent()
    config = load_document(Path(sys.argv[1]), SiteProcessConfig)
    make_home(config.home)
    held = hold_home(config.home)
    run, account = load_document(config.run, SitesRun), Account.from_key(config.secret)
    exchange = SiteExchange(Bucket(config.s3), run)
    if config.role == "keeper":
        keeper = SitesKeeper(exchange, account, OuterState.start(LetterTable().weights()), config.home)
        serve(KeeperDaemon(keeper, config, held), grace=None)
    table = LetterTable(saving=config.saving_seconds)
    serve(SiteDaemon(Site(exchange, account, table, config.home), config, held), grace=None)


if __name__ == "__main__":
    main()
