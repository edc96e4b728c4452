"""Tests of the prediction of tokens: weights of positions, perplexity, and tokens outside the vocabulary."""

import numpy as np
import pytest
from sklearn.metrics import log_loss

from services.learning.objectives import OBJECTIVES
from services.learning.tokens import IGNORED_TARGET, check_tokens

TOKENS = OBJECTIVES["next_token"]


def test_loss_equals_the_cross_entropy_of_scikit_learn_if_all_positions_count() -> None:
    """The loss of other libraries is the mean over all positions; only then do the same learning rates apply."""
    rng = np.random.default_rng(0)
    scores, targets = rng.standard_normal((3, 4, 5)), rng.integers(5, size=(3, 4))
    shares = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)

    loss, _ = TOKENS.loss_and_output_grad(scores, targets)

    assert float(loss) == pytest.approx(log_loss(targets.ravel(), shares.reshape(-1, 5), labels=range(5)))


def test_perplexity_of_equal_scores_is_the_size_of_the_vocabulary() -> None:
    """A model that knows nothing chooses among all tokens."""
    values = TOKENS.measure_quality(np.zeros((2, 3, 7)), np.ones((2, 3), np.int64))

    assert values["perplexity"] == pytest.approx(7)


def test_every_sample_has_the_same_weight_whatever_its_number_of_targets() -> None:
    """Workers average gradients by their numbers of samples, not of tokens."""
    scores = np.zeros((2, 3, 2))
    scores[0, 0] = np.log([3, 1])  # the target of the first sample has the probability 1/4
    targets = np.array([[1, IGNORED_TARGET, IGNORED_TARGET], [0, 1, 1]])

    loss, grad = TOKENS.loss_and_output_grad(scores, targets)

    assert float(loss) == pytest.approx((np.log(4) + np.log(2)) / 2)
    assert abs(grad[0]).sum() == pytest.approx(3 / 4)
    assert abs(grad[1]).sum() == pytest.approx(1 / 2)


def test_ignored_positions_and_samples_without_targets_have_no_gradient() -> None:
    """A sample without any target must not divide by zero."""
    scores, targets = np.ones((2, 2, 3)), np.array([[IGNORED_TARGET, 2], [IGNORED_TARGET, IGNORED_TARGET]])

    loss, grad = TOKENS.loss_and_output_grad(scores, targets)

    assert float(loss) == pytest.approx(np.log(3) / 2)
    assert grad[0, 1].any()
    assert not grad[0, 0].any()
    assert not grad[1].any()


def test_accuracy_counts_only_the_positions_that_have_a_target() -> None:
    """At the other positions no token is right."""
    scores, targets = np.eye(3)[np.array([[0, 1, 2]])], np.array([[0, 2, IGNORED_TARGET]])

    assert TOKENS.measure_quality(scores, targets)["accuracy"] == pytest.approx(1 / 2)


@pytest.mark.parametrize("token", [-2, 5])
def test_targets_outside_the_vocabulary_are_rejected(token: int) -> None:
    """NumPy would take token 3 for -2, and CuPy an arbitrary number of its memory for 5."""
    with pytest.raises(ValueError, match=f"token {token} is not in the vocabulary, whose tokens are 0 to 4"):
        TOKENS.loss_and_output_grad(np.zeros((1, 2, 5)), np.array([[token, 1]]))


def test_an_ignored_target_is_not_allowed_as_an_input() -> None:
    """Only targets may be ignored; an input of -1 would be taken for the last token."""
    with pytest.raises(ValueError, match="token -1 is not in the vocabulary"):
        check_tokens(np.array([IGNORED_TARGET, 1]), vocabulary=5)
