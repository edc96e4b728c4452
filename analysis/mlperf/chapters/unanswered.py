"""Chapter that lists the questions that the results cannot answer, and the data that each question needs."""

from collections.abc import Mapping

from analysis.mlperf.chapters.base import Chapter


def make_unanswered_chapter(missing_by_question: Mapping[str, str]) -> Chapter | None:
    """Return the chapter that lists unanswered questions, with the data that each question needs."""
    if not missing_by_question:
        return None
    finding = f"These results cannot answer: {', '.join(missing_by_question)}."
    return Chapter(
        "Not answered", finding, tuple(f"{title} needs {need}." for title, need in missing_by_question.items())
    )
