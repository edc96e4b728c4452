"""ResNet-18 for small pictures, an ordinary module of PyTorch. It knows nothing of Ensayo.

K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016. As usual for pictures of 32 x 32 pixels or
fewer, the first convolution is one of 3 x 3 without pooling. The width of 64 maps has 11.2 million parameters.
"""

from torch import nn
from torch.nn.functional import relu


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
        return relu(y + self.shortcut(x))


class ResNet18(nn.Module):
    """Eighteen layers with parameters: a convolution, eight blocks in four stages, and a dense layer."""

    def __init__(self, inputs, outputs, width=64):
        super().__init__()
        channels = inputs[0]
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        blocks, maps = [], width
        for stage in range(4):
            for number in range(2):
                stride = 2 if stage > 0 and number == 0 else 1
                blocks.append(Block(maps, width * 2**stage, stride))
                maps = width * 2**stage
        self.blocks = nn.Sequential(*blocks)
        self.output = nn.Linear(maps, outputs)

    def forward(self, x):
        return self.output(self.blocks(self.stem(x)).mean((2, 3)))
