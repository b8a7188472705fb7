"""A data set on its own, and a data set dealt out to clients."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ccfed.data.inputs import Inputs

if TYPE_CHECKING:
    from ccfed.data.describe import Holdings
    from ccfed.data.splits import Split


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and labels as tensors, stored as they came (images as uint8), with the way to turn them into inputs.

    `train_x` is [n, *sample shape], `train_y` int64 [n]; `test_x` and `test_y` alike. `classes` names the labels.
    """

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]
    inputs: Inputs = field(default_factory=Inputs)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample, such as (1, 28, 28)."""
        return tuple(self.train_x.shape[1:])

    def examples(self) -> Tensor:
        """Samples to try a model on, as stored: the first two, or those with the lowest and highest of token ids."""
        if self.train_x.dtype != torch.int64:
            return self.train_x[:2]
        samples = torch.cat([self.train_x, self.test_x])
        ids = samples.flatten(1)
        return samples[[int(ids.amin(1).argmin()), int(ids.amax(1).argmax())]]

    def split(self, how: "Split", clients: int, seed: int = 0) -> "Federation":
        """Deals the training samples to `clients` clients: `data.load("digits").split(data.mixed(iid=0.0), 8)`."""
        return Federation(self, how(self.train_y, clients, seed), how.name)


@dataclass(frozen=True, eq=False)
class Federation:
    """A data set and who holds which of its training samples.

    `parts[i]` are the indices (int64) of client i's samples; they are kept as one long tensor `members` with
    client i's run starting at `offsets[i]` (int64 [clients + 1]), which a million clients can afford.
    """

    data: Dataset
    parts: "Parts"
    split_name: str

    @property
    def clients(self) -> int:
        """The number of clients N."""
        return len(self.parts)

    @property
    def sizes(self) -> Tensor:
        """The number of samples of each client: int64 [clients]."""
        return self.parts.sizes

    def describe(self) -> "Holdings":
        """Who holds what: `print(federation.describe())` shows a table, `.plot("who.png")` draws it."""
        from ccfed.data.describe import holdings  # not before it is asked for: drawing takes a second to import

        return holdings(self)


@dataclass(frozen=True, eq=False)
class Parts:
    """Index lists of all clients in one tensor: client i holds `members[offsets[i]:offsets[i + 1]]`."""

    members: Tensor
    offsets: Tensor

    @classmethod
    def of(cls, lists: list[Tensor]) -> "Parts":
        """From one index tensor (int64) a client."""
        sizes = torch.tensor([0, *(len(part) for part in lists)])
        return cls(torch.cat(lists).to(torch.int64), sizes.cumsum(0))

    @property
    def sizes(self) -> Tensor:
        """The number of samples of each client: int64 [clients]."""
        return self.offsets.diff()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> Tensor:
        return self.members[int(self.offsets[client]) : int(self.offsets[client + 1])]
