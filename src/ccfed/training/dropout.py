"""Dropout from keyed streams: the same units fall out for a client's n-th step, whichever engine runs it."""

import math
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.overrides import TorchFunctionMode

from ccfed.algorithm import streams

_ELEMENTWISE: tuple[Callable[..., Any], ...] = (F.dropout, torch.dropout, torch.dropout_)
_CHANNELS: tuple[Callable[..., Any], ...] = (F.dropout1d, F.dropout2d, F.dropout3d)
_REFUSED: tuple[Callable[..., Any], ...] = (F.alpha_dropout, F.feature_alpha_dropout, F.rrelu, F.gumbel_softmax)


class _Keep(Function):
    """`streams.keep_mask` for one key or, under `torch.func.vmap`, for many: bool [units]."""

    @staticmethod
    def forward(key: Tensor, units: int, drop: float) -> Tensor:
        return streams.keep_mask(key, units, drop)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], key: Tensor, units: int, drop: float) -> tuple[Tensor, int]:
        assert in_dims[0] is not None
        return cast(
            Tensor,
            _Keep.apply(  # type: ignore[no-untyped-call]
                key.movedim(in_dims[0], 0), units, drop
            ),
        ), 0


class StreamedDropout(TorchFunctionMode):
    """Inside this context every dropout of a forward pass draws from `key`, the i-th call from its i-th sub-stream.

    `key` is a scalar int64 tensor (inside `torch.func.vmap`, one a client). `calls` counts the dropouts met.
    """

    def __init__(self, key: Tensor) -> None:
        super().__init__()
        self.key, self.calls = key, 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Replaces dropout, refuses the random functions that have no streamed form, and lets all else pass."""
        kwargs = kwargs or {}
        if func in _ELEMENTWISE or func in _CHANNELS:
            return self._dropped(func in _CHANNELS, *args, **kwargs)
        if func in _REFUSED and (kwargs.get("training", True)):
            raise ValueError(f"--model uses {func.__name__}, which has no reproducible form here: use dropout instead")
        return func(*args, **kwargs)

    def _dropped(
        self, channels: bool, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        if not training or p == 0:
            return input
        # A dropped channel takes its whole plane along: one draw for [B, channels], spread over the rest.
        shape = (*input.shape[:2], *(1 for _ in input.shape[2:])) if channels else tuple(input.shape)
        mask = cast(
            Tensor,
            _Keep.apply(  # type: ignore[no-untyped-call]
                streams.fold(self.key, self.calls), math.prod(shape), p
            ),
        )
        self.calls += 1
        return input * mask.view(shape).to(input.dtype) * (1 / (1 - p) if p < 1 else 0.0)
