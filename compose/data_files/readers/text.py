"""Reader of texts: tokens, vocabulary, and the learning task of the samples that are cut out of the tokens."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from compose.data_files.array_writer import write_array
from compose.data_files.limits import MAX_CONTEXT_NUMBERS, MAX_TEXT_BYTES
from compose.data_files.paths import check_is_file, explain_read_errors
from services.learning.datasets import LearningTask
from services.learning.datasets.files import DataFileError, TextFile
from services.learning.datasets.prepared import PreparedArrays
from services.learning.datasets.text_rows import create_text_rows
from services.learning.tokens import MASK_TOKEN
from services.schema.arrays import HostArray
from services.schema.message_paths import path_for_messages

FIRST_TOKEN = MASK_TOKEN + 1  # the mask token stands for no token of the text
WORD_PATTERN = re.compile(r"\w+|[^\w\s]")


def prepare_text(dataset: TextFile, folder: Path) -> PreparedArrays:
    """Read and check texts, and write the tokens of the training and the test part to `folder`."""
    texts = {key: _read_text(key, Path(file.file)) for key, file in dataset.data_files()}
    numbers = _assign_token_numbers(dataset, _split_tokens(dataset, texts["path"]))
    vocabulary = FIRST_TOKEN + max(numbers.values()) if dataset.vocabulary is None else FIRST_TOKEN + dataset.vocabulary
    _check_sample_size(dataset, vocabulary)
    task = _learning_task(dataset, vocabulary)
    parts = _split_parts(dataset, {key: _encode(dataset, key, text, numbers) for key, text in texts.items()})
    for name, tokens in parts.items():
        write_array(folder, f"{name}_x", tokens.astype(np.min_scalar_type(vocabulary)))
    train_samples, test_samples = (
        len(create_text_rows(parts[name], dataset.context, task, float)[0]) for name in ("train", "test")
    )
    return PreparedArrays(
        task=task,
        train_samples=train_samples,
        test_samples=test_samples,
        stored_bytes=sum(path.stat().st_size for path in folder.iterdir()),
        context=dataset.context,
    )


def _check_sample_size(dataset: TextFile, vocabulary: int) -> None:
    """Raise DataFileError if a sample, or the scores that a model computes for it, have too many numbers."""
    if vocabulary * dataset.context > MAX_CONTEXT_NUMBERS:
        message = (
            f"{vocabulary:,} tokens in a context of {dataset.context} are {vocabulary * dataset.context:,} numbers per "
            f"sample; at most {MAX_CONTEXT_NUMBERS:,} are allowed; reduce context or vocabulary"
        )
        raise DataFileError("vocabulary", message)


def _learning_task(dataset: TextFile, vocabulary: int) -> LearningTask:
    is_classification = dataset.objective == "classification"
    inputs = (dataset.context, vocabulary) if is_classification else (dataset.context,)
    return LearningTask(inputs=inputs, outputs=vocabulary, loss=dataset.objective_losses[dataset.objective])


def _read_text(key: str, path: Path) -> str:
    name = path_for_messages(path)
    with explain_read_errors(key, path):
        check_is_file(key, path)
        if (size := path.stat().st_size) > MAX_TEXT_BYTES:
            raise DataFileError(key, f"{name}: the file has {size:,} bytes; at most {MAX_TEXT_BYTES:,} are allowed")
        content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        message = f"{name}:{line}: byte {error.start:,} is not valid UTF-8; save the file as UTF-8 text"
        raise DataFileError(key, message) from error


def _split_tokens(dataset: TextFile, text: str) -> Sequence[str]:
    """Return the tokens of a text: its characters, or its words and punctuation marks."""
    return text if dataset.level == "character" else WORD_PATTERN.findall(text)


def _assign_token_numbers(dataset: TextFile, tokens: Sequence[str]) -> dict[str, int]:
    """Return the number of each token: the most frequent one first, equally frequent ones in alphabetical order.

    With a limited vocabulary, all rarer tokens share the last number.
    """
    if not tokens:
        raise DataFileError("path", f"{path_for_messages(Path(dataset.path.file))}: the text has no tokens")
    by_frequency = sorted(Counter(tokens).items(), key=lambda item: (-item[1], item[0]))
    last = FIRST_TOKEN + (dataset.vocabulary or len(by_frequency)) - 1
    return {token: min(number, last) for number, (token, _) in enumerate(by_frequency, start=FIRST_TOKEN)}


def _encode(dataset: TextFile, key: str, text: str, numbers: Mapping[str, int]) -> HostArray:
    """Return the numbers of the tokens of a text.

    Raises:
        DataFileError: a token of the test text is not in the vocabulary, and the vocabulary is not limited.
    """
    tokens = _split_tokens(dataset, text)
    encoded = np.fromiter((numbers.get(token, 0) for token in tokens), np.int64, len(tokens))
    unknown = np.flatnonzero(encoded == 0)
    if unknown.size and dataset.vocabulary is None:
        _raise_unknown_token(dataset, key, text, int(unknown[0]))
    encoded[unknown] = FIRST_TOKEN + (dataset.vocabulary or 1) - 1
    return encoded


def _raise_unknown_token(dataset: TextFile, key: str, text: str, token_number: int) -> None:
    """Raise DataFileError for a token of the test text, with its line and column."""
    if dataset.level == "character":
        offset, token = token_number, text[token_number]
    else:
        match = list(WORD_PATTERN.finditer(text))[token_number]
        offset, token = match.start(), match.group()
    line, column = text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
    name = path_for_messages(Path(dataset.test_path.file if dataset.test_path else dataset.path.file))
    message = (
        f"{name}:{line}: column {column}: {token!r} does not occur in path; declare a vocabulary, so that rare tokens "
        "become one token"
    )
    raise DataFileError(key, message)


def _split_parts(dataset: TextFile, encoded: Mapping[str, HostArray]) -> dict[str, HostArray]:
    """Return the tokens of the training and the test part."""
    tokens = encoded["path"]
    end = len(tokens) - round(dataset.test_fraction * len(tokens))
    parts = {"train": tokens[:end], "test": tokens[end:]}
    if "test_path" in encoded:
        parts = {"train": tokens, "test": encoded["test_path"]}
    for name, part in parts.items():
        _check_length(dataset, name, len(part))
    return parts


def _check_length(dataset: TextFile, part_name: str, token_count: int) -> None:
    """Raise DataFileError if a part of the text has too few tokens for one sample."""
    needed, reason = dataset.context + 1, "a context and the next token"
    if dataset.objective == "masked_token":
        needed, reason = dataset.context, "a context"
    if token_count < needed:
        message = (
            f"the {part_name} part has {token_count} tokens; a sample needs {needed}: {reason}; use a longer text or a "
            "smaller context"
        )
        raise DataFileError("context", message)
