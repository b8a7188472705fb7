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
        kept = torch.arange(1, clients, 2) if on_server is None else torch.as_tensor(on_server, dtype=torch.int64)
        if bool(((kept < 0) | (kept >= clients)).any()):
            raise ValueError(f"on_server is {tuple(kept.tolist())}, but the clients are 0 to {clients - 1}")
        there[kept] = True
        return there
    return torch.full((clients,), keep == "server")


class History:
    """The past of every client that ever trained; memory grows with their number, not with the federation's.

    Moves are [parameters] vectors in one of two tables, the clients' or the server's. The model a client trained from
    is the global model of that round, so one copy a round serves all who trained then; it is let go when none of them
    needs it, and not kept at all where no estimator looks at it (`keeps_origins`).
    """

    def __init__(
        self,
        on_server: Tensor,
        like: Tensor,
        state_size: int = 0,
        keeps: int = 1,
        store_dtype: torch.dtype | None = None,
        space: Space | None = None,
        keeps_origins: bool = True,
    ) -> None:
        clients, width = len(on_server), len(like)
        dtype = self.stored_as = store_dtype or like.dtype
        self.on_server, self.like, self.keeps, self._keeps_origins = on_server, like, keeps, keeps_origins
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
        self._put_moves(clients, moves)
        if self._states is not None and states is not None:
            self._states.put(clients, states)
        before, counts = self._round[clients].unique(return_counts=True)
        for old, count in zip(before.tolist(), counts.tolist(), strict=True):
            if old >= 0:
                self._users[old] -= count
                if self._users[old] == 0:
                    del self._users[old]
                    self._models.pop(old, None)
        self._round[clients] = round
        if self._keeps_origins:
            self._models[round] = model.clone()
        self._users[round] = len(clients)

    def last_moves(self, clients: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """The last move of each of `clients`, wherever it is kept: [C, parameters] as `dtype` (default: the model's),
        zeros where there is none."""
        there, dtype = self.on_server[clients], dtype or self.like.dtype
        if there.all():
            return self._at_server.get(clients, dtype)
        if not there.any():
            return self._on_clients.get(clients, dtype)
        moves = self.like.new_empty(len(clients), len(self.like), dtype=dtype)
        for table, mask in ((self._at_server, there), (self._on_clients, ~there)):
            moves[mask.to(moves.device)] = table.get(clients[mask], moves.dtype)
        return moves

    def trained_from(self, clients: Tensor) -> Tensor:
        """The global model each of `clients` last trained from: [C, parameters], zeros where there is none."""
        if len(clients) == 0:
            return self.like.new_empty(0, len(self.like))
        if not self._keeps_origins:
            raise ValueError("the estimator asks for trained_from, but was made with uses_trained_from=False")
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

    @property
    def bytes_each(self) -> int:
        """The bytes that the past of one client takes where it is kept."""
        return self.keeps * self._on_clients.width * self._on_clients.dtype.itemsize

    def storage_bytes(self) -> tuple[int, int]:
        """(on all clients together, on the server): bytes that the pasts take there."""
        each = self.bytes_each
        return each * self._on_clients.filled, each * self._at_server.filled

    def past_of(self, clients: Tensor) -> dict[str, Tensor]:
        """What is kept of `clients` (int64 [C], all with a past), as named tensors of C rows: `clients`, `round`,
        `moves` as they are stored, and `states` where the estimator notes something."""
        past = {"clients": clients, "round": self._round[clients], "moves": self.last_moves(clients, self.stored_as)}
        if self._states is not None:
            past["states"] = self.states(clients)
        return past

    @property
    def origins(self) -> dict[int, Tensor]:
        """The global models [parameters] that some client last trained from, by round."""
        return dict(self._models)

    def put_back(self, past: dict[str, Tensor]) -> None:
        """Takes what `past_of` gave; a client's last is kept. `put_back_origins` must follow."""
        clients = past["clients"]
        self._put_moves(clients, past["moves"].to(self.like.device))
        if self._states is not None:
            self._states.put(clients, past["states"].to(self.like.device))
        self._round[clients] = past["round"]

    def put_back_origins(self, origins: dict[int, Tensor]) -> None:
        """Takes what `origins` gave, when all pasts are put back; models that nobody needs are let go."""
        rounds, counts = self._round[self.owners()].unique(return_counts=True)
        self._users = dict(zip(rounds.tolist(), counts.tolist(), strict=True))
        self._models = {r: origins[r].to(self.like.device) for r in self._users} if self._keeps_origins else {}

    def stored_bytes(self) -> int:
        """The bytes that all pasts take in this process, models trained from not counted."""
        tables = [self._on_clients, self._at_server, *([self._states] if self._states is not None else [])]
        return sum(table.filled * table.width * table.dtype.itemsize for table in tables)

    def _put_moves(self, clients: Tensor, moves: Tensor) -> None:
        there = self.on_server[clients]
        for table, mask in ((self._at_server, there), (self._on_clients, ~there)):
            if mask.all():
                table.put(clients, moves)
            elif mask.any():
                table.put(clients[mask], moves[mask.to(moves.device)])
