"""Chapter that lists the questions that the results cannot answer, and the data that each question needs."""

from collections.abc import Mapping

from analysis.mlperf.chapters.base import Chapter


def unanswered_questions_chapter(needed_data: Mapping[str, str]) -> Chapter | None:
    """Return the chapter that lists unanswered questions, with the data that each question needs."""
    if not needed_data:
        return None
    finding = f"These results cannot answer: {', '.join(needed_data)}."
    return Chapter("Not answered", finding, tuple(f"{title} needs {need}." for title, need in needed_data.items()))
