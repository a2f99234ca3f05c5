"""A stand-in for `ipywidgets` where it is missing: a widget's function is called once, with first values."""

import types
from collections.abc import Callable
from functools import partial
from numbers import Integral, Real


def ipywidgets_module() -> types.ModuleType:
    """What the notebooks use of `ipywidgets`: `interact`, `fixed`, and controls that hold a value."""
    module = types.ModuleType("ipywidgets")
    for item in (interact, fixed, Dropdown, SelectionSlider, IntSlider, FloatSlider, FloatLogSlider):
        setattr(module, item.__name__, item)
    return module


class Control:
    """Keeps its settings as attributes, and the `value` that the real one would start with."""

    def __init__(self, **settings):
        self.__dict__.update(settings)
        self.value = settings["value"] if "value" in settings else self.first(**settings)
        self.layout = types.SimpleNamespace()


class Dropdown(Control):
    @staticmethod
    def first(options=(), **_):
        """The first option's value: options are values, (label, value) pairs or a dictionary of those."""
        if not options:
            return None
        pairs = list(options.items()) if isinstance(options, dict) else list(options)
        named = all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs)
        return pairs[0][1] if named else pairs[0]


class SelectionSlider(Dropdown):
    pass


class IntSlider(Control):
    @staticmethod
    def first(min=0, max=100, **_):
        """0, or the end of the range that is nearest to it."""
        return _within(0, min, max)


class FloatSlider(Control):
    @staticmethod
    def first(min=0.0, max=10.0, **_):
        """0.0, or the end of the range that is nearest to it."""
        return _within(0.0, min, max)


class FloatLogSlider(Control):
    @staticmethod
    def first(min=0.0, max=4.0, base=10.0, **_):
        """1.0, or the end of the range that is nearest to it; `min` and `max` are exponents of `base`."""
        return _within(1.0, base**min, base**max)


def _within(value: Real, low: Real, high: Real) -> Real:
    return low if value < low else high if value > high else value


def fixed(value: object) -> Control:
    """An argument that has no control."""
    return Control(value=value)


def interact(function: Callable | None = None, **controls: object) -> Callable:
    """Call `function` once with each control's first value; without a function, a decorator."""
    if function is None:
        return partial(interact, **controls)
    function(**{name: first_value(control) for name, control in controls.items()})
    return function


def first_value(control: object) -> object:
    """What `interact` starts with: (low, high[, step]) is a slider, a list or dictionary a dropdown."""
    if isinstance(control, Control):
        return control.value
    if isinstance(control, tuple) and all(isinstance(end, Real) for end in control):
        return _middle(*control)
    return Dropdown.first(control) if isinstance(control, list | dict) else control


def _middle(low: Real, high: Real, step: Real | None = None) -> Real:
    """Where a slider from `low` to `high` starts: the middle, on a step; whole numbers stay whole."""
    whole = isinstance(low, Integral) and isinstance(high, Integral)
    middle = low + ((high - low) // 2 if whole else (high - low) / 2)
    return middle if step is None else low + int((middle - low) / step) * step
