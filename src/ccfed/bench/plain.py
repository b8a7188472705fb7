"""FedAvg as anyone would write it around PyTorch, without ccfed's engines: what speeds are compared with."""

import copy
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ccfed.bench.works import Work
from ccfed.data import Inputs
from ccfed.models.network import build

TESTED_AT_ONCE = 1000


def plain_rounds(work: Work, rounds: int, device: torch.device) -> list[float]:
    """The seconds of each of `rounds` whole rounds of one federation: a loop over the selected clients, one step after
    another, the mean of their models, and the test. On a processor it uses as many threads as PyTorch is set to."""
    federation = work.federation(0)
    dataset, inputs = federation.data, federation.data.inputs
    net = build(work.maker, dataset.sample_shape, len(dataset.classes), 0).module.to(device)
    test_x, test_y = inputs.prepare(dataset.test_x.to(device)), dataset.test_y.to(device)
    draw = torch.Generator().manual_seed(0)
    clients = [Client(dataset.train_x[own].to(device), dataset.train_y[own].to(device), inputs, draw)
               for own in (federation.parts[i] for i in range(work.clients))]  # fmt: skip
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        start = copy.deepcopy(net.state_dict())
        trained = []
        for i in torch.randperm(work.clients, generator=draw)[: work.selected].tolist():
            net.load_state_dict(start)
            net.train()
            optimiser = torch.optim.SGD(net.parameters(), lr=work.lr)
            for x, y in clients[i].batches(work.steps, work.batch_size):
                optimiser.zero_grad()
                F.cross_entropy(net(x), y).backward()
                optimiser.step()
            trained.append(copy.deepcopy(net.state_dict()))
        net.load_state_dict({name: torch.stack([each[name] for each in trained]).mean(0) for name in start})
        _accuracy(net, test_x, test_y)
        seconds.append(time.perf_counter() - began)
    return seconds


class Client:
    """One client's images, made ready once unless they are to be cropped and flipped."""

    def __init__(self, x: Tensor, y: Tensor, inputs: Inputs, draw: torch.Generator) -> None:
        self.x, self.y, self.inputs, self.draw = x if inputs.augments else inputs.prepare(x), y, inputs, draw

    def batches(self, steps: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """So many batches, over as many shuffled epochs as it takes."""
        while steps > 0:
            for chosen in torch.randperm(len(self.y), generator=self.draw).to(self.y.device).split(size)[:steps]:
                x = self.x[chosen]
                yield (self.inputs.prepare(self._cropped(x)) if self.inputs.augments else x), self.y[chosen]
                steps -= 1

    def _cropped(self, images: Tensor) -> Tensor:
        """Each image cropped from itself with a black border, and mirrored every other time."""
        border, side = self.inputs.crop, images.shape[-1]
        windows = F.pad(images, (border,) * 4).unfold(2, side, 1).unfold(3, side, 1)
        rows, columns = torch.randint(2 * border + 1, (2, len(images)), generator=self.draw).to(images.device)
        cropped = windows[torch.arange(len(images), device=images.device), :, rows, columns]
        mirrored = torch.rand(len(images), generator=self.draw).to(images.device) < 0.5
        return torch.where(mirrored[:, None, None, None], cropped.flip(3), cropped)


@torch.no_grad()
def _accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    net.eval()
    pieces = zip(x.split(TESTED_AT_ONCE), y.split(TESTED_AT_ONCE), strict=True)
    return sum(float((net(a).argmax(1) == b).sum()) for a, b in pieces) / len(y)
