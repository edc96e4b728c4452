"""Artificial language with a known entropy."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from services.learning.datasets.base import Dataset, LearningTask, TrainTestData
from services.learning.datasets.language.sentences import VOCABULARY, create_sentence_source
from services.learning.datasets.split import random_split
from services.learning.objectives import LossName
from services.schema.conflicts import KeyConflict, raise_conflicts
from services.schema.limits import MAX_GENERATED_NUMBERS


class Grammar(Dataset):
    """Sequences of tokens of an artificial language: sentences with agreement and with preferences of words.

    The vocabulary has 48 tokens; the number of the mask token never occurs. A sample is a sequence of `length` tokens,
    which begins with its topic. With `objective: next_token`, the targets are the tokens one position later; with
    `masked_token`, the same tokens. With a shift, a share of the words has other preferences, for fine-tuning.

    If a model predicts every token from those before it, its perplexity is at least 3.274 without a shift, for 32
    tokens: see `TokenSource.entropy_per_token`.
    """

    kind: Literal["grammar"] = "grammar"
    samples: int = Field(default=4096, ge=2, description="number of sequences, for training and testing together")
    length: int = Field(default=32, ge=8, le=256, description="tokens of a sequence")
    shift: float = Field(default=0.0, ge=0, le=1, description="share of the words that have other preferences")
    objective: Literal["next_token", "masked_token"] = Field(
        default="next_token",
        description="tokens that a model predicts: each from those before it, or masked ones from all others",
    )
    objective_losses: ClassVar[Mapping[str, LossName]] = {"next_token": "next_token", "masked_token": "masked_token"}

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        raise_conflicts(self._find_too_many_tokens())
        return self

    def _find_too_many_tokens(self) -> Iterator[KeyConflict]:
        if self.samples * (self.length + 1) > MAX_GENERATED_NUMBERS:
            message = (
                f"{self.samples:,} sequences of {self.length:,} tokens are more than {MAX_GENERATED_NUMBERS:,} "
                f"generated numbers; use at most {MAX_GENERATED_NUMBERS // (self.length + 1):,} samples of this length"
            )
            yield KeyConflict(("samples",), message)

    def load(self, dtype: npt.DTypeLike) -> TrainTestData:  # noqa: ARG002 - tokens are integers
        source, rng = create_sentence_source(self.shift), np.random.default_rng(self.seed)
        tokens = source.draw_sequences(rng, self.samples, self.length + 1)
        x, next_tokens = tokens[:, :-1], tokens[:, 1:]
        y = next_tokens if self.objective == "next_token" else x
        train, test = random_split(self.samples, self.test_fraction, self.seed)
        task = LearningTask(inputs=x.shape[1:], outputs=VOCABULARY, loss=self.objective_losses[self.objective])
        return TrainTestData(x[train], y[train], x[test], y[test], task)
