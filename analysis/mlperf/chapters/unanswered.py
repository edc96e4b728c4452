"""Report chapter that lists the questions that the MLPerf results cannot answer.

Each question is listed with the data that it needs.
"""

from collections.abc import Mapping

from analysis.mlperf.chapters.base import Chapter


def make_unanswered_chapter(missing_by_question: Mapping[str, str]) -> Chapter | None:
    """Return the report chapter that lists unanswered questions.

    Each question is listed with the data that it needs.
    """
    if not missing_by_question:
        return None
    finding = f"These results cannot answer: {', '.join(missing_by_question)}."
    return Chapter(
        "Not answered", finding, tuple(f"{title} needs {need}." for title, need in missing_by_question.items())
    )
