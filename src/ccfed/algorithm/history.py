"""Each client's past: its last move, where it is kept (client, server or mixed), and what that costs.

Algorithm 1 keeps a client's last move on the client, Algorithm 2 on the server, Algorithm 3 here for some and there
for others.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ccfed.algorithm.rows import Rows, Space

Keep = Literal["client", "server", "mixed"]
KEEPS: tuple[Keep, ...] = ("client", "server", "mixed")


def kept_on_server(keep: Keep, clients: int, on_server: Sequence[int] | None = None) -> Tensor:
    """Whose past the server keeps: bool [clients]. With "mixed", those in `on_server`; by default every other
    client."""
    if keep not in KEEPS:
        raise ValueError(f"--keep is {keep!r}, but it must be one of {', '.join(KEEPS)}")
    if keep == "mixed":
        there = torch.zeros(clients, dtype=torch.bool)
        there[torch.arange(1, clients, 2) if on_server is None else torch.as_tensor(on_server)] = True
        return there
    return torch.full((clients,), keep == "server")


class History:
    """The past of every client that ever trained; memory grows with their number, not with the federation's.

    Moves are [parameters] vectors in one of two tables, the clients' or the server's. The model a client trained from
    is the global model of that round, so one copy a round serves all who trained then; it is let go when none of them
    needs it.
    """

    def __init__(
        self,
        on_server: Tensor,
        like: Tensor,
        state_size: int = 0,
        keeps: int = 1,
        store_dtype: torch.dtype | None = None,
        space: Space | None = None,
    ) -> None:
        clients, width = len(on_server), len(like)
        dtype = store_dtype or like.dtype
        self.on_server, self.like, self.keeps = on_server, like, keeps
        self._on_clients = Rows(clients, width, dtype, like.device, space)
        self._at_server = Rows(clients, width, dtype, like.device, space)
        self._states = Rows(clients, state_size, like.dtype, like.device, space) if state_size else None
        self._round = torch.full((clients,), -1, dtype=torch.int64)
        self._models: dict[int, Tensor] = {}
        self._users: dict[int, int] = {}  # round -> how many clients last trained then

    def knows(self, clients: Tensor) -> Tensor:
        """Who of `clients` (int64 [C]) has a past: bool [C]."""
        return self._round[clients] >= 0

    def owners(self) -> Tensor:
        """All clients with a past, ascending: int64."""
        return (self._round >= 0).nonzero().flatten()

    def remember(self, round: int, model: Tensor, clients: Tensor, moves: Tensor, states: Tensor | None = None) -> None:
        """`clients` (int64 [C]) trained in `round` from `model` and made `moves` [C, parameters]."""
        if len(clients) == 0:
            return
        there = self.on_server[clients]
        for table, mask in ((self._at_server, there), (self._on_clients, ~there)):
            if mask.all():
                table.put(clients, moves)
            elif mask.any():
                table.put(clients[mask], moves[mask.to(moves.device)])
        if self._states is not None and states is not None:
            self._states.put(clients, states)
        before, counts = self._round[clients].unique(return_counts=True)
        for old, count in zip(before.tolist(), counts.tolist(), strict=True):
            if old >= 0:
                self._users[old] -= count
                if self._users[old] == 0:
                    del self._users[old], self._models[old]
        self._round[clients] = round
        self._models[round] = model.clone()
        self._users[round] = len(clients)

    def last_moves(self, clients: Tensor) -> Tensor:
        """The last move of each of `clients`, wherever it is kept: [C, parameters], zeros where there is none."""
        there = self.on_server[clients]
        if there.all():
            return self._at_server.get(clients, self.like.dtype)
        if not there.any():
            return self._on_clients.get(clients, self.like.dtype)
        moves = self.like.new_empty(len(clients), len(self.like))
        for table, mask in ((self._at_server, there), (self._on_clients, ~there)):
            moves[mask.to(moves.device)] = table.get(clients[mask], moves.dtype)
        return moves

    def trained_from(self, clients: Tensor) -> Tensor:
        """The global model each of `clients` last trained from: [C, parameters], zeros where there is none."""
        if len(clients) == 0:
            return self.like.new_empty(0, len(self.like))
        rounds, which = self._round[clients].unique(return_inverse=True)
        none = torch.zeros_like(self.like)
        models = torch.stack([self._models[r] if r >= 0 else none for r in rounds.tolist()])
        return models[which.to(models.device)]

    def last_rounds(self, clients: Tensor) -> Tensor:
        """The round in which each of `clients` last trained (-1: never): int64 [C]."""
        return self._round[clients]

    def states(self, clients: Tensor) -> Tensor:
        """What the estimator noted about each of `clients`: [C, state_size], zeros where nothing was."""
        if self._states is None:
            return self.like.new_zeros(len(clients), 0)
        return self._states.get(clients)

    def storage_bytes(self) -> tuple[int, int]:
        """(on all clients together, on the server): bytes that the pasts take there."""
        each = self.keeps * self._on_clients.width * self._on_clients.dtype.itemsize
        return each * self._on_clients.filled, each * self._at_server.filled

    def tensors(self) -> dict[str, Tensor]:
        """Everything needed to go on later, as named tensors."""
        owners = self.owners()
        out = {"round": self._round, "owners": owners, "moves": self.last_moves(owners)}
        out |= {f"model-{r}": model for r, model in self._models.items()}
        if self._states is not None:
            out["states"] = self.states(owners)
        return out

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Takes back what `tensors` gave, into a fresh History."""
        rounds, owners, moves = tensors["round"], tensors["owners"], tensors["moves"]
        for r in rounds[owners].unique().tolist():
            here = rounds[owners] == r
            states = tensors["states"][here] if "states" in tensors else None
            model = tensors[f"model-{r}"].to(self.like.device)
            states = None if states is None else states.to(self.like.device)
            self.remember(r, model, owners[here], moves[here].to(self.like.device), states)
