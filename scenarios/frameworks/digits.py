"""The handwritten digits that Ensayo's dataset `digits` has, too."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def load_pictures():
    """Return pictures for training, pictures for the test, and the labels of both."""
    pixels, labels = load_digits(return_X_y=True)
    pictures = (pixels / 16).reshape(-1, 8, 8).astype("float32")
    return train_test_split(pictures, labels, test_size=0.2, stratify=labels, random_state=0)
