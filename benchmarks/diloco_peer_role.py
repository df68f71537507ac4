"""A replica group of torchft's DiLoCo, as a process: `python -m benchmarks.diloco_peer_role OPTIONS`. The first has the
lighthouse too."""

import hashlib
import json
import sys
import time
from contextlib import ExitStack
from datetime import timedelta
from importlib import import_module
from typing import Any

import torch

PORT, SYNC_EVERY = 29510, 2


def main() -> None:
    options = json.loads(sys.argv[1])
    print(json.dumps(replica(**options)), flush=True)


def replica(host: str, lighthouse: str, number: int, sites: int, parameters: int, steps: int) -> dict[str, Any]:
    """`seconds`: of each outer step; `taking_part`: replicas in the last one; `digest`: of the weights in the end."""
    torch.set_num_threads(1)
    torchft, coordination = import_module("torchft"), import_module("torchft.coordination")
    diloco: Any = import_module("torchft.local_sgd").DiLoCo
    torch.manual_seed(0)  # all begin alike: a state that they would fetch is served under the name of the machine
    model: Any = torch.nn.ParameterList([torch.randn(part) for part in _parts(parameters)])
    inner: Any = torch.optim.SGD(model.parameters(), lr=1e-3)
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    with ExitStack() as stack:
        if number == 0:
            served = coordination.LighthouseServer(bind=f"[::]:{PORT}", min_replicas=sites, join_timeout_ms=60_000)
            stack.callback(served.shutdown)
        store: Any = import_module("torch.distributed").TCPStore(host, 0, is_master=True, wait_for_workers=False)
        manager = torchft.Manager(
            pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=60)), load_state_dict=model.load_state_dict,
            state_dict=model.state_dict, min_replica_size=sites, use_async_quorum=False, timeout=timedelta(seconds=120),
            quorum_timeout=timedelta(seconds=120), connect_timeout=timedelta(seconds=120), rank=0, world_size=1,
            store_addr=host, store_port=store.port, lighthouse_addr=f"http://{lighthouse}:{PORT}",
            replica_id=f"site{number}_", hostname=host, quorum_retries=10, init_sync=False,
        )  # fmt: skip
        stack.callback(manager.shutdown, wait=False)
        seconds = []
        with diloco(manager, [model], inner, outer, sync_every=SYNC_EVERY):
            while manager.current_step() < steps:
                began = time.monotonic()
                for _ in range(SYNC_EVERY):
                    for one in model.parameters():
                        one.grad = torch.full_like(one, number + 1.0)
                    inner.step()
                seconds.append(round(time.monotonic() - began, 3))
        digest = hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in model.parameters())).hexdigest()
        return {"seconds": seconds, "taking_part": manager.num_participants(), "digest": digest}


def _parts(parameters: int) -> list[int]:
    """As many tensors as a model of three layers has, about."""
    size = parameters // 30
    return [size] * 29 + [parameters - 29 * size]


if __name__ == "__main__":
    main()
