"""An nn.Module seen as a function of one flat vector of parameters, which is how the algorithm sees it."""

import copy
import difflib
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ccfed.algorithm import streams
from ccfed.models.cnn import cnn
from ccfed.models.mlp import mlp
from ccfed.models.resnet import resnet18

Maker = Callable[..., nn.Module]
MODELS: dict[str, Maker] = {"mlp": mlp, "cnn": cnn, "resnet18": resnet18}


@dataclass(frozen=True, eq=False)
class Network:
    """A module and the layout of its parameters in a flat vector [size]: name, shape and offset of each, in order."""

    module: nn.Module
    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    offsets: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, module: nn.Module) -> "Network":
        """Reads the layout off `module`, whose trainable parameters must be of one floating-point type."""
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError("--model is a ScriptModule, which cannot be taken apart: give the module it was made from")
        if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters()):
            raise ValueError("--model has lazy layers, whose parameters have no shape yet: give their sizes")
        for name, part in module.named_modules():
            if isinstance(part, nn.modules.batchnorm._NormBase) and part.track_running_stats:
                raise ValueError(
                    f"--model has {type(part).__name__} with running statistics at {name or 'its root'!r}, which are "
                    "no parameters and would be lost between rounds: use GroupNorm, or track_running_stats=False"
                )
        parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        kinds = {p.dtype for p in parameters.values()}
        if len(kinds) != 1 or not next(iter(kinds)).is_floating_point:
            found = ", ".join(sorted(map(str, kinds))) or "none"
            raise ValueError(f"--model has trainable parameters of type {found}, but needs some, all of one float type")
        offsets, size = [], 0
        for p in parameters.values():
            offsets.append(size)
            size += p.numel()
        return cls(module, tuple(parameters), tuple(p.shape for p in parameters.values()), tuple(offsets), size)

    def flat(self) -> Tensor:
        """A copy of the module's parameters as one vector [size]."""
        parameters = dict(self.module.named_parameters())
        return torch.cat([parameters[name].detach().reshape(-1) for name in self.names])

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters by name as views into `flat` [..., size]: each [..., *its shape]."""
        lead = flat.shape[:-1]
        return {
            name: flat.narrow(-1, offset, shape.numel()).view(*lead, *shape)
            for name, shape, offset in zip(self.names, self.shapes, self.offsets, strict=True)
        }

    def to(self, device: torch.device, dtype: torch.dtype) -> "Network":
        """This network on `device` with parameters of `dtype` (the module is moved in place)."""
        self.module.to(device=device, dtype=dtype)
        return self


def find_model(model: str) -> Maker:
    """The maker behind a name (`mlp`, `cnn`, `resnet18`) or behind `module:function`."""
    if ":" in model:
        place, _, name = model.partition(":")
        try:
            maker = getattr(importlib.import_module(place), name)
        except Exception as error:  # whatever the module raises while it is imported
            raise ValueError(f"--model is {model!r}, but {reason(error)}") from error
        if not callable(maker):
            raise ValueError(f"--model is {model!r}, but {name} is a {type(maker).__name__}, not a function")
        return maker  # type: ignore[no-any-return]
    if model not in MODELS:
        near = difflib.get_close_matches(model, MODELS, 1)
        hint = f"did you mean {near[0]!r}? It" if near else "it"
        raise ValueError(f"--model is {model!r}; {hint} must be one of {', '.join(MODELS)}, or module:function")
    return MODELS[model]


def build(maker: Maker | nn.Module, sample_shape: tuple[int, ...], classes: int, seed: int) -> Network:
    """Makes the network and checks that it turns samples of `sample_shape` into `classes` scores.

    A `maker` is called with as many of (sample_shape, classes) as it takes; PyTorch's random initialisation draws
    from the stream of `seed`. Of an nn.Module a copy is taken, with the parameters it has.
    """
    name = getattr(maker, "__name__", type(maker).__name__)
    if isinstance(maker, nn.Module):
        try:
            module: Any = copy.deepcopy(maker)  # training must not change the user's own
        except Exception as error:  # whatever a module may raise
            raise ValueError(
                f"--model ({name}) cannot be copied ({reason(error)}): give a function that makes it"
            ) from error
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(streams.stream(seed, "initial model")))
            module = _made_by(maker, sample_shape, classes)
        if not isinstance(module, nn.Module):
            raise ValueError(f"--model is {name!r}, but it returned a {type(module).__name__}, not an nn.Module")
    return Network.of(module.cpu())


def check_fit(network: Network, example: Tensor, classes: int) -> None:
    """Raises unless the module turns `example` [2, *sample shape] into scores [2, classes]."""
    name = type(network.module).__name__
    was_training = network.module.training
    try:
        with torch.no_grad():
            scores = network.module.eval()(example)
    except Exception as error:  # whatever a model may raise
        shape, tokens = tuple(example.shape[1:]), example.dtype == torch.int64
        hint = " (whole numbers are taken as token ids: give the samples as floats if they are none)" if tokens else ""
        raise ValueError(f"--model ({name}) does not take samples of shape {shape}: {reason(error)}{hint}") from error
    finally:
        network.module.train(was_training)
    if not isinstance(scores, Tensor) or scores.shape != (len(example), classes):
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(
            f"--model ({name}) gives {got} for 2 samples, but the data's {classes} classes need (2, {classes})"
        )


def reason(error: Exception) -> str:
    """What an exception from a user's module says, in one line; its kind too, unless that goes without saying."""
    first = next(iter(str(error).strip().splitlines()), "")
    if first and type(error) in (RuntimeError, IndexError, AttributeError, ImportError, ModuleNotFoundError):
        return first
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _made_by(maker: Maker, sample_shape: tuple[int, ...], classes: int) -> object:
    """What the maker returns; whatever goes wrong in it is told as trouble with --model."""
    try:
        return maker(*_arguments(maker, sample_shape, classes))
    except Exception as error:
        if isinstance(error, ValueError) and str(error).startswith("--model"):
            raise  # one of ours, which says all
        name = getattr(maker, "__name__", type(maker).__name__)
        raise ValueError(f"--model is {name!r}, but calling it failed: {reason(error)}") from error


def _arguments(maker: Maker, sample_shape: tuple[int, ...], classes: int) -> tuple[object, ...]:
    try:
        required = [
            p
            for p in inspect.signature(maker).parameters.values()
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        return (sample_shape, classes)
    return (sample_shape, classes)[: len(required)]
