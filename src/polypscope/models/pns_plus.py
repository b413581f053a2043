"""PNS+ (Ji et al., "Video Polyp Segmentation: A Deep Learning Perspective", 2022), as its published code computes it.

Input (B, 6, 3, H, W): the anchor (the clip's first frame) and a window of five; output (B, 5, 1, H, W) logits.
Ours differs in that the NS block is plain torch (`ns_block.py`), that any number of window frames and any map size is
taken, that the unused `squeeze` layer is left out, and that logits are returned, not their sigmoid. The input is RGB
in [0, 1] without further normalisation: the published loader means to normalise, but indexes the wrong axis, and the
released weights need what it does in effect.

Table 6 of the paper in arguments: base only `strategy=""`; `groups=1, 2, 4, 8`; `soft_attention`; `normalise`;
`strategy="L"`, `"LL"`, `"LG"`, `"GG"`, `"GL"`. The conference version, PNSNet, is `strategy="LL"`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polypscope.models.ns_block import Aggregation, NSBlock
from polypscope.models.res2net import Res2Net50
from polypscope.records.errors import UsageError

STRATEGIES = ("", "L", "LL", "LG", "GG", "GL")
GLOBAL_DILATIONS, LOCAL_DILATIONS = (3, 4, 3, 4), (1, 2, 1, 2)

# Our parameter names and the ones in the authors' checkpoints.
AUTHORS_NAMES = (
    ("encoder.", "feature_extractor."),
    ("reduce_high.", "High_RFB."),
    ("reduce_low.", "Low_RFB."),
    ("blocks.0.query", "NSB_global.query_conv"),
    ("blocks.0.key", "NSB_global.key_conv"),
    ("blocks.0.value", "NSB_global.value_conv"),
    ("blocks.0.output", "NSB_global.output_Linear"),
    ("blocks.0.norm_", "NSB_global.bn."),
    ("blocks.1.query", "NSB_local.query_conv"),
    ("blocks.1.key", "NSB_local.key_conv"),
    ("blocks.1.value", "NSB_local.value_conv"),
    ("blocks.1.output", "NSB_local.output_Linear"),
    ("blocks.1.norm_", "NSB_local.bn."),
    ("decoder.split.", "decoder.up2_high.conv0."),
    ("decoder.near.", "decoder.up2_high.conv1."),
    ("decoder.wide.", "decoder.up2_high.conv2."),
    ("decoder.high_norm.", "decoder.up2_high.bn."),
    ("decoder.low.", "decoder.up2_low."),
    ("decoder.low_norm.", "decoder.up2_bn2."),
    ("decoder.act.", "decoder.up2_act."),
    ("decoder.refine.", "decoder.refine."),
    ("decoder.head.", "SegNIN."),
)


class ConvNorm(nn.Module):
    """Convolution without bias, batch norm, and PReLU if asked."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 1, dilation: int = 1, groups: int = 1, act: bool = True
    ):
        super().__init__()
        padding = kernel // 2 * dilation
        self.conv = nn.Conv2d(inputs, outputs, kernel, 1, padding, dilation, groups, bias=False)
        self.bn = nn.BatchNorm2d(outputs, momentum=0.01)
        self.relu = nn.PReLU() if act else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.bn(self.conv(x)))


class SqueezeExcite(nn.Module):
    """Channel gate with a hard sigmoid."""

    def __init__(self, channels: int, reduction: int = 4) -> None:
        super().__init__()
        self.fc = nn.Sequential(
            nn.Linear(channels, channels // reduction), nn.ReLU(), nn.Linear(channels // reduction, channels)
        )

    def forward(self, x: Tensor) -> Tensor:
        gate = nn.functional.relu6(self.fc(x.mean((2, 3))) + 3) / 6
        return x * gate[:, :, None, None]


class LightRFB(nn.Module):
    """Reduction of encoder features by four receptive fields, concatenated with the input itself."""

    def __init__(self, inputs: int, middle: int, outputs: int) -> None:
        super().__init__()
        self.global_se = SqueezeExcite(inputs)
        self.reduce = nn.Sequential(nn.Conv2d(inputs, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.PReLU(middle))
        self.br0 = nn.Sequential(ConvNorm(middle, middle), ConvNorm(middle, middle, 3, 1, middle, act=False))
        for index, (kernel, dilation) in enumerate(((3, 3), (5, 5), (7, 7)), start=1):
            branch = nn.Sequential(
                ConvNorm(middle, middle, kernel, 1, middle, act=False),
                ConvNorm(middle, middle),
                ConvNorm(middle, middle, 3, dilation, middle, act=False),
            )
            self.add_module(f"br{index}", branch)
        self.point_global = ConvNorm(middle * 4 + inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        reduced = self.reduce(self.global_se(x))
        branches = [self.get_submodule(f"br{index}")(reduced) for index in range(4)]
        return self.point_global(torch.cat([x, *branches], 1))


class Decoder(nn.Module):
    """High features (32 channels, already at the low size) and low features (24) to one logit map."""

    def __init__(self) -> None:
        super().__init__()
        self.split = nn.Conv2d(32, 16, 1, bias=False)
        self.near = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.wide = nn.Conv2d(8, 8, 3, padding=2, dilation=2, bias=False)
        self.high_norm = nn.BatchNorm2d(16)
        self.low = nn.Conv2d(24, 16, 1, bias=False)
        self.low_norm = nn.BatchNorm2d(16)
        self.act = nn.PReLU(16)
        self.refine = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.PReLU())
        self.head = nn.Sequential(nn.Dropout2d(0.1), nn.Conv2d(16, 1, 1, bias=False))

    def forward(self, low: Tensor, high: Tensor) -> Tensor:
        near, wide = self.split(high).chunk(2, 1)
        high = self.high_norm(torch.cat([self.near(near), self.wide(wide)], 1))
        return self.head(self.refine(self.act(high + self.low_norm(self.low(low)))))


class PNSPlus(nn.Module):
    """Clip (B, 1 + T, 3, H, W), the anchor first, to logits (B, T, 1, H, W).

    Parameters
    ----------
    strategy : one letter per NS block: G asks with the anchor, L with the window itself; "GL" is PNS+.
    groups : N of the paper.
    soft_attention, normalise, aggregation : options of the NS block.
    norm_size : map size that the query norm's weights are stored for; None makes them independent of it.
    """

    def __init__(
        self,
        strategy: str = "GL",
        groups: int = 4,
        soft_attention: bool = True,
        normalise: bool = True,
        aggregation: Aggregation = "raw",
        norm_size: tuple[int, int] | None = (16, 28),
    ) -> None:
        super().__init__()
        strategy = strategy.replace("→", "").replace("-", "").upper()
        if strategy not in STRATEGIES:
            raise UsageError(f"Strategy: expected one of {', '.join(filter(None, STRATEGIES))}, found {strategy!r}.")
        self.strategy = strategy
        self.encoder = Res2Net50(stages=3)
        self.reduce_high = LightRFB(1024, 128, 32)
        self.reduce_low = LightRFB(512, 128, 24)
        dilations = (GLOBAL_DILATIONS, LOCAL_DILATIONS) if len(strategy) == 2 else (LOCAL_DILATIONS,)
        self.blocks = nn.ModuleList(
            NSBlock(32, groups, dilations[index], 3, normalise, norm_size, soft_attention, aggregation)
            for index in range(len(strategy))
        )
        self.decoder = Decoder()

    def forward(self, clip: Tensor) -> Tensor:
        batch, frames = clip.shape[:2]
        _, low, high = self.encoder(clip.flatten(0, 1))
        high = self.reduce_high(high).unflatten(0, (batch, frames))
        low = self.reduce_low(low).unflatten(0, (batch, frames))[:, 1:]
        window = high[:, 1:]
        anchor = high[:, :1].expand_as(window)
        mixed = window
        for letter, block in zip(self.strategy, self.blocks, strict=True):
            mixed = block(anchor if letter == "G" else mixed, mixed) + mixed
        mixed = mixed + window
        up = nn.functional.interpolate(mixed.flatten(0, 1), size=low.shape[-2:], mode="bilinear", align_corners=False)
        logits = self.decoder(low.flatten(0, 1), up)
        logits = nn.functional.interpolate(logits, size=clip.shape[-2:], mode="bilinear", align_corners=False)
        return logits.unflatten(0, (batch, frames - 1))
