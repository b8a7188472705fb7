"""What a round costs each selected client in traffic."""

from dataclasses import dataclass

import torch
from torch import Tensor

NOTICE_BYTES = 8  # "I skip this round": a client number and a flag


@dataclass(frozen=True)
class Traffic:
    """Bytes up and down of each selected client in one round: int64 [S], in the order of the selected clients."""

    up: Tensor
    down: Tensor


def traffic(model_bytes: int, trains: Tensor, speaks: Tensor, on_server: Tensor, foreseeable: bool) -> Traffic:
    """Traffic of the selected clients, given who `trains`, who `speaks` (trains or is estimated) and whose past the
    server keeps; all bool [S].

    A client that trains receives x_t and sends its move. One that skips with its past on the client (Algorithm 1) does
    the same, for it sends its estimate; with its past on the server (Algorithm 2) it sends a notice, and x_t
    need not reach it where the server can foresee the skip. A silent client costs nothing if foreseen; otherwise it is
    sent x_t and answers with a notice.
    """
    sends = trains | (speaks & ~on_server)
    quiet = ~speaks if foreseeable else torch.zeros_like(speaks)
    receives = sends if foreseeable else torch.ones_like(sends)
    up = torch.where(sends, model_bytes, NOTICE_BYTES)
    return Traffic(up.masked_fill(quiet, 0), receives * model_bytes)
