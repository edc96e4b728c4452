"""Properties of some compressors: the same through wrappers, and a default for compressors without the property."""

import pytest

from services.compressors import (
    Compressor,
    Dgc,
    ErrorFeedback,
    Fp16,
    Int8,
    LargeArraysOnly,
    RandomK,
    TopK,
    VectorCompression,
    after_format_stages,
    applies_momentum,
    find_density,
    fit_to_model,
    fit_to_range,
    list_format_stages,
    with_density,
)
from services.schema.errors import ProtocolError
from services.strategies.vector_sums import PowerSgd

WARM_UP = Dgc(ratio=0.01, warm_up_steps=8)
NESTED = LargeArraysOnly(inner=ErrorFeedback(inner=TopK(ratio=0.1)))


@pytest.mark.parametrize(
    ("compression", "density"),
    [
        (TopK(ratio=0.1), 0.1),
        (RandomK(ratio=0.1), 0.1),
        (WARM_UP, 0.01),
        (ErrorFeedback(inner=TopK(ratio=0.1)), 0.1),
        (NESTED, 0.1),
        (Fp16(), None),
        (LargeArraysOnly(inner=ErrorFeedback(inner=Int8())), None),
        (PowerSgd(), None),
    ],
    ids=repr,
)
def test_density_is_that_of_the_innermost_compressor(compression: VectorCompression, density: float | None) -> None:
    """The planner compares densities; a compressor that sends all entries has none."""
    assert find_density(compression) == density


def test_another_density_changes_the_innermost_compressor_only() -> None:
    assert with_density(NESTED, 0.5) == LargeArraysOnly(inner=ErrorFeedback(inner=TopK(ratio=0.5)))
    assert with_density(WARM_UP, 0.5) == Dgc(ratio=0.5)


@pytest.mark.parametrize("compressor", [Int8(), ErrorFeedback(inner=Int8())], ids=repr)
def test_a_compressor_that_sends_all_entries_gets_no_density(compressor: Compressor) -> None:
    """A prediction for another density would be that of the same messages."""
    with pytest.raises(ProtocolError, match="int8 sends all entries"):
        with_density(compressor, 0.5)


def test_stages_of_a_wrapped_compressor_are_wrapped() -> None:
    """The sizes of payloads depend on the wrapper, too."""
    wrapped = LargeArraysOnly(inner=WARM_UP)

    stages = list_format_stages(wrapped)

    assert [stage.end for stage in stages] == [2, 4, 6, 8]
    assert [stage.compressor for stage in stages] == [
        LargeArraysOnly(inner=inner) for _, inner in WARM_UP.list_format_stages()
    ]
    assert after_format_stages(wrapped) == LargeArraysOnly(inner=Dgc(ratio=0.01))


@pytest.mark.parametrize("compressor", [Fp16(), NESTED, Dgc()], ids=repr)
def test_a_compressor_without_stages_is_the_same_for_all_vectors(compressor: Compressor) -> None:
    assert list_format_stages(compressor) == ()
    assert after_format_stages(compressor) == compressor


@pytest.mark.parametrize(
    ("compression", "applies"),
    [
        (Dgc(), True),
        (Dgc(momentum=0), False),
        (LargeArraysOnly(inner=Dgc()), True),
        (LargeArraysOnly(inner=Dgc(momentum=0)), False),
        (NESTED, False),
        (PowerSgd(), False),
    ],
    ids=repr,
)
def test_momentum_is_that_of_the_innermost_compressor(compression: VectorCompression, applies: bool) -> None:
    """The optimiser would add it again."""
    assert applies_momentum(compression) == applies


def test_only_compressions_that_depend_on_the_model_change_when_they_are_fitted() -> None:
    """All workers and servers fit their compressors, whichever they are."""
    shapes = ((4, 5), (3,))

    assert fit_to_model(Fp16(), shapes) == Fp16()
    assert fit_to_model(PowerSgd(), shapes) == PowerSgd(array_shapes=shapes)
    assert fit_to_model(NESTED, shapes) == NESTED.model_copy(update={"array_sizes": (20, 3)})
    assert fit_to_range(Fp16(), 5, 9) == Fp16()
    assert fit_to_range(NESTED, 5, 9) == NESTED.model_copy(update={"entry_range": (5, 9)})
