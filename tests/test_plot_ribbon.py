"""The ribbon: pieces follow each other without a gap and are as long as they say."""

import matplotlib.pyplot as plt

from minillm import plot


def test_pieces_lie_one_behind_the_other():
    figure, axes = plt.subplots()
    assert plot.ribbon(axes, 0, [(8, "other", "length"), (120, "wait"), (14, "mlp")]) == 142
    assert plot.ribbon(axes, 1, [(5, "attention")], begin=142) == 147
    spans = [(bar.get_x(), bar.get_width()) for bar in axes.patches]
    assert spans == [(0, 8), (8, 120), (128, 14), (142, 5)]
    assert [text.get_text() for text in axes.texts] == ["length"]
    plt.close(figure)
