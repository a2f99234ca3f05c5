"""The stand-in for `ipywidgets` starts with the values that the real controls start with."""

import ipywidgets
import pytest

from experiments import stand_in

CONTROLS = [
    ("Dropdown", {"options": ["x", "y"]}),
    ("Dropdown", {"options": ["x", "y"], "value": "y", "description": "letter"}),
    ("Dropdown", {"options": [("one", 1), ("two", 2)]}),
    ("Dropdown", {"options": {"one": 1, "two": 2}}),
    ("Dropdown", {"options": (16, 8, 4)}),
    ("Dropdown", {"options": [1, 2], "value": None}),
    ("SelectionSlider", {"options": [16, 8, 4]}),
    ("SelectionSlider", {"options": [("none", 0), ("some", 5)], "value": 5}),
    ("IntSlider", {}),
    ("IntSlider", {"min": 3}),
    ("IntSlider", {"min": -9, "max": -2}),
    ("IntSlider", {"value": 7, "min": 3, "max": 12, "step": 2}),
    ("FloatSlider", {"min": 0.5}),
    ("FloatSlider", {"value": 2.5}),
    ("FloatLogSlider", {}),
    ("FloatLogSlider", {"min": 1}),
    ("FloatLogSlider", {"min": -4, "max": -2, "base": 2}),
    ("FloatLogSlider", {"value": 50, "min": 1, "max": 3.7, "readout_format": ".0f"}),
]
SHORT_FORMS = [(0, 10), (1, 4), (-3, 4), (0, 10, 4), (1.0, 4.0), (1, 4.5), (0.0, 1.0, 0.3), (2, 9, 2)]
SHORT_FORMS += [[16, 8, 4], ["x", "y"], [("one", 1), ("two", 2)], {"one": 1, "two": 2}, 5, 2.5, True, "text"]


def starts_with(module, control):
    """The value that `interact` of `module` hands to a function at first."""
    calls = []
    module.interact(lambda x: calls.append(x), x=control)
    (value,) = calls
    return type(value), value


@pytest.mark.parametrize(("name", "settings"), CONTROLS)
def test_controls(name, settings):
    real, ours = getattr(ipywidgets, name)(**settings), getattr(stand_in, name)(**settings)
    assert ours.value == real.value
    assert starts_with(stand_in, ours)[1] == starts_with(ipywidgets, real)[1]


@pytest.mark.parametrize("control", SHORT_FORMS)
def test_short_forms(control):
    assert starts_with(stand_in, control) == starts_with(ipywidgets, control)


def test_an_argument_without_a_control():
    assert starts_with(stand_in, stand_in.fixed([1])) == starts_with(ipywidgets, ipywidgets.fixed([1]))


def test_as_a_decorator():
    calls = []

    @stand_in.interact(x=[3, 4], y=(0, 10))
    def draw(x, y):
        calls.append((x, y))

    assert calls == [(3, 5)]
    assert draw(1, 2) is None


def test_layout_can_be_set():
    slider = stand_in.IntSlider(min=1)
    slider.layout.width = "440px"
    assert (slider.min, slider.value, slider.layout.width) == (1, 1, "440px")


def test_the_module_has_what_the_notebooks_import():
    module = stand_in.ipywidgets_module()
    assert all(hasattr(module, name) for name in {name for name, _ in CONTROLS} | {"interact", "fixed"})
