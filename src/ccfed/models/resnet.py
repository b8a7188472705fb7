"""ResNet-18 for small images, with GroupNorm."""

from torch import Tensor, nn

GROUPS = 16


class Block(nn.Module):
    """Two 3x3 convolutions with GroupNorm and a way past them: [B, channels, H, W] to [B, out, H / stride, W /
    stride]."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS, out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS, out)
        self.relu = nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.GroupNorm(GROUPS, out))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output for `x`."""
        y: Tensor = self.relu(self.norm1(self.conv1(x)))
        y = self.relu(self.norm2(self.conv2(y)) + self.shortcut(x))
        return y


def resnet18(sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    """ResNet-18 with a 3x3 stem, no max-pooling after it, and GroupNorm with 16 groups in place of BatchNorm."""
    if len(sample_shape) != 3 or min(sample_shape[1:]) < 8:
        raise ValueError(
            f"--model is 'resnet18', which needs images of 8x8 or more, but the samples are {sample_shape}"
        )
    layers: list[nn.Module] = [nn.Conv2d(sample_shape[0], 64, 3, 1, 1, bias=False), nn.GroupNorm(GROUPS, 64), nn.ReLU()]
    channels = 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(channels, out, stride), Block(out, out, 1)]
        channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
