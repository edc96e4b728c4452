"""Assignment of collectives and updates to steps, and the places where a step sleeps, on a clock without PyTorch."""

import pytest

from services.commands.inside.ensayo_meter.pacer import Pacer
from services.commands.inside.ensayo_meter.settings import PaceProfile
from services.commands.inside.ensayo_meter.step_records import CollectiveRecord, StepRecord
from services.commands.inside.ensayo_meter.step_tracker import StepTracker
from services.commands.inside.ensayo_meter.time_intervals import covered_seconds, seconds_outside


class Script:
    """A script on a clock that advances when it says so, with the receiver of its steps."""

    def __init__(self, profile: PaceProfile | None = None, compute_s: float | None = None) -> None:
        self.now_s, self.steps, self._compute_s = 0.0, list[StepRecord](), compute_s
        pacer = Pacer(profile, self.sleep_until)
        pacer.compute_s = compute_s
        self.tracker = StepTracker(lambda: self.now_s, pacer, self)

    def sleep_until(self, deadline_s: float) -> None:
        self.now_s = max(self.now_s, deadline_s)

    def receive_step(self, step: StepRecord) -> float | None:
        self.steps.append(step)
        return self._compute_s

    def compute(self, seconds: float) -> None:
        self.now_s += seconds

    def forward(self) -> None:
        self.tracker.begin_forward()
        self.tracker.end_forward()

    def backward(self) -> None:
        self.tracker.begin_backward()
        self.tracker.end_backward()

    def launch(self, *, is_async: bool = False) -> CollectiveRecord:
        return self.tracker.launch("all_reduce", 4, "float32", 2, is_async=is_async)

    def reduce(self, seconds: float = 0.0) -> None:
        """Call a synchronous collective that takes this time."""
        record = self.launch()
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
    script.tracker.begin_forward()
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


PROFILE = PaceProfile((0.5, 0.8), 0.9)


def test_hidden_collectives_do_not_prolong_a_paced_step() -> None:
    """The first bucket is reduced while the backward pass computes the next one."""
    script = Script(PROFILE, compute_s=10)
    for _ in range(3):
        script.tracker.begin_backward()
        first, second = script.launch(is_async=True), script.launch(is_async=True)
        script.compute(0.5)
        script.tracker.complete(first)
        script.tracker.complete(second)
        script.tracker.end_backward()
        script.update(seconds=0.25)
    script.tracker.finish_updated_step()

    assert [step.end_s - step.begin_s for step in script.steps] == pytest.approx([10, 10, 10])
    last = script.steps[-1]
    assert [record.begin_s - last.begin_s for record in last.collectives] == pytest.approx([5, 8])
    assert (last.exposed_s(), last.hidden_s()) == pytest.approx((0, 3.5)), "the device computes until the update"


def test_blocking_collectives_prolong_a_paced_step_by_their_time() -> None:
    """The compute after a blocking collective needs its result."""
    script = Script(PROFILE, compute_s=10)
    for _ in range(2):
        script.backward()
        script.reduce(2)
        script.reduce(3)
        script.update()
    script.tracker.finish_updated_step()

    assert [step.end_s - step.begin_s for step in script.steps] == pytest.approx([15, 15])
    assert [step.exposed_s() for step in script.steps] == pytest.approx([5, 5])
    assert [step.hidden_s() for step in script.steps] == pytest.approx([0, 0])


def test_more_collectives_than_places_are_launched_at_the_update() -> None:
    """The profile is that of the usual step."""
    script = Script(PROFILE, compute_s=10)
    script.backward()
    for _ in range(3):
        script.reduce()

    assert [record.begin_s for record in script.tracker.collectives] == pytest.approx([5, 8, 9])


def test_the_second_of_two_optimisers_is_not_late() -> None:
    """Only the last update of a step is prolonged, once a step has shown how many updates it has."""
    script = Script(PROFILE, compute_s=10)
    for _ in range(2):
        script.backward()
        script.update(1, seconds=0.25)
        script.update(2, seconds=0.25)
    script.tracker.finish_updated_step()

    assert script.steps[1].end_s - script.steps[1].begin_s == pytest.approx(10)


def test_without_a_declared_compute_time_nothing_sleeps() -> None:
    """The agent paces only devices of declared speed."""
    script = Script(PROFILE, compute_s=None)
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
