"""Perfect predictions of the dataset `grammar`."""

import numpy as np

from services.learning.datasets.token_source import TokenSource
from services.schema.arrays import HostArray


def perfect_perplexity(source: TokenSource, tokens: HostArray) -> float:
    """Return the perplexity of a model that knows `source` on sequences from any source, without the first tokens."""
    states, logs = np.zeros(len(tokens), np.int64), []
    for column in tokens.T:
        logs.append(np.log(source.probabilities[states, column]))
        states = source.next_states[states, column]
    return float(np.exp(-np.mean(logs[1:])))
