"""Dataset in a text."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from services.learning.datasets.files.base import FileDataset
from services.learning.objectives import LossName


class TextFile(FileDataset):
    """Prediction of the tokens of a text (UTF-8).

    A token is a character, or a word or punctuation mark. Tokens are numbered from 1, from the most frequent to the
    rarest; number 0, the mask token, never occurs. Without `test_path`, the last part of the text is the test part;
    `seed` has no effect. The vocabulary is that of `path`.

    With `objective: classification`, a sample consists of `context` tokens as one-hot vectors, shape (context,
    vocabulary), and its class is the token after them, as in Y. Bengio et al., "A neural probabilistic language model",
    JMLR 2003. Samples begin at every token. With `next_token` and `masked_token`, a sample is a sequence of `context`
    tokens, shape (context,), and samples do not overlap. The targets are the tokens one position later, or the same
    tokens.
    """

    kind: Literal["text"] = "text"
    level: Literal["character", "word"] = Field("character", description="whether a token is a character or a word")
    context: int = Field(default=8, gt=0, le=1024, description="number of tokens in a sample")
    vocabulary: int | None = Field(
        None,
        gt=0,
        description="number of different tokens; rarer tokens become one token `unknown`. Default: all tokens of path; "
        "a test text then has no others",
    )
    objective: Literal["classification", "next_token", "masked_token"] = Field(
        "classification",
        description="classification: the class of a sample is the token (character or word) after it; "
        "next_token, masked_token: a model of tokens predicts each token of a sequence from those before it, or masked "
        "ones from all others",
    )
    objective_losses: ClassVar[Mapping[str, LossName]] = {
        "classification": "cross_entropy",
        "next_token": "next_token",
        "masked_token": "masked_token",
    }
