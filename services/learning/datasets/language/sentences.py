"""Artificial language of the dataset `grammar`.

A sequence begins with its topic, followed by sentences:

    sentence     subject, attribute?, verb, object?, full stop
    subject      determiner, adjective?, noun
    attribute    preposition, determiner, noun
    object       determiner, adjective?, noun

Nouns, verbs and determiners are singular or plural. A determiner agrees with its noun. The verb agrees with the noun of
the subject, which may be four tokens before it. Each noun and verb also depends on another word: the noun of the
subject on the topic and on its adjective, the verb on the noun of the subject, the noun of the attribute on the
preposition, and the noun of the object on the verb.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from services.learning.datasets.language.token_source import Continuation, State, TokenSource, build_token_source
from services.learning.tokens import MASK_TOKEN
from services.schema.arrays import HostArray

TOPICS, NUMBERS, ADJECTIVES, PREPOSITIONS, NOUNS, VERBS = 4, 2, 6, 2, 8, 8  # how many there are of each

FULL_STOP = MASK_TOKEN + 1
FIRST_TOPIC = FULL_STOP + 1
FIRST_DETERMINER = FIRST_TOPIC + TOPICS
FIRST_ADJECTIVE = FIRST_DETERMINER + NUMBERS
FIRST_PREPOSITION = FIRST_ADJECTIVE + ADJECTIVES
FIRST_NOUN = FIRST_PREPOSITION + PREPOSITIONS  # first all singular nouns, then all plural nouns; verbs likewise
FIRST_VERB = FIRST_NOUN + NUMBERS * NOUNS
VOCABULARY = FIRST_VERB + NUMBERS * VERBS

ADJECTIVE_SHARE = 0.3  # of subjects and objects
ATTRIBUTE_SHARE = 0.35  # of sentences
OBJECT_SHARE = 0.7  # of sentences
PREFERENCE_RATIO = 0.4  # in its order of preference, each word is this many times as probable as the previous one
LANGUAGE_SEED, SHIFTED_LANGUAGE_SEED = 1, 2

Continuations: TypeAlias = Iterator[Continuation]


@dataclass(frozen=True)
class WordPreferences:
    """Probabilities of nouns or verbs given another word; each table has a row per other word, whose sum is 1."""

    topic_nouns: HostArray
    adjective_nouns: HostArray
    preposition_nouns: HostArray
    noun_verbs: HostArray
    verb_nouns: HostArray

    @classmethod
    def draw(cls, seed: int) -> "WordPreferences":
        """Draw the preferences of a language."""
        rng = np.random.default_rng(seed)
        sizes = (TOPICS, NOUNS), (ADJECTIVES, NOUNS), (PREPOSITIONS, NOUNS), (NOUNS, VERBS), (VERBS, NOUNS)
        return cls(*(_draw_preferences(rng, *size) for size in sizes))

    def replace_share(self, share: float, other: "WordPreferences") -> "WordPreferences":
        """Return preferences in which this share of the rows of each table, the first ones, is taken from `other`."""
        tables = [(round(share * len(own)), own, new) for own, new in zip(self.tables, other.tables, strict=True)]
        return WordPreferences(*(np.concatenate([new[:count], own[count:]]) for count, own, new in tables))

    @property
    def tables(self) -> tuple[HostArray, ...]:
        """All tables, in a fixed order."""
        return self.topic_nouns, self.adjective_nouns, self.preposition_nouns, self.noun_verbs, self.verb_nouns


def create_sentence_source(shift: float) -> TokenSource:
    """Return the source of sentences of the language in which a share `shift` of the words has other preferences."""
    words = WordPreferences.draw(LANGUAGE_SEED)
    words = words.replace_share(shift, WordPreferences.draw(SHIFTED_LANGUAGE_SEED))
    return build_token_source(("topic",), lambda state: _RULES[str(state[0])](words, *state[1:]), VOCABULARY)


def _draw_preferences(rng: np.random.Generator, condition_count: int, outcome_count: int) -> HostArray:
    """Return probabilities of outcomes under each condition: geometric in a random order."""
    order = rng.permuted(np.tile(np.arange(outcome_count), (condition_count, 1)), axis=1)
    return _normalise(PREFERENCE_RATIO**order)


def _normalise(weights: HostArray) -> HostArray:
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _choose(first_token: int, probabilities: Iterable[float], next_state: Callable[[int], State]) -> Continuations:
    """Yield a continuation for each of several tokens with consecutive numbers."""
    for choice, probability in enumerate(probabilities):
        yield Continuation(first_token + choice, probability, next_state(choice))


def _share_equally(probability: float, count: int) -> list[float]:
    return [probability / count] * count


# The rules: each yields the tokens that may follow in one kind of state.


def _topic(_: WordPreferences) -> Continuations:
    yield from _choose(FIRST_TOPIC, _share_equally(1, TOPICS), lambda topic: ("sentence", topic))


def _sentence(_: WordPreferences, topic: int) -> Continuations:
    yield from _choose(FIRST_DETERMINER, _share_equally(1, NUMBERS), lambda number: ("subject", topic, number))


def _subject(words: WordPreferences, topic: int, number: int) -> Continuations:
    adjective_shares = _share_equally(ADJECTIVE_SHARE, ADJECTIVES)
    yield from _choose(FIRST_ADJECTIVE, adjective_shares, lambda word: ("described_subject", topic, number, word))
    noun_shares = (1 - ADJECTIVE_SHARE) * words.topic_nouns[topic]
    yield from _choose(FIRST_NOUN + number * NOUNS, noun_shares, lambda noun: ("predicate", topic, number, noun))


def _described_subject(words: WordPreferences, topic: int, number: int, adjective: int) -> Continuations:
    shares = _normalise(words.topic_nouns[topic] * words.adjective_nouns[adjective])
    yield from _choose(FIRST_NOUN + number * NOUNS, shares, lambda noun: ("predicate", topic, number, noun))


def _predicate(words: WordPreferences, topic: int, number: int, noun: int) -> Continuations:
    shares = _share_equally(ATTRIBUTE_SHARE, PREPOSITIONS)
    yield from _choose(FIRST_PREPOSITION, shares, lambda word: ("attribute", topic, number, noun, word))
    verb_shares = (1 - ATTRIBUTE_SHARE) * words.noun_verbs[noun]
    yield from _choose(FIRST_VERB + number * VERBS, verb_shares, lambda verb: ("after_verb", topic, verb))


def _attribute(_: WordPreferences, topic: int, number: int, noun: int, preposition: int) -> Continuations:
    rest = topic, number, noun, preposition
    yield from _choose(FIRST_DETERMINER, _share_equally(1, NUMBERS), lambda other: ("attribute_noun", other, *rest))


def _attribute_noun(
    words: WordPreferences, own_number: int, topic: int, number: int, noun: int, preposition: int
) -> Continuations:
    shares = words.preposition_nouns[preposition]
    yield from _choose(FIRST_NOUN + own_number * NOUNS, shares, lambda _: ("verb", topic, number, noun))


def _verb(words: WordPreferences, topic: int, number: int, noun: int) -> Continuations:
    shares = words.noun_verbs[noun]
    yield from _choose(FIRST_VERB + number * VERBS, shares, lambda verb: ("after_verb", topic, verb))


def _after_verb(_: WordPreferences, topic: int, verb: int) -> Continuations:
    yield Continuation(FULL_STOP, 1 - OBJECT_SHARE, ("sentence", topic))
    shares = _share_equally(OBJECT_SHARE, NUMBERS)
    yield from _choose(FIRST_DETERMINER, shares, lambda number: ("object", topic, verb, number))


def _object(words: WordPreferences, topic: int, verb: int, number: int) -> Continuations:
    shares = _share_equally(ADJECTIVE_SHARE, ADJECTIVES)
    yield from _choose(FIRST_ADJECTIVE, shares, lambda _: ("described_object", topic, verb, number))
    noun_shares = (1 - ADJECTIVE_SHARE) * words.verb_nouns[verb]
    yield from _choose(FIRST_NOUN + number * NOUNS, noun_shares, lambda _: ("full_stop", topic))


def _described_object(words: WordPreferences, topic: int, verb: int, number: int) -> Continuations:
    yield from _choose(FIRST_NOUN + number * NOUNS, words.verb_nouns[verb], lambda _: ("full_stop", topic))


def _full_stop(_: WordPreferences, topic: int) -> Continuations:
    yield Continuation(FULL_STOP, 1, ("sentence", topic))


_RULES: Mapping[str, Callable[..., Continuations]] = {
    "topic": _topic,
    "sentence": _sentence,
    "subject": _subject,
    "described_subject": _described_subject,
    "predicate": _predicate,
    "attribute": _attribute,
    "attribute_noun": _attribute_noun,
    "verb": _verb,
    "after_verb": _after_verb,
    "object": _object,
    "described_object": _described_object,
    "full_stop": _full_stop,
}
