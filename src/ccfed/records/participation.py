"""Who took part in which round: the contents of participation.npz."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

DENSE_CELLS = 10**7


def participation(
    took_part: Sequence[tuple[NDArray[Any], NDArray[Any]]], clients: int, bytes_up: Tensor, bytes_down: Tensor
) -> dict[str, NDArray[Any]]:
    """From each round's selected clients (int64 [S]) and who of them trained (bool [S]), and from each client's bytes
    (int64 [clients]): `selected` and `trained`, bool [rounds, clients], `bytes_up` and `bytes_down`.

    For huge federations there are instead the client numbers of each round one after another (`selected_ids`,
    `trained_ids`) with where each round starts (`selected_starts`, ...).
    """
    traffic = {"bytes_up": bytes_up.numpy(), "bytes_down": bytes_down.numpy()}
    chosen = [ids for ids, _ in took_part]
    trained = [ids[did] for ids, did in took_part]
    if len(took_part) * clients <= DENSE_CELLS:
        return {"selected": _dense(chosen, clients), "trained": _dense(trained, clients), **traffic}
    return {
        "selected_ids": np.concatenate(chosen),
        "selected_starts": np.cumsum([0, *map(len, chosen)]),
        "trained_ids": np.concatenate(trained),
        "trained_starts": np.cumsum([0, *map(len, trained)]),
        **traffic,
    }


def _dense(ids: list[NDArray[Any]], clients: int) -> NDArray[np.bool_]:
    out = np.zeros((len(ids), clients), dtype=np.bool_)
    for row, these in zip(out, ids, strict=True):
        row[these] = True
    return out
