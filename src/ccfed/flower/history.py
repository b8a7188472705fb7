"""What the server knows of the devices' pasts: the moves that it keeps itself, and those that it was just sent."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ccfed.algorithm import History


class DeviceHistory(History):
    """A History whose clients keep their moves themselves: for as long as a round lasts, they lend them to it.

    Rounds, models trained from and an estimator's states are the server's, as in any History.
    """

    def __init__(
        self, on_server: Tensor, like: Tensor, state_size: int = 0, keeps: int = 1, keeps_origins: bool = True
    ) -> None:
        super().__init__(on_server, like, state_size, keeps, keeps_origins=keeps_origins)
        self._lent: dict[int, Tensor] = {}

    def lend(self, moves: Mapping[int, Tensor]) -> None:
        """The moves [parameters] that skipping clients have sent for this round; those of the round before are let
        go."""
        self._lent = dict(moves)

    def trained_later(self, client: int, round: int) -> None:
        """`client` has trained in `round` without the server's having heard of it then: not for estimators that ask for
        the model that it trained from."""
        self._leave(client)
        self._round[client] = round
        self._users[round] = self._users.get(round, 0) + 1

    def forget(self, client: int) -> None:
        """The device of `client` has lost its past: it is as if it had never trained."""
        self._leave(client)
        self._round[client] = -1
        if self._states is not None:
            self._states.put(torch.tensor([client]), self.like.new_zeros(1, self._states.width))

    def last_moves(self, clients: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """The last move of each of `clients`: [C, parameters], zeros where there is none. ValueError if it is on a
        device that has not sent it in this round."""
        dtype = dtype or self.like.dtype
        moves = self._at_server.get(clients, dtype)
        for row, client in enumerate(clients.tolist()):
            if client in self._lent:
                moves[row] = self._lent[client].to(moves.device, dtype)
            elif self._round[client] >= 0 and not self.on_server[client]:
                raise ValueError(
                    f"the estimator looks at the last move of client {client}, which keeps it itself and was not asked "
                    "for it in this round: choose keep='server'"
                )
        return moves

    def storage_bytes(self) -> tuple[int, int]:
        """(on all clients together, on the server): bytes that the pasts take there."""
        each = self.keeps * len(self.like) * self.like.element_size()
        there = self.on_server[self.owners()]
        return each * int((~there).sum()), each * int(there.sum())

    def put_back_rounds(self, clients: Tensor, rounds: Tensor, states: Tensor) -> None:
        """Takes the last `rounds` (int64 [C]) and noted `states` of all `clients` with a past; `put_back_origins` must
        follow."""
        self._round[clients] = rounds
        if self._states is not None:
            self._states.put(clients, states)

    def put_back_moves(self, clients: Tensor, moves: Tensor) -> None:
        """Takes the moves [C, parameters] that the server keeps."""
        self._put_moves(clients, moves)

    def _leave(self, client: int) -> None:
        """`client` needs the model of its last training no more."""
        before = int(self._round[client])
        if before < 0:
            return
        self._users[before] -= 1
        if self._users[before] == 0:
            del self._users[before]
            self._models.pop(before, None)

    def _put_moves(self, clients: Tensor, moves: Tensor) -> None:
        there = self.on_server[clients]
        if there.any():
            self._at_server.put(clients[there], moves[there.to(moves.device)])
