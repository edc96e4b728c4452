"""Perfect predictions of the dataset `grammar`."""

import numpy as np

from services.learning.datasets.language.token_source import TokenSource
from services.learning.tokens import IGNORED_TARGET, MASK_TOKEN
from services.schema.arrays import HostArray

KEPT_SHARE = 0.5  # of the targets whose input is not the mask token: half are kept, half are random tokens


def perfect_perplexity(source: TokenSource, tokens: HostArray) -> float:
    """Return the perplexity of a model that knows `source` on sequences from any source, without the first tokens."""
    states, logs = np.zeros(len(tokens), np.int64), []
    for column in tokens.T:
        logs.append(np.log(source.probabilities[states, column]))
        states = source.next_states[states, column]
    return float(np.exp(-np.mean(logs[1:])))


def perfect_masked_perplexity(source: TokenSource, inputs: HostArray, targets: HostArray) -> float:
    """Return the perplexity of a model that knows `source` and the rule by which tokens are masked.

    It weighs all sequences by the forward-backward algorithm. It takes the masks of different positions as independent,
    which is almost right: a sample has a fixed number of targets.
    """
    (batch, length), (states, vocabulary) = inputs.shape, source.probabilities.shape
    is_masked = inputs == MASK_TOKEN
    target_count = (targets[0] != IGNORED_TARGET).sum()
    is_target = (target_count - is_masked.sum(axis=1)) / (~is_masked).sum(axis=1)  # probability, where not masked
    # p(input | token) = changed + unchanged·[input = token]. A mask is equally probable for all tokens.
    changed = np.where(is_masked, 1, is_target[:, None] * (1 - KEPT_SHARE) / (vocabulary - 1))
    unchanged = np.where(is_masked, 0, 1 - is_target[:, None] * (1 - KEPT_SHARE))

    def likelihoods(position: int) -> HostArray:
        """Return p(input | token) at a position, shape (batch, 1, vocabulary)."""
        is_input = np.arange(vocabulary) == inputs[:, position, None]
        return (changed[:, position, None] + unchanged[:, position, None] * is_input)[:, None]

    forward, backward = np.zeros((length, batch, states)), np.ones((length + 1, batch, states))
    forward[0, :, 0] = 1
    offsets = states * np.arange(batch)[:, None, None]
    for position in range(length - 1):
        flow = forward[position, :, :, None] * source.probabilities * likelihoods(position)
        moved = np.bincount((source.next_states + offsets).ravel(), flow.ravel(), batch * states).reshape(batch, states)
        forward[position + 1] = moved / moved.sum(axis=1, keepdims=True)
    for position in reversed(range(length)):
        following = backward[position + 1][:, source.next_states]
        weights = (source.probabilities * likelihoods(position) * following).sum(axis=2)
        backward[position] = weights / weights.max(axis=1, keepdims=True)
    logs = []
    for sample, position in np.argwhere(targets != IGNORED_TARGET):
        following = backward[position + 1, sample][source.next_states]
        shares = (forward[position, sample][:, None] * source.probabilities * following).sum(axis=0)
        if not is_masked[sample, position]:
            shares *= (1 - KEPT_SHARE) / (vocabulary - 1) + KEPT_SHARE * (
                np.arange(vocabulary) == inputs[sample, position]
            )
        logs.append(np.log(shares[targets[sample, position]] / shares.sum()))
    return float(np.exp(-np.mean(logs)))
