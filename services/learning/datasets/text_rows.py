"""Samples and targets of a text: rows that are cut out of its tokens when they are selected."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from services.learning.datasets.base import LearningTask
from services.learning.datasets.sample_rows import SampleRows
from services.learning.epoch_orders import SampleIndices
from services.learning.layout import Shape
from services.schema.arrays import HostArray


def create_text_rows(
    tokens: HostArray, context: int, task: LearningTask, dtype: npt.DTypeLike
) -> tuple[SampleRows, SampleRows]:
    """Return samples and targets of a text, given its tokens.

    For a classification, samples are one-hot vectors of the type `dtype`, and overlap. For the prediction of tokens,
    samples and targets are sequences of tokens, and do not overlap: targets are the tokens one position later, or the
    same tokens if the model predicts masked ones.
    """
    if task.loss == "masked_token":
        sequences = TokenSequences(tokens, context)
        return sequences, sequences
    if task.loss == "next_token":
        return TokenSequences(tokens[:-1], context), TokenSequences(tokens[1:], context)
    return TokenContexts(tokens, context, task.outputs, np.dtype(dtype)), NextTokens(tokens, context)


@dataclass(frozen=True)
class TokenContexts:
    """Each sample is a part of a text: `context` consecutive tokens, as one-hot vectors.

    Sample k has the tokens from k to before k + context. The shape of a sample is (context, vocabulary).
    """

    tokens: HostArray  # shape (n + context,): the tokens of a text
    context: int
    vocabulary: int
    dtype: np.dtype[Any]

    @property
    def shape(self) -> Shape:
        """Number of rows, then the shape of one row."""
        return (len(self), self.context, self.vocabulary)

    def __len__(self) -> int:
        return len(self.tokens) - self.context

    def __getitem__(self, rows: slice | SampleIndices, /) -> HostArray:
        first = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        tokens = self.tokens[first[:, np.newaxis] + np.arange(self.context)]
        return np.asarray(tokens[..., np.newaxis] == np.arange(self.vocabulary)).astype(self.dtype)


@dataclass(frozen=True)
class NextTokens:
    """Targets of `TokenContexts`: for each sample, the token that follows its context."""

    tokens: HostArray  # as in TokenContexts
    context: int

    @property
    def shape(self) -> Shape:
        """Number of rows."""
        return (len(self),)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers in selected rows."""
        return np.dtype(np.int64)

    def __len__(self) -> int:
        return len(self.tokens) - self.context

    def __getitem__(self, rows: slice | SampleIndices, /) -> HostArray:
        return self.tokens[self.context :][rows].astype(np.int64)


@dataclass(frozen=True)
class TokenSequences:
    """Each row is a part of a text: `length` consecutive tokens. Rows do not overlap.

    Row k has the tokens from k · length to before (k + 1) · length. Tokens after the last whole row are not used.
    """

    tokens: HostArray  # shape (n,)
    length: int

    @property
    def shape(self) -> Shape:
        """Number of rows, then the shape of one row."""
        return (len(self), self.length)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers in selected rows."""
        return np.dtype(np.int64)

    def __len__(self) -> int:
        return len(self.tokens) // self.length

    def __getitem__(self, rows: slice | SampleIndices, /) -> HostArray:
        whole_rows = self.tokens[: len(self) * self.length].reshape(self.shape)
        return whole_rows[rows].astype(np.int64)
