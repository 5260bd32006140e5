"""The picture of searches: validation scores by learning rate."""

import pytest
from helpers.searched import GRID, TABLE_SPEC, records, runs, trials

from harness.records.collect import frame
from harness.report.plots import rates
from harness.report.scores import select


def shown(entries, spec=TABLE_SPEC):
    return rates.data(spec, select.select(frame(entries), spec))


def with_control():
    """The loss of a trial is 1 less its score."""
    return [*records(), *trials("no_mixing", dict(zip(GRID[:3], (0.11, 0.21, 0.12), strict=True)))]


def test_each_search_has_its_scores_its_choice_and_its_failures():
    data = shown(records())
    (panel,) = data["panels"]
    assert data["rows"] == ["softmax", "LAVO"] and panel["rates"] == ["3.3e-4", "1e-3", "3.3e-3", "1.09e-2"]
    assert panel["values"] == [[0.5, 0.1, 0.4, None], [0.7, 0.6, 0.2, None]]
    assert panel["chosen"] == [[0, 1], [1, 2]] and panel["failed"] == [[1, 3]] and panel["recipes"] == [1]
    assert data["title"] == "The recipe's learning rate is the best tried in 1 of 2 searches"


def test_a_row_without_a_complete_search_is_not_shown():
    data = shown([*trials("vanilla", {1e-3: 0.9}), *runs("vanilla", 1e-3, [0.9, 0.91, 0.92])])
    assert data["panels"] == []


def test_a_column_of_another_score_than_the_searchs_is_left_out():
    column = TABLE_SPEC.columns["ListOps"].model_copy(update={"evaluation": "length_2x"})
    assert shown(records(), TABLE_SPEC.model_copy(update={"columns": {"2 N": column}}))["panels"] == []


def test_white_is_the_control_at_its_best_rate():
    (panel,) = shown(with_control())["panels"]
    assert panel["limits"] == [0.79, 0.1]
    (panel,) = shown(records())["panels"]
    assert panel["limits"] == [0.7, 0.1], "without a search of the control, the worst trial"


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
    assert best < 1 and control == pytest.approx(3)
