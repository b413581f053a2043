"""U-Net (Ronneberger et al. 2015) and UNet++ (Zhou et al. 2018), image baselines; both differ in using batch norm and
padded convolutions, so that the output has the input's size, as the field's re-implementations do.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DoubleConv(nn.Sequential):
    """Two 3x3 convolutions with batch norm and ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )


def _up(x: Tensor, like: Tensor) -> Tensor:
    return nn.functional.interpolate(x, size=like.shape[-2:], mode="bilinear", align_corners=False)


class UNet(nn.Module):
    """Image (B, 3, H, W) to logits (B, 1, H, W).

    Parameters
    ----------
    width : channels of the first level; the paper's is 64, doubled four times.
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(5)]
        self.down = nn.ModuleList(DoubleConv(i, o) for i, o in zip([3, *widths[:-1]], widths, strict=True))
        self.up = nn.ModuleList(DoubleConv(widths[i] + widths[i + 1], widths[i]) for i in range(4))
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        levels: list[Tensor] = []
        for index, block in enumerate(self.down):
            x = block(x if index == 0 else nn.functional.max_pool2d(x, 2))
            levels.append(x)
        for index in reversed(range(4)):
            x = self.up[index](torch.cat([levels[index], _up(x, levels[index])], 1))
        logits = self.head(x)
        return [logits] if self.training else logits


class UNetPlusPlus(nn.Module):
    """Image (B, 3, H, W) to logits (B, 1, H, W); nested dense skip connections, deep supervision on the top row.

    Parameters
    ----------
    width : channels of the first level; the paper's is 32, doubled four times.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(5)]
        self.down = nn.ModuleList(DoubleConv(i, o) for i, o in zip([3, *widths[:-1]], widths, strict=True))
        self.nested = nn.ModuleDict(
            {
                f"{row}_{column}": DoubleConv(widths[row] * column + widths[row + 1], widths[row])
                for column in range(1, 5)
                for row in range(5 - column)
            }
        )
        self.heads = nn.ModuleList(nn.Conv2d(width, 1, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor | list[Tensor]:
        grid: dict[tuple[int, int], Tensor] = {}
        for row, block in enumerate(self.down):
            x = block(x if row == 0 else nn.functional.max_pool2d(x, 2))
            grid[row, 0] = x
        for column in range(1, 5):
            for row in range(5 - column):
                same = [grid[row, earlier] for earlier in range(column)]
                below = _up(grid[row + 1, column - 1], same[0])
                grid[row, column] = self.nested[f"{row}_{column}"](torch.cat([*same, below], 1))
        levels = [head(grid[0, column]) for column, head in enumerate(self.heads, start=1)]
        return levels[::-1] if self.training else levels[-1]
