"""How a trainer process uses its processor: one thread, and mathematics that are right from the first call."""

import torch


def quiet_threads(threads: int = 1) -> None:
    """Use `threads` threads, and touch MKL's elementary functions once.

    Several multi-threaded torch processes on few cores run many times slower together than one alone. The first use
    of MKL's vector functions has a rare race that leaves a wrong table (pytorch issue 188792).
    """
    torch.set_num_threads(threads)
    one = torch.ones(1)
    for function in (torch.cos, torch.sin, torch.exp, torch.log, torch.sqrt):
        function(one)
