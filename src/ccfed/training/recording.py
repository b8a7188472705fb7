"""CUDA graphs and streams, and what takes their place on a processor, so that the same steppers run there too."""

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch


class Recorded:
    """A step recorded once as a CUDA graph; calling it replays the graph. On a processor the step itself runs.

    `step` reads and writes static memory only. It is run before it is recorded, so what it changes must be nothing, or
    must be put back by `reset`, which is called afterwards and before the recording. Graphs that never run at the same
    time share memory by `beside`.
    """

    def __init__(
        self,
        step: Callable[[], None],
        device: torch.device,
        reset: Callable[[], object],
        stream: "torch.cuda.Stream | None" = None,
        beside: "Recorded | None" = None,
    ) -> None:
        self._graph: torch.cuda.CUDAGraph | None = None
        self._step = step
        if device.type != "cuda":
            reset()
            return
        side = stream or torch.cuda.Stream(device)
        torch.cuda.synchronize(device)
        with torch.cuda.stream(side):
            for _ in range(2):
                step()
        torch.cuda.synchronize(device)
        reset()
        torch.cuda.synchronize(device)
        self._graph = torch.cuda.CUDAGraph()
        pool = beside._graph.pool() if beside is not None and beside._graph is not None else None
        # A graph that is thrown away while another is recorded would spoil it.
        gc.collect()
        collects = gc.isenabled()
        gc.disable()
        try:
            with torch.cuda.graph(self._graph, pool=pool, stream=side, capture_error_mode="thread_local"):
                step()
        finally:
            if collects:
                gc.enable()

    def __call__(self) -> None:
        """Makes the step."""
        if self._graph is None:
            self._step()
        else:
            self._graph.replay()


def on(stream: "torch.cuda.Stream | None") -> AbstractContextManager[object]:
    """What is launched in this context goes to `stream`; None changes nothing."""
    return nullcontext() if stream is None else torch.cuda.stream(stream)
