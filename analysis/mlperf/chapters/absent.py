"""Which questions do these results leave open, and what would it take to answer them?"""

from collections.abc import Mapping

from analysis.mlperf.chapters.base import Chapter


def absent(needs: Mapping[str, str]) -> Chapter | None:
    """Names what has no chapter (title -> what it needs): a page does not drop a question in silence."""
    if not needs:
        return None
    finding = f"These results do not tell: {', '.join(needs)}."
    return Chapter("Not answered", finding, tuple(f"{title} needs {need}." for title, need in needs.items()))
