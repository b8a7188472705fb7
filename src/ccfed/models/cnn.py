"""The paper's convolutional network."""

from torch import nn


def cnn(sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 5x5 convolutions (6 and 16 channels), each with ReLU and 2x2 max-pooling, then FC 120-84-classes; no padding.

    On 32x32 images the first fully connected layer has 400 inputs, as in the paper. Images must be 16x16 or larger.
    """
    if len(sample_shape) != 3 or min(sample_shape[1:]) < 16:
        raise ValueError(f"--model is 'cnn', which needs images of 16x16 or more, but the samples are {sample_shape}")
    channels, height, width = sample_shape
    features = 16 * _after(height) * _after(width)
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(features, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def _after(side: int) -> int:
    """The side of an image after both convolutions and poolings."""
    return ((side - 4) // 2 - 4) // 2
