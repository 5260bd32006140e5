"""The design of Pathfinder images: LRA's Pathfinder-32, its Path-X, and any other that the generator can draw."""

import math
from dataclasses import dataclass

FLOATS = ("dash_thickness", "continuity", "marker_radius", "target_contrast", "distractor_contrast")


@dataclass(frozen=True)
class Design:
    """Contents of the images; the defaults are LRA's Pathfinder-32, hard. Lengths in pixels, snakes' lengths in dashes.

    Raises ValueError, in one line, for a design that cannot be drawn.
    """

    size: int = 32
    contour_length: int = 14
    distractor_length: int = 4
    distractors: int = 5
    seed_distance: int = 7
    dash_length: int = 2
    dash_thickness: float = 0.5
    margins: tuple[int, ...] = (1,)  # one margin is drawn per image
    continuity: float = 1.0
    marker_radius: float = 1.5
    target_contrast: float = 1.5
    distractor_contrast: float = 2.0
    padding: int = 1
    antialias: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "margins", tuple(self.margins))
        minimums = {"contour_length": 2, "distractor_length": 1, "distractors": 0, "seed_distance": 1, "dash_length": 1}
        for name, least in {**minimums, "padding": 1, "antialias": 1, "size": 8}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} is less than {least}")
        for name in FLOATS:
            object.__setattr__(self, name, float(getattr(self, name)))  # 3 and 3.0 have one cache key
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)} is not positive")
        if not self.margins or min(self.margins) < 1:
            raise ValueError(f"margins={list(self.margins)}: a dash requires a margin of one pixel or more")
        if self.dash_thickness * self.antialias % 1:
            raise ValueError(f"dash_thickness={self.dash_thickness} is no whole number of pixels at {self.antialias}x")
        if 4 * self.seed_distance + self.dash_length > self.size:
            room = f"4 x seed_distance={self.seed_distance} and a dash"
            raise ValueError(f"size={self.size} leaves no room for {room}: the first one lies 2 x that from every edge")


LRA = Design()
PATHX = Design(
    size=128,
    contour_length=14,
    distractor_length=4,
    distractors=8,  # 35 // 4
    seed_distance=20,
    dash_length=5,
    dash_thickness=1.5,
    margins=(2, 3),
    continuity=1.8,
    marker_radius=3,
    target_contrast=0.9,
    distractor_contrast=0.9,
)
