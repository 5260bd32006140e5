"""Pathfinder images: bit for bit those of the published algorithm's twin; the published facts; the same for any run."""

import dataclasses
import hashlib
import importlib.util
import sys

import numpy as np
import pytest

import tasks.lra
from tasks.examples import content_hash, join
from tasks.lra import pathfinder_generator as generator
from tasks.lra import pathfinder_kernel as kernel
from tasks.lra.pathfinder_generator import draw_block, generate
from tasks.lra.pathfinder_tables import LRA, PATHX, Design, digest, tables
from tests.helpers.pathfinder_naive import Painter, Stream

TINY = Design(size=12, contour_length=2, distractor_length=1, distractors=1, seed_distance=2)
SMALL = Design(size=16, contour_length=3, distractor_length=2, distractors=2, seed_distance=3)
THICK = Design(size=64, contour_length=6, seed_distance=10, dash_length=4, dash_thickness=1.5, continuity=1.8)
EASY = Design(contour_length=6, distractor_length=2, distractors=10)
MIDDLE = Design(contour_length=9, distractor_length=3, distractors=6)
MANY = 2000 if kernel.COMPILED else 60  # images of a statistic


def pictures(count, design, seed=0, block=0):
    pixels, labels = np.empty((count, design.size, design.size), np.uint8), np.empty(count, np.uint8)
    draw_block(design, seed, block, pixels, labels)
    return pixels, labels


# the published algorithm


CASES = {
    "easy": (EASY, 4),
    "intermediate": (MIDDLE, 3),
    "hard": (LRA, 2),
    "small": (SMALL, 10),
    "crowded": (dataclasses.replace(SMALL, distractors=9, distractor_length=1), 8),
    "one brightness": (dataclasses.replace(EASY, distractor_contrast=1.5), 3),
    "two margins": (dataclasses.replace(EASY, size=48, seed_distance=9, margins=(1, 2), contour_length=4), 3),
    "thick": (THICK, 2),
    "wide border": (dataclasses.replace(SMALL, padding=2, size=20, marker_radius=2.5), 5),
}


@pytest.mark.parametrize(("design", "count"), CASES.values(), ids=CASES.keys())
def test_bit_for_bit_the_published_algorithm(design, count):
    compare(design, count)


@pytest.mark.slow
@pytest.mark.parametrize("design", [LRA, PATHX], ids=["pathfinder", "pathx"])
def test_the_papers_images_bit_for_bit(design):
    compare(design, 40 if design is LRA else 3)


def compare(design, count):
    pixels, labels = pictures(count, design, seed=5, block=2)
    painter = Painter(design, Stream(5, 2))
    for i in range(count):
        expected, label, _ = painter.image()
        assert labels[i] == label
        np.testing.assert_array_equal(pixels[i], expected, err_msg=f"image {i}")


# the published facts


def test_two_thirds_of_the_pixels_are_black():
    """65 % by the published program; "easy" and "intermediate" are emptier."""
    zero = [(pictures(min(MANY, 400), design)[0] == 0).mean() for design in (LRA, MIDDLE, EASY)]
    assert zero[0] == pytest.approx(0.655, abs=0.02)
    assert 0.70 < zero[1] < zero[2] < 0.80


def test_where_a_first_snake_can_begin():
    """The published search breaks off at a pixel that sees nothing: with a margin of one, most orientations do."""
    for design, open_ in ((LRA, 31), (dataclasses.replace(PATHX, margins=(2,)), 354)):
        count = tables(design, design.margins[0]).count
        assert np.count_nonzero(count[:, 0]) == np.count_nonzero(count[:, 1]) == open_
    degrees = np.flatnonzero(tables(LRA, 1).count[:, 0]) - 180
    assert (degrees.min(), degrees.max()) == (-150, -120)


def test_distractors_are_brighter_unless_asked():
    """Contrast 2 against 1.5 (X5): the brightest pixels are not on the paths. One number removes the cue."""
    cue, _ = pictures(30, EASY)
    fair, _ = pictures(30, dataclasses.replace(EASY, distractor_contrast=1.5))
    assert ((cue == 0) == (fair == 0)).mean() > 0.99, "the same drawings"
    ratio = []
    painter = Painter(EASY, Stream(0, 0))
    for i in range(20):
        _, _, layers = painter.image()
        assert 0 <= layers["count"] <= EASY.distractors
        others = (layers["distractors"] > 0.3) & (layers["targets"] < 0.05) & (layers["discs"] < 0.05)
        paths = (layers["targets"] > 0.3) & (layers["distractors"] < 0.05) & (layers["discs"] < 0.05)
        if layers["count"]:
            ratio.append([image[i][others].mean() / image[i][paths].mean() for image in (cue, fair)])
    with_cue, without = np.mean(ratio, axis=0)
    assert with_cue / without == pytest.approx(2 / 1.5, rel=0.02) and without == pytest.approx(1, abs=0.1)


# the same for any run


def test_nothing_depends_on_shards_or_on_how_many_are_asked_for(monkeypatch):
    whole = generate(150, TINY, seed=3)
    for start, count in ((0, 150), (0, 130), (0, 64), (0, 1), (64, 64), (1, 63), (65, 70), (149, 1), (7, 0)):
        part = generate(count, TINY, seed=3, start=start)
        assert content_hash(part) == content_hash(whole.part(start, start + count))
    monkeypatch.setattr(generator, "SHARD", 40)
    made = generator.shards(30, 100, TINY, seed=3)
    assert made.count == 100 and [make().count for make in made.makers] == [40, 40, 20]
    assert content_hash(join(make() for make in made.makers)) == content_hash(whole.part(30, 130))
    assert content_hash(generate(64, TINY, seed=4)) != content_hash(whole.part(0, 64))
    assert generate(0, TINY).count == 0
    assert whole.offsets[-1] == 150 * 144 and whole.tokens.dtype == whole.labels.dtype == np.uint8
    same = (whole.tokens.reshape(150, -1)[:, None] == whole.tokens.reshape(150, -1)).all(2)
    assert same.sum() == 150, "no image twice"


@pytest.mark.parametrize(
    ("design", "images", "table"),
    [(TINY, "897ed9d465ac55e8", "e91d27deb45f752b"), (LRA, "45dbdcf6726de604", "bd5f88700252304f")],
    ids=["tiny", "pathfinder"],
)
def test_the_same_bytes_on_every_machine(design, images, table):
    """If Pillow or numpy draws otherwise one day, the tables' digest says so; if the loops change, raise VERSION."""
    assert digest(design)[:16] == table
    pixels, labels = pictures(6, design)
    assert hashlib.sha256(pixels.tobytes() + labels.tobytes()).hexdigest()[:16] == images


@pytest.mark.skipif(not kernel.COMPILED, reason="numba is missing")
def test_the_interpreter_draws_what_the_compiler_draws(monkeypatch):
    compiled = [pictures(count, design) for design, count in ((SMALL, 30), (EASY, 4))]
    monkeypatch.setitem(sys.modules, "numba", None)
    spec = importlib.util.find_spec("tasks.lra.pathfinder_kernel")
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    assert not plain.COMPILED
    monkeypatch.setitem(sys.modules, "tasks.lra.pathfinder_kernel", plain)
    monkeypatch.setattr(tasks.lra, "pathfinder_kernel", plain)
    for (design, count), (pixels, labels) in zip(((SMALL, 30), (EASY, 4)), compiled, strict=True):
        again = pictures(count, design)
        assert (again[0] == pixels).all() and (again[1] == labels).all()


# what cannot be drawn


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"contour_length": 1}, "contour_length=1"),
        ({"size": 7}, "size=7"),
        ({"size": 28}, "no room for 4 x seed_distance=7"),
        ({"margins": ()}, "margins=\\[\\]"),
        ({"margins": (1, 0)}, "margins=\\[1, 0\\]"),
        ({"dash_thickness": 0.75}, "dash_thickness=0.75 is no whole number"),
        ({"continuity": float("nan")}, "continuity=nan"),
        ({"marker_radius": float("inf")}, "marker_radius=inf"),
    ],
)
def test_designs_that_are_refused(changes, message):
    with pytest.raises(ValueError, match=message) as error:
        Design(**changes)
    assert "\n" not in str(error.value)


def test_no_room_is_an_error_and_no_endless_loop(monkeypatch):
    monkeypatch.setattr(kernel, "draw", lambda *arguments: 0)
    with pytest.raises(ValueError, match="no room for two snakes of 14 dashes in 32 x 32 pixels"):
        generate(1, LRA)


@pytest.mark.skipif(not kernel.COMPILED, reason="takes a minute without numba")
def test_a_contour_that_is_too_long_ends():
    with pytest.raises(ValueError, match="no room for two snakes of 30 dashes"):
        generate(1, dataclasses.replace(SMALL, contour_length=30))
