"""Chapter that lists the questions that the results cannot answer, and the data that each question needs."""

from collections.abc import Mapping

from analysis.mlperf.chapters.base import Chapter


def unanswered_questions_chapter(need_by_question: Mapping[str, str]) -> Chapter | None:
    """Return the chapter that lists unanswered questions, with the data that each question needs."""
    if not need_by_question:
        return None
    finding = f"These results cannot answer: {', '.join(need_by_question)}."
    return Chapter("Not answered", finding, tuple(f"{title} needs {need}." for title, need in need_by_question.items()))
