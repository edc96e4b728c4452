"""Assignment of collectives and updates to steps, and the places where a step sleeps, on a clock without PyTorch."""

import pytest

from services.commands.script_process.ensayo_meter.pacer import Pacer
from services.commands.script_process.ensayo_meter.step_records import CollectiveRecord, StepRecord
from services.commands.script_process.ensayo_meter.step_schedule import StepSchedule
from services.commands.script_process.ensayo_meter.step_tracker import IGNORE, RECORD, SKIP, StepTracker
from services.commands.script_process.ensayo_meter.time_intervals import covered_seconds, seconds_outside


class Script:
    """A script on a clock that advances when it says so, with the receiver of its steps."""

    def __init__(
        self, schedule: StepSchedule | None = None, compute_s: float | None = None, evaluations: str = IGNORE
    ) -> None:
        self.now_s, self.steps, self._compute_s = 0.0, list[StepRecord](), compute_s
        pacer = Pacer(schedule, self.sleep_until)
        self.tracker = StepTracker(lambda: self.now_s, pacer, self, evaluations)

    def sleep_until(self, deadline_s: float) -> None:
        self.now_s = max(self.now_s, deadline_s)

    def begin_training(self, begin_s: float) -> float | None:
        return self._compute_s

    def receive_step(self, step: StepRecord) -> float | None:
        self.steps.append(step)
        return self._compute_s

    def compute(self, seconds: float) -> None:
        self.now_s += seconds

    def forward(self, seconds: float = 0.0, *, has_gradient: bool = True) -> None:
        self.tracker.begin_forward(has_gradient=has_gradient)
        self.compute(seconds)
        self.tracker.end_forward()

    def backward(self) -> None:
        self.tracker.begin_backward()
        self.tracker.end_backward()

    def launch(self, size: int = 4, dtype: str = "float32", *, is_async: bool = False) -> CollectiveRecord:
        return self.tracker.launch("all_reduce", size, dtype, 2, is_async=is_async)

    def reduce(self, seconds: float = 0.0, size: int = 4, dtype: str = "float32") -> None:
        """Call a synchronous collective that takes this time."""
        record = self.launch(size, dtype)
        self.compute(seconds)
        self.tracker.record_wait(record, record.begin_s)

    def update(self, optimiser: int = 1, seconds: float = 0.0) -> None:
        self.tracker.begin_update(optimiser)
        self.compute(seconds)
        self.tracker.end_update(optimiser)

    def counts(self) -> list[int]:
        """Return the number of collectives of each step."""
        self.tracker.finish_updated_step()
        return [len(step.collectives) for step in self.steps]


def test_the_first_step_begins_with_the_forward_pass_that_no_collective_follows() -> None:
    """A forward pass before the construction of DDP, for example to initialise lazy modules, is not training."""
    script = Script()
    script.forward()
    script.compute(1)
    script.reduce()  # the construction of DDP
    script.compute(1)
    script.forward()
    script.compute(1)
    script.forward()  # the loss is a module, too
    script.backward()
    script.reduce()
    script.update()

    assert script.counts() == [1]
    assert (script.steps[0].begin_s, len(script.steps[0].start_collectives)) == (2, 1)


def test_collectives_inside_of_the_first_forward_pass_belong_to_the_first_step() -> None:
    """FSDP collects parameters inside of the forward pass."""
    script = Script()
    script.tracker.begin_forward(has_gradient=True)
    script.reduce()
    script.tracker.end_forward()
    script.backward()
    script.update()

    assert script.counts() == [1]
    assert not script.steps[0].start_collectives


def test_updates_that_follow_each_other_are_one_step() -> None:
    """Two optimisers hold the parameters of one model."""
    script = Script()
    for _ in range(2):
        script.backward()
        script.reduce()
        script.update(1)
        script.update(2)

    assert script.counts() == [1, 1]


@pytest.mark.parametrize("between", ["backward", "reduce"])
def test_updates_with_a_backward_pass_or_a_collective_between_them_are_two_steps(between: str) -> None:
    """A GAN updates each of its models after a backward pass of its own."""
    script = Script()
    script.backward()
    script.update(1)
    getattr(script, between)()
    script.update(2)

    assert len(script.counts()) == 2


def test_collectives_of_an_update_belong_to_its_step() -> None:
    """An optimiser with sharded state calls an inner one, and then broadcasts the parameters."""
    script = Script()
    script.backward()
    script.tracker.begin_update(1)
    script.update(2)
    script.reduce()
    script.tracker.end_update(1)

    assert script.counts() == [1]


def test_a_failed_update_does_not_stop_the_recording() -> None:
    """A script may catch the error of an update and continue."""
    script = Script()
    script.backward()
    script.tracker.begin_update(1)  # and fails
    script.update(1)

    assert len(script.counts()) == 1


KIND = ("all_reduce", 4, "float32")
SCHEDULE = StepSchedule((KIND, KIND), (0.5, 0.8), (0.8, 0.8), 0.9)


def test_hidden_collectives_do_not_prolong_a_paced_step() -> None:
    """The first bucket is reduced while the backward pass computes the next one."""
    script = Script(SCHEDULE, compute_s=10)
    for _ in range(3):
        script.tracker.begin_backward()
        first, second = script.launch(is_async=True), script.launch(is_async=True)
        script.compute(0.5)
        script.tracker.complete(first)
        script.tracker.complete(second)
        script.tracker.end_backward()
        script.update(seconds=0.25)
    script.tracker.finish_updated_step()

    assert [step.end_s - step.begin_s for step in script.steps] == pytest.approx([10.5, 10.5, 10.5])
    last = script.steps[-1]
    assert [record.begin_s - last.begin_s for record in last.collectives] == pytest.approx([5, 8])
    assert (last.exposed_s(), last.hidden_s()) == pytest.approx((0.5, 3)), "DDP waits for the last bucket at once"


def test_a_handle_is_awaited_at_its_scheduled_time() -> None:
    """The device computes between the launch of the collective and the wait for it."""
    script = Script(StepSchedule((KIND,), (0.2,), (0.7,), 0.9), compute_s=10)
    for _ in range(3):
        script.backward()
        record = script.launch(is_async=True)
        begin_s = script.tracker.begin_wait(record)
        script.compute(1)
        script.tracker.record_wait(record, begin_s)
        script.update()
    script.tracker.finish_updated_step()

    last = script.steps[-1]
    assert last.end_s - last.begin_s == pytest.approx(11)
    assert (last.exposed_s(), last.hidden_s()) == pytest.approx((1, 5))


def test_blocking_collectives_prolong_a_paced_step_by_their_time() -> None:
    """The compute after a blocking collective needs its result."""
    script = Script(SCHEDULE, compute_s=10)
    for _ in range(2):
        script.backward()
        script.reduce(2)
        script.reduce(3)
        script.update()
    script.tracker.finish_updated_step()

    assert [step.end_s - step.begin_s for step in script.steps] == pytest.approx([15, 15])
    assert [step.exposed_s() for step in script.steps] == pytest.approx([5, 5])
    assert [step.hidden_s() for step in script.steps] == pytest.approx([0, 0])


def test_in_the_first_steps_more_collectives_than_scheduled_are_launched_at_the_update() -> None:
    """DDP has other buckets before it arranges them anew, so their kinds say nothing."""
    script = Script(SCHEDULE, compute_s=10)
    script.backward()
    for _ in range(3):
        script.reduce(size=8)

    assert [record.begin_s for record in script.tracker.collectives] == pytest.approx([5, 8, 9])
    assert not any(record.is_extra for record in script.tracker.collectives)


def train_two_steps(script: Script) -> None:
    """Make the steps whose collectives are not matched by their kind."""
    for _ in range(2):
        script.forward()
        script.backward()
        script.reduce()
        script.reduce()
        script.update()


@pytest.mark.parametrize(("size", "dtype"), [(8, "float32"), (4, "int32")])
def test_extra_collectives_are_not_delayed_and_shift_no_others(size: int, dtype: str) -> None:
    """A loss that is averaged every ten steps takes the scheduled time of no gradient."""
    script = Script(SCHEDULE, compute_s=10)
    train_two_steps(script)
    script.reduce(1, size, dtype)
    script.backward()
    script.reduce()
    script.reduce()
    begin_s = script.now_s - 9  # 8 seconds of compute, and the extra collective

    extra, *others = script.tracker.collectives
    assert (extra.is_extra, extra.begin_s - begin_s) == (True, 0)
    assert [record.is_extra for record in others] == [False, False]
    assert [record.begin_s - begin_s for record in others] == pytest.approx([6, 9])


def test_a_collective_beyond_the_scheduled_ones_of_its_kind_is_extra() -> None:
    """Two of this kind are scheduled."""
    script = Script(SCHEDULE, compute_s=10)
    train_two_steps(script)
    script.backward()
    for _ in range(3):
        script.reduce()

    assert [record.is_extra for record in script.tracker.collectives] == [False, False, True]


def test_collectives_are_matched_by_kind_and_not_by_order() -> None:
    """Ranks may launch collectives of two groups in any order."""
    other = ("all_reduce", 8, "float32")
    script = Script(StepSchedule((other, KIND), (0.2, 0.6), (0.2, 0.6), 0.9), compute_s=10)
    train_two_steps(script)
    script.backward()
    script.reduce(size=4)
    script.reduce(size=8)
    begin_s = script.now_s - 6

    assert [record.begin_s - begin_s for record in script.tracker.collectives] == pytest.approx([6, 6])
    assert not any(record.is_extra for record in script.tracker.collectives)


def evaluate(script: Script) -> None:
    """Evaluate for 5 seconds, with a collective of the kind that the steps have, and load data for 1 second."""
    script.forward(2, has_gradient=False)
    script.compute(1)
    script.forward(1, has_gradient=False)
    script.reduce(1)
    script.compute(1)


def test_a_step_begins_at_the_end_of_the_evaluation_before_it() -> None:
    """Its time is no compute of the step, and its collective takes the scheduled time of no other one."""
    script = Script(SCHEDULE, compute_s=10, evaluations=SKIP)
    train_two_steps(script)
    end_s = script.now_s
    evaluate(script)
    script.forward(0.5)
    script.backward()
    script.reduce()
    script.reduce()
    script.update()
    script.tracker.finish_updated_step()

    step = script.steps[2]
    assert step.begin_s - end_s == pytest.approx(5)
    assert step.end_s - step.begin_s == pytest.approx(10)
    assert (step.exposed_s(), step.hidden_s()) == (0, 0)
    assert [record.is_extra for record in step.collectives] == [True, False, False]
    assert [record.begin_s - step.begin_s for record in step.collectives[1:]] == pytest.approx([5, 8])


def test_forward_passes_without_gradient_in_every_step_are_a_part_of_it() -> None:
    """A student learns from its teacher, which computes no gradient."""
    script = Script(SCHEDULE, compute_s=10, evaluations=IGNORE)
    train_two_steps(script)
    script.forward(3, has_gradient=False)
    script.forward()
    script.backward()
    script.update()
    script.tracker.finish_updated_step()

    assert script.steps[2].begin_s == script.steps[1].end_s


def test_evaluations_are_only_recorded_in_a_dry_run() -> None:
    """It does not know yet whether every step begins with one."""
    script = Script(evaluations=RECORD)
    train_two_steps(script)
    evaluate(script)
    script.forward()
    script.backward()
    script.update()
    script.tracker.finish_updated_step()

    assert [step.follows_evaluation for step in script.steps] == [False, False, True]
    assert script.steps[2].begin_s == script.steps[1].end_s


def test_forward_passes_of_an_update_are_no_evaluation() -> None:
    """L-BFGS calls a closure that computes the loss again."""
    script = Script(SCHEDULE, evaluations=SKIP)
    script.backward()
    script.tracker.begin_update(1)
    script.forward(1, has_gradient=False)
    script.tracker.end_update(1)
    script.backward()
    script.update()

    assert script.counts() == [0, 0]
    assert script.steps[1].begin_s == script.steps[0].end_s


def test_forward_passes_are_only_watched_where_they_mark_something() -> None:
    """The hooks make each call of a module slower."""
    script = Script(SCHEDULE, evaluations=SKIP)
    assert script.tracker.watches_forward_passes
    script.forward()
    script.backward()
    assert not script.tracker.watches_forward_passes
    script.update()
    assert script.tracker.watches_forward_passes
    script.forward()
    assert not script.tracker.watches_forward_passes

    unknown = Script(evaluations=IGNORE)
    unknown.backward()
    unknown.update()
    assert not unknown.tracker.watches_forward_passes


def test_the_second_of_two_optimisers_is_not_late() -> None:
    """Only the last update of a step is prolonged, once a step has shown how many updates it has."""
    script = Script(SCHEDULE, compute_s=10)
    for _ in range(2):
        script.backward()
        script.update(1, seconds=0.25)
        script.update(2, seconds=0.25)
    script.tracker.finish_updated_step()

    assert script.steps[1].end_s - script.steps[1].begin_s == pytest.approx(10)


def test_without_a_declared_compute_time_nothing_sleeps() -> None:
    """The agent paces only devices of declared speed."""
    script = Script(SCHEDULE, compute_s=None)
    script.backward()
    script.reduce(1)
    script.update(seconds=2)
    script.tracker.finish_updated_step()

    assert script.now_s == 3


def test_an_awaited_handle_is_exposed_only_while_the_script_waits() -> None:
    """A script may compute between the launch of a collective and the wait for it."""
    script = Script()
    script.backward()
    record = script.launch(is_async=True)
    script.compute(3)
    wait_begin_s = script.now_s
    script.compute(1)
    script.tracker.record_wait(record, wait_begin_s)
    script.update()
    script.tracker.finish_updated_step()

    assert (script.steps[0].exposed_s(), script.steps[0].hidden_s()) == pytest.approx((1, 3))


def test_intervals_that_overlap_count_once() -> None:
    """Two collectives in flight at the same time are not twice the communication."""
    assert covered_seconds([(0, 2), (1, 3), (5, 6), (6, 6)]) == 4
    assert seconds_outside([(0, 4)], [(1, 2), (3, 9)]) == 2
