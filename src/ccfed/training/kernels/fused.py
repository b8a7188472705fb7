"""Which networks have fused kernels, and the one door to them."""

import torch
from torch import Tensor, nn

from ccfed.training.kernels.lenet import Block, Lenet, Stepper
from ccfed.training.kernels.perceptron import Perceptron, Precision, perceptron_steps
from ccfed.training.kernels.work import Work

# A stepper is made for a few more jobs than asked for, so that rounds with more of them do not need another.
SPARE = 8


def recognise(module: nn.Module, sample_shape: tuple[int, ...]) -> Perceptron | Lenet | None:
    """The kernels' name for `module`, an nn.Sequential of the layers they know with all parameters trained; else None.

    Known are [Flatten], Linear, [Dropout], ReLU, Linear (dropout on either side of the ReLU), and any number of Conv2d
    (odd size, stride 1, no padding), ReLU, MaxPool2d(2), then Flatten, Linear, ReLU, Linear, ReLU, Linear; all with
    bias.
    """
    if not isinstance(module, nn.Sequential) or not all(p.requires_grad for p in module.parameters()):
        return None
    if any(p.dtype != torch.float32 for p in module.parameters()):
        return None
    layers = list(module)
    linear = [layer for layer in layers if type(layer) is nn.Linear]
    if any(layer.bias is None for layer in linear):
        return None
    kinds = [type(layer) for layer in layers]
    flat = _flattens(layers[0]) if layers else False
    if len(linear) == 2 and kinds[-1] is nn.Linear and kinds[int(flat)] is nn.Linear:
        return _perceptron(layers[1 + int(flat) : -1], linear) if flat or len(sample_shape) == 1 else None
    return _lenet(layers, sample_shape) if len(linear) == 3 and len(sample_shape) == 3 else None


def _flattens(layer: nn.Module) -> bool:
    return type(layer) is nn.Flatten and layer.start_dim == 1 and layer.end_dim == -1


def _perceptron(between: list[nn.Module], linear: list[nn.Linear]) -> Perceptron | None:
    drop = [layer for layer in between if type(layer) is nn.Dropout]
    if len(drop) > 1 or sorted(type(layer).__name__ for layer in between) != ["Dropout"] * len(drop) + ["ReLU"]:
        return None
    first, second = linear
    p = drop[0].p if drop else 0.0
    return Perceptron(first.in_features, first.out_features, second.out_features, p) if p < 1 else None


def _lenet(layers: list[nn.Module], sample_shape: tuple[int, ...]) -> Lenet | None:
    tail = layers[-6:]
    if [type(layer).__name__ for layer in tail] != ["Flatten", "Linear", "ReLU", "Linear", "ReLU", "Linear"]:
        return None
    front = layers[:-6]
    if not _flattens(tail[0]) or not front or len(front) % 3:
        return None
    blocks, offset = [], 0
    channels, height, width = sample_shape
    for convolution, relu, pool in zip(front[::3], front[1::3], front[2::3], strict=True):
        if type(convolution) is not nn.Conv2d or type(relu) is not nn.ReLU or not _halves(pool):
            return None
        if not _plain(convolution):
            return None
        block = Block(channels, convolution.out_channels, convolution.kernel_size[0], height, width, offset)
        blocks.append(block)
        offset += block.parameters
        channels, (height, width) = block.outputs, block.pooled
    linear = [layer for layer in tail if isinstance(layer, nn.Linear)]
    first, second, third = linear
    return Lenet(tuple(blocks), (first.in_features, first.out_features, second.out_features, third.out_features))


def _halves(pool: nn.Module) -> bool:
    """Whether `pool` is max-pooling over 2x2 windows side by side."""
    if type(pool) is not nn.MaxPool2d:
        return False
    settings = (pool.kernel_size, pool.stride, pool.padding, pool.dilation)
    pairs = [setting if isinstance(setting, tuple) else (setting, setting) for setting in settings]
    return pairs == [(2, 2), (2, 2), (0, 0), (1, 1)] and not pool.ceil_mode and not pool.return_indices


def _plain(convolution: nn.Conv2d) -> bool:
    """Whether `convolution` is square and odd, with stride 1, without padding, dilation and groups, and with bias."""
    size = convolution.kernel_size
    return (
        size[0] == size[1]
        and size[0] % 2 == 1
        and convolution.stride == (1, 1)
        and convolution.padding in ((0, 0), 0, "valid")
        and convolution.dilation == (1, 1)
        and convolution.groups == 1
        and convolution.bias is not None
    )


class Fused:
    """The fused kernels of one network: `run` makes all steps of all jobs of a `Work`."""

    def __init__(self, model: Perceptron | Lenet, precision: Precision) -> None:
        self.model, self.precision = model, precision
        self._stepper: Stepper | None = None

    @property
    def drops(self) -> bool:
        """Whether the network has dropout, and `Work.dropout_keys` are read."""
        return isinstance(self.model, Perceptron) and self.model.drop > 0

    def run(self, params: Tensor, work: Work) -> Tensor:
        """Makes job j's `work.steps[j]` steps of SGD on `params[j]` (float32 [J, P], contiguous, changed in place).

        Returns float32 [J]: the sum over a job's steps of the mean training loss before the step. The host does not
        wait. A job's result does not depend on which jobs run beside it. The buffers of convolutional networks are kept
        for the next call; for J jobs of batches of B images they take about as much as 2 J B prepared images.
        """
        if isinstance(self.model, Perceptron):
            return perceptron_steps(params, self.model, work, self.precision)
        if self._stepper is None or not self._stepper.takes(work):
            self._stepper = None  # frees its memory first
            self._stepper = Stepper(self.model, _roomier(work), self.precision)
        return self._stepper.run(params, work)

    def release(self) -> None:
        """Gives the buffers back."""
        self._stepper = None


def fuse(
    module: nn.Module, sample_shape: tuple[int, ...], batch_size: int, precision: Precision = "ieee"
) -> Fused | None:
    """The fused kernels for `module` on samples of `sample_shape` in batches of `batch_size`, or None."""
    model = recognise(module, sample_shape)
    return None if model is None or model.refusal(batch_size) else Fused(model, precision)


def _roomier(work: Work) -> Work:
    """A work of the same data with room for more jobs; only its shapes matter."""
    jobs, most, batch = work.index.shape
    more = -(-jobs // SPARE) * SPARE
    device = work.x.device
    return Work(
        work.x,
        work.y,
        torch.zeros(more, most, batch, dtype=work.index.dtype, device=device),
        torch.zeros(more, dtype=work.steps.dtype, device=device),
        torch.zeros(more, device=device),
        work.inputs,
        None if work.augment_keys is None else torch.zeros(more, most, dtype=torch.int64, device=device),
    )
