"""The common layers for many clients at once, each with its forward and backward pass written out.

A layer turns x [J, B, ...] into y with the parameters of J clients, [J, ...] each. Plain SGD is linear in the
gradient, so the learning rate goes into the loss's gradient once and every layer takes its own step while it passes
the gradient on: gradient and update are one matrix product, and no gradient is ever stored.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ccfed.algorithm import streams

Params = dict[str, Tensor]

# Choices of dropout are drawn for several steps at once as long as there are not more of them than this.
DRAWN_AT_ONCE = 2**20

# With so few channels a convolution leaves half of a processor's vector unit idle, or more.
FEW_CHANNELS = 8


@dataclass(eq=False)
class Drops:
    """What dropout lets through in the next S steps of J jobs, by `keys` int64 [S, J]. All steps' choices are drawn
    together at the first, as for small layers a draw costs more in calls than in numbers. `step` and `active` say
    whose turn it is."""

    keys: Tensor
    step: int = 0
    active: int = 0
    drawn: dict[int, Tensor] = field(default_factory=dict)

    def scale(self, call: int, shape: torch.Size, p: float, dtype: torch.dtype) -> Tensor:
        """For the network's dropout number `call`: 1 / (1 - p) for what stays and 0 for what falls out, [A, ...]."""
        units = shape[1:].numel()
        if self.keys.numel() * units > DRAWN_AT_ONCE:
            return self._draw(self.keys[self.step, : self.active], call, units, p, dtype).view(shape)
        if call not in self.drawn:
            self.drawn[call] = self._draw(self.keys, call, units, p, dtype)
        return self.drawn[call][self.step, : self.active].view(shape)

    def _draw(self, keys: Tensor, call: int, units: int, p: float, dtype: torch.dtype) -> Tensor:
        kept = streams.keep_mask(streams.fold(keys, call), units, p).to(dtype)
        return kept.mul_(1 / (1 - p) if p < 1 else 0.0)


@dataclass(frozen=True, eq=False)
class Layer:
    """`forward(params, x, drops)` gives y and what the way back needs; `backward(params, kept, grad, want)` takes the
    step (in place) and gives the gradient of x, or None if `want` is False. `drops` is given for training only.
    `trains` says whether the layer has parameters."""

    forward: Callable[[Params, Tensor, Drops | None], tuple[Tensor, Any]]
    backward: Callable[[Params, Any, Tensor, bool], Tensor | None]
    trains: bool = False


def chain_of(module: nn.Module) -> list[Layer] | None:
    """The layers of an nn.Sequential (of nn.Sequentials) of common layers, all of whose parameters are trained and are
    used once, or None if it is any other."""
    if type(module) is not nn.Sequential:
        return None
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    found: list[tuple[str, nn.Module, Layer]] = []
    drops = 0
    for name, part in _leaves(module, ""):
        if type(part) is nn.Identity:
            continue
        if type(part) is nn.Dropout:
            found.append((name, part, _dropout(part.p, drops)))
            drops += 1 if part.p > 0 else 0
            continue
        own = [f"{name}.{each}" for each in ("weight", "bias") if getattr(part, each, None) is not None]
        if not trained.issuperset(own):
            return None
        maker = _MAKERS.get(type(part))
        layer = maker(name, part) if maker else None
        if layer is None:
            return None
        found.append((name, part, layer))
        if type(part) is nn.MaxPool2d:
            _join(found)
    return [layer for _, _, layer in found]


def _join(found: list[tuple[str, nn.Module, Layer]]) -> None:
    """Makes less work of the max-pooling that `found` ends with and what comes right before it."""
    # The maximum of what ReLU lets through is what ReLU lets through of the maximum: a quarter of the work.
    relu = [found.pop(-2)] if len(found) > 1 and type(found[-2][1]) is nn.ReLU else []
    if len(found) > 1 and not any(layer.trains for _, _, layer in found[:-2]):
        name, part, _ = found[-2]
        if isinstance(part, nn.Conv2d) and (both := _conv_and_pool(name, part)):
            found[-2:] = [(name, part, both)]
    found += relu


def _leaves(module: nn.Module, prefix: str) -> list[tuple[str, nn.Module]]:
    out = []
    for name, part in module._modules.items():  # named_children leaves out a layer that stands there twice
        assert part is not None
        out += _leaves(part, f"{prefix}{name}.") if type(part) is nn.Sequential else [(prefix + name, part)]
    return out


def _flatten(name: str, part: nn.Module) -> Layer | None:
    assert isinstance(part, nn.Flatten)
    if (part.start_dim, part.end_dim) != (1, -1):
        return None
    return Layer(lambda params, x, drops: (x.flatten(2), x.shape), lambda params, shape, grad, want: grad.view(shape))


def _linear(name: str, part: nn.Module) -> Layer | None:
    assert isinstance(part, nn.Linear)
    weight, bias = f"{name}.weight", f"{name}.bias"
    has_bias = part.bias is not None

    def forward(params: Params, x: Tensor, drops: Drops | None) -> tuple[Tensor, Any]:
        across = params[weight].transpose(1, 2)
        return (torch.baddbmm(params[bias][:, None], x, across) if has_bias else torch.bmm(x, across)), x

    def backward(params: Params, x: Tensor, grad: Tensor, want: bool) -> Tensor | None:
        back = torch.bmm(grad, params[weight]) if want else None
        params[weight].baddbmm_(grad.transpose(1, 2), x, alpha=-1)
        if has_bias:
            params[bias].sub_(grad.sum(1))
        return back

    # Rows of features only: on sequences nn.Linear means something else.
    return Layer(_rows_only(forward), backward, trains=True)


def _rows_only(forward: Callable[..., tuple[Tensor, Any]]) -> Callable[..., tuple[Tensor, Any]]:
    def checked(params: Params, x: Tensor, drops: Drops | None) -> tuple[Tensor, Any]:
        if x.dim() != 3:
            raise NotImplementedError(f"a linear layer on samples of {x.dim() - 2} dimensions")
        return forward(params, x, drops)

    return checked


def _relu(name: str, part: nn.Module) -> Layer:
    def backward(params: Params, y: Tensor, grad: Tensor, want: bool) -> Tensor:
        return torch.ops.aten.threshold_backward(grad, y, 0)  # type: ignore[no-any-return]

    def forward(params: Params, x: Tensor, drops: Drops | None) -> tuple[Tensor, Any]:
        y = F.relu(x)
        return y, y

    return Layer(forward, backward)


def _tanh(name: str, part: nn.Module) -> Layer:
    def forward(params: Params, x: Tensor, drops: Drops | None) -> tuple[Tensor, Any]:
        y = torch.tanh(x)
        return y, y

    return Layer(forward, lambda params, y, grad, want: torch.ops.aten.tanh_backward(grad, y))


def _dropout(p: float, call: int) -> Layer:
    def forward(params: Params, x: Tensor, drops: Drops | None) -> tuple[Tensor, Any]:
        if drops is None or p == 0:
            return x, None
        scale = drops.scale(call, x.shape, p, x.dtype)
        return x * scale, scale

    return Layer(forward, lambda params, scale, grad, want: grad if scale is None else grad.mul_(scale))


def _max_pool(name: str, part: nn.Module) -> Layer | None:
    assert isinstance(part, nn.MaxPool2d)
    plain = (part.padding in (0, (0, 0))) and part.dilation in (1, (1, 1)) and not part.ceil_mode
    if not plain or part.kernel_size not in (2, (2, 2)) or part.stride not in (2, (2, 2)):
        return None

    def forward(params: Params, x: Tensor, drops: Drops | None) -> tuple[Tensor, Any]:
        height, width = x.shape[-2] // 2 * 2, x.shape[-1] // 2 * 2
        nw, ne = x[..., 0:height:2, 0:width:2], x[..., 0:height:2, 1:width:2]
        sw, se = x[..., 1:height:2, 0:width:2], x[..., 1:height:2, 1:width:2]
        north, south = torch.maximum(nw, ne), torch.maximum(sw, se)
        y = torch.maximum(north, south)
        # Among equals the first in reading order wins, as in PyTorch.
        return y, (x.shape, north >= south, nw >= ne, sw >= se) if drops is not None else None

    def backward(params: Params, kept: Any, grad: Tensor, want: bool) -> Tensor:
        shape, is_north, north_west, south_west = kept
        # Bit by bit and by index, as choosing or multiplying by a mask is many times slower on a processor.
        is_west = south_west ^ (is_north & (north_west ^ south_west))
        rows = torch.arange(1, shape[-2], 2, device=grad.device)[:, None] * shape[-1]
        south_east = rows + torch.arange(1, shape[-1], 2, device=grad.device)
        winner = south_east - is_west.to(torch.int64) - is_north.to(torch.int64) * shape[-1]
        planes = grad.new_zeros(grad.shape[:-2].numel(), shape[-2] * shape[-1])
        return planes.scatter_(1, winner.view(len(planes), -1), grad.reshape(len(planes), -1)).view(shape)

    return Layer(forward, backward)


def _conv(name: str, part: nn.Module) -> Layer | None:
    assert isinstance(part, nn.Conv2d)
    if part.groups != 1 or part.padding_mode != "zeros" or isinstance(part.padding, str):
        return None
    weight, bias = f"{name}.weight", f"{name}.bias"
    has_bias = part.bias is not None
    stride, padding, dilation = list(part.stride), list(part.padding), list(part.dilation)

    # Client by client: the convolution of a processor's library beats every form that takes all clients at once.
    def forward(params: Params, x: Tensor, drops: Drops | None) -> tuple[Tensor, Any]:
        outs = [
            F.conv2d(x[j], params[weight][j], params[bias][j] if has_bias else None, stride, padding, dilation)
            for j in range(len(x))
        ]
        return (torch.stack(outs) if len(outs) > 1 else outs[0][None]), x

    def backward(params: Params, x: Tensor, grad: Tensor, want: bool) -> Tensor | None:
        back = torch.empty_like(x) if want else None
        for j in range(len(x)):
            kernel = params[weight][j]
            sizes = [kernel.shape[0]] if has_bias else None
            dx, dw, db = torch.ops.aten.convolution_backward(
                grad[j], x[j], kernel, sizes, stride, padding, dilation, False, [0, 0], 1, [want, True, has_bias]
            )
            kernel.sub_(dw)
            if has_bias:
                params[bias][j].sub_(db)
            if back is not None:
                back[j] = dx
        return back

    return Layer(forward, backward, trains=True)


def _conv_and_pool(name: str, part: nn.Conv2d) -> Layer | None:
    """A convolution of few channels with the 2x2 max-pooling behind it, for the network's first layer that trains.

    Few channels leave most of a vector unit idle, and pooling picks single numbers out of rows. So all four sums of
    each pooling window are made side by side, as so many channels of one convolution with stride 2, whose kernels are
    the layer's own at four places; the maximum is then one of whole planes.
    """
    size = part.kernel_size
    plain = part.stride == (1, 1) and part.padding == (0, 0) and part.dilation == (1, 1) and part.groups == 1
    if not plain or part.out_channels > FEW_CHANNELS:
        return None
    weight, bias = f"{name}.weight", f"{name}.bias"
    has_bias = part.bias is not None
    places = [(slice(down, down + size[0]), slice(right, right + size[1])) for down in (0, 1) for right in (0, 1)]

    def kernels(params: Params) -> Tensor:
        own = params[weight]
        wide = own.new_zeros(len(own), 4, *own.shape[1:3], size[0] + 1, size[1] + 1)
        for corner, (rows, columns) in enumerate(places):
            wide[:, corner, ..., rows, columns] = own
        return wide.flatten(1, 2)

    def forward(params: Params, x: Tensor, drops: Drops | None) -> tuple[Tensor, Any]:
        wide = kernels(params)
        sums = torch.stack([F.conv2d(x[j], wide[j], stride=2) for j in range(len(x))])
        corners = sums.unflatten(2, (4, -1))
        north = torch.maximum(corners[:, :, 0], corners[:, :, 1])
        south = torch.maximum(corners[:, :, 2], corners[:, :, 3])
        y = torch.maximum(north, south)
        if has_bias:
            y += params[bias][:, None, :, None, None]
        if drops is None:
            return y, None
        # Among equals the first in reading order wins, as in PyTorch.
        west = corners[:, :, 0] >= corners[:, :, 1], corners[:, :, 2] >= corners[:, :, 3]
        return y, (x, wide, north >= south, *west)

    def backward(params: Params, kept: Any, grad: Tensor, want: bool) -> None:
        x, wide, is_north, north_west, south_west = kept
        errors = grad.new_empty(*grad.shape[:2], 4, *grad.shape[2:])
        north = grad * is_north
        south = grad - north
        for first, error, is_west in ((0, north, north_west), (2, south, south_west)):
            torch.mul(error, is_west, out=errors[:, :, first])
            torch.sub(error, errors[:, :, first], out=errors[:, :, first + 1])
        for j in range(len(x)):
            _, dw, _ = torch.ops.aten.convolution_backward(
                errors[j].flatten(1, 2), x[j], wide[j], None, [2, 2], [0, 0], [1, 1], False, [0, 0], 1,
                [False, True, False],
            )  # fmt: skip
            for corner, (rows, columns) in zip(dw.unflatten(0, (4, -1)), places, strict=True):
                params[weight][j].sub_(corner[..., rows, columns])
        if has_bias:
            params[bias].sub_(grad.sum((1, 3, 4)))

    return Layer(forward, backward, trains=True)


_MAKERS: dict[type[nn.Module], Callable[[str, Any], Layer | None]] = {
    nn.Flatten: _flatten,
    nn.Linear: _linear,
    nn.ReLU: _relu,
    nn.Tanh: _tanh,
    nn.MaxPool2d: _max_pool,
    nn.Conv2d: _conv,
}
