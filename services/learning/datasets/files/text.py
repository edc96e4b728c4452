"""Dataset in a text."""

from typing import Literal

from pydantic import Field

from services.learning.datasets.files.base import FileDataset


class TextFile(FileDataset):
    """Prediction of the next token of a text (UTF-8) from the tokens before it.

    A token is a character, or a word or punctuation mark. Tokens are numbered from 1, from the most frequent to the
    rarest; number 0 is never used. A sample consists of `context` tokens as one-hot vectors, shape (context,
    vocabulary), as in Y. Bengio et al., "A neural probabilistic language model", JMLR 2003. Without `test_path`, the
    last part of the text is the test part; `seed` has no effect. The vocabulary is that of `path`.
    """

    kind: Literal["text"] = "text"
    level: Literal["character", "word"] = Field("character", description="whether a token is a character or a word")
    context: int = Field(default=8, gt=0, le=1024, description="number of tokens from which the next one is predicted")
    vocabulary: int | None = Field(
        None,
        gt=0,
        description="number of different tokens; rarer tokens become one token `unknown`. Default: all tokens of path; "
        "a test text then has no others",
    )
