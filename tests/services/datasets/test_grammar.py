"""Tests of the artificial language: its sentences follow the rules, and its entropy is the stated one."""

import re
import time

import numpy as np
import pytest
from perfect_model import perfect_masked_perplexity, perfect_perplexity

from services.learning.datasets import Grammar
from services.learning.datasets.language.sentences import (
    FIRST_ADJECTIVE,
    FIRST_DETERMINER,
    FIRST_NOUN,
    FIRST_PREPOSITION,
    FIRST_TOPIC,
    FIRST_VERB,
    FULL_STOP,
    NOUNS,
    VERBS,
    VOCABULARY,
    create_sentence_source,
)
from services.learning.models import BertMini
from services.learning.randomness import DEFAULT_RANDOMNESS
from services.learning.tokens import MASK_TOKEN
from services.schema.arrays import HostArray

# One letter per kind of word; capital letters are plural.
LETTERS = "".join(["_.", "t" * 4, "dD", "a" * 6, "p" * 2, "n" * 8, "N" * 8, "v" * 8, "V" * 8])
SINGULAR_SUBJECT, PLURAL_SUBJECT, NOUN_PHRASE = "da?n", "Da?N", "(da?n|Da?N)"
ATTRIBUTE = "(p(dn|DN))?"
SENTENCE = f"({SINGULAR_SUBJECT}{ATTRIBUTE}v|{PLURAL_SUBJECT}{ATTRIBUTE}V){NOUN_PHRASE}?\\."


@pytest.fixture(scope="module")
def sequences() -> HostArray:
    """Sequences of the language without a shift."""
    return create_sentence_source(0).draw_sequences(np.random.default_rng(5), 5000, 33)


def test_the_vocabulary_has_48_tokens_and_the_mask_token_never_occurs(sequences: HostArray) -> None:
    """A mask is recognised only if it is no word."""
    assert VOCABULARY == len(LETTERS) == 48
    assert set(np.unique(sequences)) == set(range(VOCABULARY)) - {MASK_TOKEN}


def test_sequences_are_a_topic_and_sentences_in_which_words_agree(sequences: HostArray) -> None:
    """Determiners agree with their nouns and verbs with their subjects, also across an attribute of another number.

    The words are read by a regular expression that knows nothing of the source; the last sentence may be cut off.
    """
    for row in sequences:
        text = "".join(LETTERS[token] for token in row)
        complete, _, rest = text.rpartition(".")

        assert re.fullmatch(f"t({SENTENCE})*", f"{complete}.") or "." not in text, text
        assert len(rest) <= 10


def test_the_number_of_the_verb_does_not_follow_from_the_nearest_noun(sequences: HostArray) -> None:
    """Otherwise a model of two neighbours would be perfect, and attention over a distance would not be needed."""
    texts = ["".join(LETTERS[token] for token in row) for row in sequences]

    same_number = sum(len(re.findall("nv|NV", text)) for text in texts)
    other_number = sum(len(re.findall("nV|Nv", text)) for text in texts)

    assert other_number > 0.1 * same_number


def test_verbs_depend_on_the_noun_of_the_subject_across_an_attribute(sequences: HostArray) -> None:
    """The preferred verb of a noun is several times as frequent after it as other verbs, four tokens later."""
    is_distant = (sequences[:, 2:-4] >= FIRST_NOUN) & (sequences[:, 2:-4] < FIRST_VERB)
    is_distant &= (sequences[:, 3:-3] >= FIRST_PREPOSITION) & (sequences[:, 3:-3] < FIRST_NOUN)
    nouns = (sequences[:, 2:-4][is_distant] - FIRST_NOUN) % NOUNS
    verbs = (sequences[:, 6:][is_distant] - FIRST_VERB) % VERBS
    counts = np.zeros((NOUNS, VERBS))
    np.add.at(counts, (nouns, verbs), 1)

    shares = counts.max(axis=1) / counts.sum(axis=1)

    assert (sequences[:, 6:][is_distant] >= FIRST_VERB).all()
    np.testing.assert_allclose(shares, 0.6, atol=0.05)


def test_topics_determine_which_nouns_are_frequent(sequences: HostArray) -> None:
    """The topic is the first token: the only source of this information in later sentences."""
    preferred = []
    for topic in range(4):
        about = sequences[sequences[:, 0] == FIRST_TOPIC + topic]
        starts = (about[:, 20:-2] == FULL_STOP) & (about[:, 22:] >= FIRST_NOUN)
        nouns = (about[:, 22:][starts] - FIRST_NOUN) % NOUNS
        preferred.append(np.bincount(nouns, minlength=NOUNS).argmax())

    assert len(set(preferred)) > 1


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.0])
def test_the_entropy_is_the_mean_negative_log_probability_of_drawn_tokens(shift: float) -> None:
    """The stated perplexity of a perfect model is exact, whatever was drawn."""
    source = create_sentence_source(shift)
    tokens = source.draw_sequences(np.random.default_rng(1), 20_000, 33)

    drawn = np.log(perfect_perplexity(source, tokens))

    assert source.entropy_per_token(33) == pytest.approx(drawn, abs=0.005)


@pytest.mark.parametrize(("shift", "perplexity"), [(0.0, 3.274), (0.5, 3.245), (1.0, 3.267)])
def test_a_perfect_model_has_the_documented_perplexity(shift: float, perplexity: float) -> None:
    """docs/workloads.md states it beside the targets."""
    assert np.exp(create_sentence_source(shift).entropy_per_token(33)) == pytest.approx(perplexity, abs=5e-4)


def test_a_perfect_model_of_masked_tokens_has_the_documented_perplexity() -> None:
    """docs/workloads.md states 1.7: context on both sides makes tokens more certain than context on one side."""
    data = Grammar(objective="masked_token").load("float32")
    x = data.test_x[:200]
    inputs, targets = BertMini().draw_inputs_and_targets(data.task, x, x, DEFAULT_RANDOMNESS)

    perplexity = perfect_masked_perplexity(create_sentence_source(0), inputs, targets)

    assert perplexity == pytest.approx(1.7, abs=0.05)


def test_a_model_of_pairs_of_tokens_is_far_from_perfect(sequences: HostArray) -> None:
    """A perplexity close to that of a perfect model shows that a model uses more than the previous token."""
    counts = np.zeros((VOCABULARY, VOCABULARY))
    np.add.at(counts, (sequences[:, :-1], sequences[:, 1:]), 1)
    shares = counts / counts.sum(axis=1, keepdims=True).clip(1)

    perplexity = np.exp(-np.log(shares[sequences[:, :-1], sequences[:, 1:]]).mean())

    assert perplexity == pytest.approx(5.85, abs=0.05)


def test_the_shifted_language_surprises_a_model_of_the_original_one() -> None:
    """Fine-tuning has something to learn: with a shift, the perplexity of a perfect model of the old language rises."""
    original = create_sentence_source(0)
    perplexities = []
    for shift in (0.0, 0.5, 1.0):
        tokens = create_sentence_source(shift).draw_sequences(np.random.default_rng(2), 4000, 33)
        perplexities.append(perfect_perplexity(original, tokens))

    assert perplexities == pytest.approx([3.27, 6.5, 10.5], rel=0.02)


def test_targets_are_the_next_tokens_or_the_same_tokens() -> None:
    """A model that predicts masked tokens masks them itself."""
    following, masked = (Grammar(samples=40, objective=name).load("float32") for name in ("next_token", "masked_token"))

    np.testing.assert_array_equal(following.train_x[:, 1:], following.train_y[:, :-1])
    np.testing.assert_array_equal(masked.train_x, masked.train_y)
    np.testing.assert_array_equal(following.train_x, masked.train_x)


def test_generating_the_default_samples_takes_less_than_a_second() -> None:
    """Every node generates them when it starts."""
    started = time.process_time()
    Grammar().load("float32")

    assert time.process_time() - started < 1


def test_the_kinds_of_words_do_not_overlap() -> None:
    """Each token has one meaning."""
    firsts = [FULL_STOP, FIRST_TOPIC, FIRST_DETERMINER, FIRST_ADJECTIVE, FIRST_PREPOSITION, FIRST_NOUN, FIRST_VERB]

    assert np.diff([MASK_TOKEN, *firsts, VOCABULARY]).tolist() == [1, 1, 4, 2, 6, 2, 16, 16]
