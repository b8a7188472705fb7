"""Who holds what: the samples of each class at each client, as a table and as a picture."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap, PowerNorm
from matplotlib.figure import Figure
from torch import Tensor

from ccfed.data.dataset import Federation

ROWS = 20
"""The most clients that the printed table lists one by one, and that the picture writes numbers for."""
COLUMNS = 1000
"""The most columns of the picture; beyond, neighbouring clients are averaged."""


def holdings(federation: Federation) -> "Holdings":
    """Counts the samples of each class at each client of `federation`."""
    parts, labels, classes = federation.parts, federation.data.train_y.cpu(), len(federation.data.classes)
    owner = torch.repeat_interleave(parts.sizes)
    counts = torch.bincount(owner * classes + labels[parts.members], minlength=len(parts) * classes)
    title = f"{federation.data.name}, {federation.split_name} split"
    return Holdings(counts.view(-1, classes), federation.data.classes, title)


@dataclass(frozen=True, eq=False)
class Holdings:
    """`counts[i, c]`: how many samples of class c client i holds, int64 [clients, classes]. `print` shows a table."""

    counts: Tensor
    classes: tuple[str, ...]
    title: str

    @property
    def sizes(self) -> Tensor:
        """The number of samples of each client: int64 [clients]."""
        return self.counts.sum(1)

    @property
    def classes_held(self) -> Tensor:
        """The number of classes of which each client holds a sample: int64 [clients]."""
        return (self.counts > 0).sum(1)

    def __str__(self) -> str:
        clients = len(self.counts)
        shown = list(range(clients)) if clients <= ROWS else [*range(ROWS // 2), *range(clients - ROWS // 2, clients)]
        wide = len(self.classes) > ROWS
        header = ["client", "samples", "classes", *(() if wide else self.classes)]
        lines = [header]
        for place, client in enumerate(shown):
            if place and client != shown[place - 1] + 1:
                lines.append(["..."] * len(header))
            row = [client, int(self.sizes[client]), int(self.classes_held[client])]
            lines.append([str(value) for value in row + ([] if wide else self.counts[client].tolist())])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
        sizes, held = self.sizes, self.classes_held
        summary = (
            f"{self.title}: {clients} clients, {int(sizes.min())} to {int(sizes.max())} samples and "
            f"{int(held.min())} to {int(held.max())} of {len(self.classes)} classes each"
        )
        return "\n".join([summary, *table])

    def plot(self, path: str | Path) -> Path:
        """Draws clients (across) by classes (down), darker for more samples and white for none; returns `path`."""
        path = Path(path)
        figure = self.figure()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
        return path

    def figure(self) -> Figure:
        """The picture as a matplotlib figure of its own, tied to no window."""
        clients, classes = self.counts.shape
        step = -(-clients // COLUMNS)
        columns = torch.nn.functional.pad(self.counts.to(torch.float64), (0, 0, 0, -clients % step))
        filled = torch.full((len(columns) // step, 1), step)
        filled[-1] = step - (-clients % step)
        grid = (columns.view(-1, step, classes).sum(1) / filled).T.numpy()

        width = min(max(4.5, 2.5 + 0.45 * clients), 10.0)
        height = min(max(2.8, 1.3 + 0.28 * classes), 14.0)
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        # One hue from pale to dark is read alike with and without colour vision; few samples must still not look white.
        blues = ListedColormap(colormaps["Blues"](np.linspace(0.15, 1.0, 256)))
        image = axes.imshow(
            np.ma.masked_equal(grid, 0.0),
            cmap=blues.with_extremes(bad="white"),
            norm=PowerNorm(0.5, vmin=0.0, vmax=max(float(grid.max()), 1.0)),
            aspect="auto",
            extent=(-0.5, clients - 0.5, classes - 0.5, -0.5),
            interpolation="nearest",
        )
        axes.set_title(self.title, loc="left", fontsize=10)
        axes.set_xlabel("client")
        axes.set_ylabel("class")
        axes.set_yticks(range(classes), self.classes, fontsize=8 if classes <= 30 else 5)
        if clients <= ROWS:
            axes.set_xticks(range(clients))
            dark = float(grid.max()) / 4
            for client in range(clients):
                for label in range(classes):
                    count = int(self.counts[client, label])
                    if count:
                        axes.text(
                            client,
                            label,
                            str(count),
                            ha="center",
                            va="center",
                            fontsize=7,
                            color="white" if count > dark else "black",
                        )
        figure.colorbar(image, ax=axes, label="samples" if step == 1 else f"samples (mean of {step} clients)")
        return figure
