"""Time limits of process groups in a dilated run, whose virtual seconds take several wall seconds."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from services.commands.script_process.ensayo_meter.distributed_hooks import multiply_time_limits

DEFAULT = timedelta(minutes=30)
LIMIT = timedelta(seconds=10)


class Distributed(SimpleNamespace):
    """A module that records the time limits of its calls."""

    default_pg_timeout = DEFAULT

    def __init__(self) -> None:
        self.limits = list[Any]()

        def init_process_group(backend: str | None = None, init_method: str | None = None, timeout: Any = None) -> None:
            assert (backend, init_method) == ("gloo", None)
            self.limits.append(timeout)

        def new_group(ranks: Any = None, timeout: Any = None, *, group_desc: str | None = None) -> str:
            self.limits.append(timeout)
            return f"{ranks} {group_desc}"

        super().__init__(init_process_group=init_process_group, new_group=new_group)


@pytest.mark.parametrize(
    ("arguments", "named", "limit"),
    [
        (("gloo",), {}, 3 * DEFAULT),
        (("gloo", None, LIMIT), {}, 3 * LIMIT),
        ((), {"backend": "gloo", "timeout": LIMIT}, 3 * LIMIT),
        (("gloo",), {"timeout": None}, 3 * DEFAULT),
    ],
)
def test_time_limits_of_the_default_group_are_multiplied(
    arguments: tuple[Any, ...], named: dict[str, Any], limit: timedelta
) -> None:
    """A script that waits for a slow link would fail at a third of its virtual time limit."""
    module: Any = Distributed()

    multiply_time_limits(module, 3)
    module.init_process_group(*arguments, **named)

    assert module.limits == [limit]


def test_time_limits_of_further_groups_are_multiplied() -> None:
    """Each group has a limit of its own."""
    module: Any = Distributed()

    multiply_time_limits(module, 1.5)

    assert module.new_group([0, 1], LIMIT, group_desc="pair") == "[0, 1] pair"
    module.new_group()
    assert module.limits == [1.5 * LIMIT, 1.5 * DEFAULT]


@pytest.mark.torch
def test_a_rank_is_late_only_after_the_virtual_time_limit(run_ranks: Any) -> None:
    """Rank 1 comes after three wall seconds; the limit is one second, or eight with a dilation of 8."""
    pytest.importorskip("torch")

    assert [rank.output for rank in run_ranks("late_rank.py", 3, 1, dilation=8)] == ["sum=2\n"] * 2
    waiting, _ = run_ranks("late_rank.py", 3, 1)
    assert waiting.exit_code != 0
    assert "imed out" in waiting.errors
