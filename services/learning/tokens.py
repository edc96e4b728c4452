"""Tokens: those with a special meaning, and the check that tokens are in a vocabulary.

A vocabulary of n tokens has the tokens 0 to n - 1.
"""

from services.schema.arrays import Array

MASK_TOKEN = 0  # takes the place of a token that a model must predict; it never occurs in a dataset
IGNORED_TARGET = -1  # target of a position that does not count


def check_tokens(tokens: Array, vocabulary: int, smallest: int = 0) -> None:
    """Check that all tokens are from `smallest` to `vocabulary` - 1.

    Libraries count negative indices from the end, and CuPy does not check indices.

    Raises:
        ValueError: a token is outside this range.
    """
    if tokens.size == 0:
        return
    lowest, highest = int(tokens.min()), int(tokens.max())
    if lowest < smallest or highest >= vocabulary:
        wrong_token = lowest if lowest < smallest else highest
        raise ValueError(f"token {wrong_token} is not in the vocabulary, whose tokens are 0 to {vocabulary - 1}")
