"""Random source of token sequences: a finite-state machine with known entropy."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import numpy as np

from services.schema.arrays import HostArray

State: TypeAlias = tuple[str | int, ...]


class Continuation(NamedTuple):
    """One way in which a sequence of tokens may continue from a state."""

    token: int
    probability: float
    next_state: State


ContinuationFunction: TypeAlias = Callable[[State], Iterable[Continuation]]


class TokenSource(NamedTuple):
    """Source that emits one token per step; the probabilities of the next token depend on its state.

    State and emitted token determine the next state. So the tokens so far determine the state, and a model that has
    learned the source perfectly predicts the probabilities of the state. Every sequence starts in state 0.
    """

    probabilities: HostArray  # of the next token, shape (states, vocabulary)
    next_states: HostArray  # shape (states, vocabulary)

    def draw_sequences(self, rng: np.random.Generator, count: int, length: int) -> HostArray:
        """Return `count` sequences of `length` tokens, as int64 of shape (count, length)."""
        cumulative = self.probabilities.cumsum(axis=1)
        cumulative[:, -1] = np.inf  # sums of probabilities may round to less than 1
        tokens, states = np.empty((count, length), np.int64), np.zeros(count, np.int64)
        for position in range(length):
            tokens[:, position] = (rng.random((count, 1)) >= cumulative[states]).sum(axis=1)
            states = self.next_states[states, tokens[:, position]]
        return tokens

    def entropy_per_token(self, length: int) -> float:
        """Return the mean entropy of a token of a sequence given all tokens before it, in nats.

        The mean is over all tokens of a sequence of `length` tokens except the first. exp of it is the perplexity of a
        perfect model that predicts each token from those before it.
        """
        logs = np.log(self.probabilities, where=self.probabilities > 0, out=np.zeros_like(self.probabilities))
        entropies = -(self.probabilities * logs).sum(axis=1)
        state_shares, total = self._step_state_shares(np.eye(1, len(entropies))[0]), 0.0
        for _ in range(length - 1):
            total += float(state_shares @ entropies)
            state_shares = self._step_state_shares(state_shares)
        return total / (length - 1)

    def _step_state_shares(self, state_shares: HostArray) -> HostArray:
        """Return the probabilities of the states after one more token, given those before it."""
        flow = state_shares[:, np.newaxis] * self.probabilities
        return np.bincount(self.next_states.ravel(), flow.ravel(), minlength=len(state_shares))


def build_token_source(start_state: State, continuations: ContinuationFunction, vocabulary: int) -> TokenSource:
    """Return the source with all states that are reachable from `start_state`, which becomes state 0."""
    numbers, rows = {start_state: 0}, []
    pending = [start_state]
    for state in pending:  # grows while states are found
        rows.append([*continuations(state)])
        for continuation in rows[-1]:
            if continuation.next_state not in numbers:
                numbers[continuation.next_state] = len(numbers)
                pending.append(continuation.next_state)
    probabilities, next_states = np.zeros((len(rows), vocabulary)), np.zeros((len(rows), vocabulary), np.int64)
    for number, row in enumerate(rows):
        tokens = [continuation.token for continuation in row]
        probabilities[number, tokens] = [continuation.probability for continuation in row]
        next_states[number, tokens] = [numbers[continuation.next_state] for continuation in row]
    return TokenSource(probabilities, next_states)
