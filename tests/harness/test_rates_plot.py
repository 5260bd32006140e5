"""The picture of searches: validation scores by learning rate."""

import pytest
from helpers.searched import GRID, TABLE_SPEC, records, trials
from matplotlib.colors import to_rgb

from harness.records.collect import frame
from harness.report.plots import rates
from harness.report.scores import select


def shown(entries, spec=TABLE_SPEC):
    return rates.data(spec, select.select(frame(entries), spec))


def with_control():
    """The loss of a trial is 1 less its score."""
    return [*records(), *trials("no_mixing", dict(zip(GRID[:3], (0.11, 0.21, 0.12), strict=True)))]


def test_the_picture_has_a_number_per_trial_a_cross_per_failure_and_a_frame_per_choice():
    figure = rates.draw(shown(with_control()))
    (axis,) = figure.axes
    texts = [text.get_text() for text in axis.texts]
    assert sorted(texts) == sorted([*["0.5", "0.1", "0.4", "0.89", "0.79", "0.88", "0.7", "0.6", "0.2"], rates.FAILED])
    frames = [(patch.get_x() + 0.46, patch.get_y() + 0.44) for patch in axis.patches]
    assert frames == [pytest.approx(place) for place in ((1, 0), (1, 1), (2, 2))]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["softmax", "control", "LAVO"]
    weights = {label.get_text(): label.get_fontweight() for label in axis.get_xticklabels()}
    assert [rate for rate, weight in weights.items() if weight == "bold"] == ["1e-3"]


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_the_best_trial_is_darkest_whatever_is_better(higher_is_better):
    data = shown(with_control())
    (panel,) = data["panels"]
    if not higher_is_better:  # a loss: 100 less the score
        panel["values"] = [[None if value is None else 100 - value for value in row] for row in panel["values"]]
        panel["limits"] = [100 - limit for limit in panel["limits"]]
    (axis,) = rates.draw(data).axes
    (image,) = axis.images
    best, control = (sum(image.cmap(image.norm(panel["values"][i][j]))[:3]) for i, j in ((0, 1), (1, 1)))
    assert best < 1 and control == pytest.approx(sum(to_rgb("#F4F8FC")))
