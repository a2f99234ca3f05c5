"""The figures of the course, all in one style; only notebooks import this package."""

from minillm.plot.bars import bars, pairs
from minillm.plot.course_map import course_map
from minillm.plot.curves import curve, curves
from minillm.plot.heat import heat
from minillm.plot.lanes import lanes
from minillm.plot.ribbon import ribbon
from minillm.plot.style import (
    COLOURS,
    HATCHES,
    INK,
    MUTED,
    PAPER,
    decades,
    floor,
    key,
    limit,
    message,
    use,
)
from minillm.plot.timeline import TIMELINE_KEY, timeline
from minillm.plot.treemap import Tile, treemap
from minillm.plot.waterfall import waterfall
from minillm.units import short

__all__ = [
    "COLOURS", "HATCHES", "INK", "MUTED", "PAPER", "TIMELINE_KEY", "Tile", "bars", "course_map", "curve",
    "curves", "decades", "floor", "heat", "key", "lanes", "limit", "message", "pairs", "ribbon", "short",
    "timeline", "treemap", "use", "waterfall",
]  # fmt: skip
