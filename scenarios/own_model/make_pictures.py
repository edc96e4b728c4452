"""Draw the synthetic pictures of pictures.npz: bright shapes of random colour, place and size on a dark background.

Run it in its folder: python make_pictures.py
"""

import numpy as np

SIDE, PICTURES_PER_SHAPE = 16, 160
SHAPES = ("square", "frame", "stripes", "plus", "cross")
rows, columns = np.mgrid[:SIDE, :SIDE]


def find_pixels_of_shape(shape, row, column, radius):
    """Return for each pixel whether it belongs to the shape."""
    down, right = abs(rows - row), abs(columns - column)
    square = np.maximum(down, right) <= radius
    return (
        square
        & {
            "square": True,
            "frame": np.maximum(down, right) == radius,
            "stripes": down % 2 == 0,
            "plus": np.minimum(down, right) == 0,
            "cross": down == right,
        }[shape]
    )


def main():
    rng = np.random.default_rng(1)
    pictures, labels = [], []
    for label, shape in enumerate(SHAPES):
        for _ in range(PICTURES_PER_SHAPE):
            radius = rng.integers(3, 6)
            pixels = find_pixels_of_shape(shape, *rng.integers(radius, SIDE - radius, size=2), radius)
            dark, bright = rng.integers(0, 96, size=(3, 1, 1)), rng.integers(160, 256, size=(3, 1, 1))
            pictures.append(np.where(pixels, bright, dark).astype(np.uint8))
            labels.append(label)
    np.savez_compressed("pictures.npz", x=np.stack(pictures), y=np.array(labels))


if __name__ == "__main__":
    main()
