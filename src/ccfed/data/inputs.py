"""From stored samples to what the model sees: scaling, normalisation, crop and flip, on whatever device they lie."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ccfed.algorithm import streams


@dataclass(frozen=True)
class Inputs:
    """How a stored sample becomes the model's input: `(sample * scale - mean) / std`, and in training crop and flip.

    `mean` and `std` have one entry a channel, or one for all; `crop` is the width of the black border that
    a random crop of the original size is taken from (0: none); `flip` mirrors left and right every other time.
    """

    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    crop: int = 0
    flip: bool = False

    @property
    def augments(self) -> bool:
        """Whether training sees changed copies of the samples."""
        return self.crop > 0 or self.flip

    def prepare(self, stored: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Stored samples [..., *sample shape] as the model's input, without augmentation; same shape, `dtype`."""
        if stored.dtype == torch.int64:  # token ids: an embedding wants them as they are
            return stored
        values = zip(*(self._each(n) for n in (self.mean, self.std)), strict=True)
        factors, offsets = zip(*((self.scale / std, mean / std) for mean, std in values), strict=True)
        # In place, as fresh memory for each step of the sum costs more than the sum.
        made = stored.to(dtype, copy=True)
        return made.mul_(_channels(factors, stored, dtype)).sub_(_channels(offsets, stored, dtype))

    def _each(self, numbers: tuple[float, ...]) -> tuple[float, ...]:
        return numbers * max(len(self.mean), len(self.std)) if len(numbers) == 1 else numbers

    def crop_and_flip(self, stored: Tensor, key: Tensor) -> Tensor:
        """Each image of `stored` [..., B, C, H, W] cropped and flipped by its own draw from `key` [...]; same shape.

        Slot b of the batch uses numbers 3b (rows), 3b+1 (columns) and 3b+2 (flip) of its key's stream.
        """
        if not self.augments:
            return stored
        *lead, batch, channels, height, width = stored.shape
        counter = torch.arange(batch, device=stored.device) * 3
        key = key.to(stored.device)[..., None]
        columns = torch.arange(width, device=stored.device).expand(*lead, batch, width)
        if self.flip:
            mirrored = (streams.uniform(key, counter + 2) < 0.5)[..., None]
            columns = torch.where(mirrored, width - 1 - columns, columns)
        cropped = stored
        if self.crop:
            span = 2 * self.crop + 1
            down = streams.integers(key, counter, span)[..., None]
            columns = columns + streams.integers(key, counter + 1, span)[..., None]
            bordered = torch.nn.functional.pad(stored, (self.crop,) * 4)
            # Rows first, each copied as a whole: cheap on any device, as one index serves a row.
            image = torch.arange(down.numel() * channels, device=stored.device).view(*down.shape[:-1], channels)
            first = image * (height + 2 * self.crop) + down
            rows = (first[..., None] + torch.arange(height, device=stored.device)).flatten()
            cropped = bordered.flatten(end_dim=-2).index_select(0, rows).view(*stored.shape[:-1], -1)
        return cropped.gather(-1, columns[..., None, None, :].expand(stored.shape))


def _channels(numbers: tuple[float, ...], like: Tensor, dtype: torch.dtype) -> Tensor | float:
    """One number as it is, several as [C, 1, 1]; filled on the device, so that a CUDA graph can record it."""
    if len(numbers) == 1:
        return numbers[0]
    return torch.stack([torch.full((1, 1), number, dtype=dtype, device=like.device) for number in numbers])
