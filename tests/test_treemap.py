"""Treemaps: areas are numbers, so they must be in proportion, fill their box and not lie over each other."""

from itertools import combinations

import matplotlib.pyplot as plt
import pytest
from matplotlib.patches import Rectangle

from minillm import plot
from minillm.plot.treemap import squares


@pytest.mark.parametrize("sizes", [[1], [5, 3, 1], [1] * 128, [1000, 1, 1, 0.01], [0.2, 7, 3, 3]])
@pytest.mark.parametrize("box", [(0, 0, 1, 1), (2, -3, 5, 0.5), (0, 0, 0.1, 9)])
def test_boxes_are_in_proportion_and_fill_the_box(sizes, box):
    left, top, width, height = box
    boxes = squares(sizes, box)
    assert [w * h for _, _, w, h in boxes] == pytest.approx([s * width * height / sum(sizes) for s in sizes])
    for x, y, w, h in boxes:
        assert x >= left - 1e-9
        assert x + w <= left + width + 1e-9
        assert y >= top - 1e-9
        assert y + h <= top + height + 1e-9
    for (x, y, w, h), (X, Y, W, H) in combinations(boxes, 2):
        assert min(x + w, X + W) - max(x, X) < 1e-9 or min(y + h, Y + H) - max(y, Y) < 1e-9


def test_equal_sizes_are_nearly_square():
    assert all(0.5 < w / h < 2 for _, _, w, h in squares([1] * 128, (0, 0, 3, 2)))


def test_maps_share_one_scale():
    small = [plot.Tile("mlp", 3.0), plot.Tile("norm", 1.0)]
    large = [plot.Tile("mlp", 10.0, pale=True), plot.Tile("mlp", 2.0), plot.Tile("head", 4.0)]
    figure, axes = plt.subplots(figsize=(8, 4))
    plot.treemap(axes, {"small": small, "large": large})
    tiles = [p for p in axes.patches if isinstance(p, Rectangle) and p.get_fill()]
    areas = sorted(tile.get_width() * tile.get_height() for tile in tiles)
    assert areas == pytest.approx([1, 2, 3, 4, 10])
    assert "mlp\n75%" in [text.get_text() for text in axes.texts]
    plt.close(figure)
