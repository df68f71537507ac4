"""The supervisor of a lasting network, in the background: `python -m localnet.lasting.daemon --folder FOLDER`.

Started by `muster up`. SIGTERM takes the network down once the files under way are judged, a second one at once.
"""

import argparse
import os
from pathlib import Path

from localnet.lasting.folder import NetworkFolder
from localnet.lasting.leftovers import MARK, clean_up
from localnet.lasting.network import LastingNetwork
from localnet.services.process import lock_folder, run_service


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m localnet.lasting.daemon", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--folder", type=Path, required=True, help="the network's folder")
    folder = NetworkFolder.at(parser.parse_args().folder)
    settings = folder.known_settings()
    lock = lock_folder(folder.root, "network", "--folder")
    for name in clean_up(folder.root):
        print(f"left over from a supervisor that was killed, ended now: {name}", flush=True)
    os.environ[MARK] = str(folder.root)
    try:
        LastingNetwork(folder, settings).serve()
    finally:
        lock.release()
    return 0


if __name__ == "__main__":
    run_service(main)
