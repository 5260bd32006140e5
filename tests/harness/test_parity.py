"""Published scores against ours: a picture from three points on, a line before."""

from helpers import pages, synthetic

from harness.report.plots import parity

T11 = pages.T11


def test_a_point_is_a_published_score_and_ours_at_the_papers_budget(tmp_path):
    scores = synthetic.seeds("lavo", "lra/text", [0.6, 0.7]) + synthetic.seeds("vanilla", "lra/text", [0.61])
    few = parity.plot([pages.build(T11, scores)], tmp_path)
    assert few.shows_nothing and "2 scores. A picture needs 3" in parity.section(few)
    scores += synthetic.seeds("lavo", "lra/listops", [0.4])
    scores += synthetic.seeds("lavo", "lra/image", [0.4], budget="reduced", source="synthetic")  # not comparable
    made = parity.plot([pages.build(T11, scores)], tmp_path)
    (panel,) = made.data["panels"]
    points = {line["name"]: (*line["x"], *line["y"]) for line in panel["series"][:-1]}
    published = {key: number.number for key, number in T11.published.items()}
    text = points["lavo/t11: LAVO, Text"]
    assert len(points) == 3 and text[1] == 65.0 and abs(text[0] - published["LAVO", "Text"]) < 1e-3
    assert parity.section(made).count("](../figures/parity.png)") == 1
