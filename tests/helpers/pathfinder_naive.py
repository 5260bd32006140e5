"""Naive twin of the Pathfinder generator: the published algorithm on whole images, one step after another.

Masks, dilations and dashes are whole float images (scipy, Pillow), angles are radians, and every dash is drawn anew.
It takes its random numbers in the generator's order, so that both draw the same images. `check` is called with every
mask that the published code asserts nothing about, for tests of the facts.
"""

import numpy as np
from PIL import Image, ImageDraw
from scipy import ndimage


class Stream:
    """sfc32: 32 random bits at a time."""

    def __init__(self, seed, block):
        self.a, self.b, self.c = map(int, np.random.SeedSequence([seed, block]).generate_state(3, np.uint32))
        self.count = 1

    def word(self):
        cut = 0xFFFFFFFF
        out = (self.a + self.b + self.count) & cut
        self.a = self.b ^ (self.b >> 9)
        self.b = (self.c + (self.c << 3)) & cut
        self.c = (((self.c << 21) | (self.c >> 11)) + out) & cut
        self.count = (self.count + 1) & cut
        return out

    def integers(self, count):
        return self.word() * count >> 32


def shrink(image, size):
    """scipy.misc.imresize(interp="lanczos"): 8 bits in, 8 bits out; here as fractions."""
    return np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.LANCZOS)) / 255


def round_disc(radius):
    y, x = np.ogrid[-radius : radius + 1, -radius : radius + 1]
    return y**2 + x**2 <= radius**2


def dilate(image, structure):
    """cv2.dilate: the largest value under the structure; nothing is under it outside the image."""
    return ndimage.maximum_filter(image, footprint=structure, mode="constant", cval=-np.inf)


def move(point, orientation, distance):
    y, x = np.round((distance * np.sin(orientation), distance * np.cos(orientation)), 9)
    return int(np.ceil(point[0] + y)), int(np.ceil(point[1] + x))


class Painter:
    """RandomStream images of one design from one stream."""

    def __init__(self, design, stream):
        self.design, self.stream, self.margin = design, stream, None
        self.sprites = {}

    def holds(self, point):
        return all(0 <= coordinate < self.design.size for coordinate in point)

    def sprite(self, orientation):
        """The dash and its mask, drawn large around the middle of a small image, shrunk."""
        key = (orientation, self.margin)
        if key not in self.sprites:
            d = self.design
            reach = d.dash_length + int(np.ceil(d.dash_thickness)) + self.margin
            middle, side = reach * d.antialias, 2 * reach * d.antialias + 1
            head = move((middle, middle), orientation, d.dash_length * d.antialias)
            large = Image.new("L", (side, side))
            pen = round(d.dash_thickness * d.antialias)
            ImageDraw.Draw(large).line([(middle, middle), head[::-1]], fill=255, width=pen)
            ink = np.array(large)
            wide = ndimage.grey_dilation(ink, footprint=round_disc(self.margin * d.antialias))
            self.sprites[key] = shrink(ink, 2 * reach + 1), shrink(wide, 2 * reach + 1)
        return self.sprites[key]

    def place(self, sprite, point, size):
        """The sprite in an image of this size, its middle on a point."""
        reach = len(sprite) // 2
        wide = np.zeros((size + 2 * len(sprite), size + 2 * len(sprite)))
        y, x = np.array(point) + len(sprite) - reach
        wide[y : y + len(sprite), x : x + len(sprite)] = sprite
        return wide[len(sprite) : -len(sprite), len(sprite) : -len(sprite)]

    def dash(self, point, orientation):
        line, mask = self.sprite(orientation)
        return self.place(line, point, self.design.size), self.place(mask, point, self.design.size)

    def room(self, taken, orientation):
        """Where a dash of this orientation could begin; None if the search breaks off (a pixel that sees nothing)."""
        reach = self.design.dash_length + self.margin
        structure = self.place(self.sprite(orientation)[1], (reach + 1, reach + 1), 2 * reach + 1) == 1
        dilated = dilate(taken, structure)
        return None if np.isinf(dilated).any() else dilated <= 0.3

    def seed(self, point, orientation):
        """(pivot, orientation, mask of the dash), or None if it leaves the image."""
        d = self.design
        head = move(point, orientation, d.dash_length)
        pivot = move(head, orientation + np.pi, d.dash_length + self.margin)
        if self.holds(head) and self.holds(pivot):
            return pivot, orientation, self.dash(point, orientation)[1]
        return None

    def heads(self, pivot, last, mask):
        """Pixels of the ring around a pivot that can be the next head, their orientations and probabilities."""
        d, radius = self.design, self.design.dash_length + self.margin
        angles = np.radians(np.arange(0, 360, 360 / (2 * np.pi * radius)))
        circle = np.stack([pivot[0] + radius * np.sin(angles), pivot[1] + radius * np.cos(angles)], axis=1)
        pixels = np.unique([[int(y), int(x)] for y, x in circle if self.holds((y, x))] or [[0, 0]], axis=0)
        orientations = np.arctan2(*(pixels - pivot).T)
        turn = np.abs(orientations - last)
        turn = np.minimum(np.minimum(turn, 2 * np.pi - turn) * d.continuity, np.pi / 2)
        free = 1 - dilate(mask, round_disc(self.margin))[tuple(pixels.T)]
        weights = free * np.round(np.cos(turn), 9) ** 2
        return pixels, orientations, weights / weights.sum() if weights.sum() >= 1e-4 else None

    def extend(self, snake, image, mask):
        """Snake, image and mask with one more dash, and its head; or None."""
        pivot, orientation, last = snake
        pivot = move(pivot, orientation, self.design.dash_length + 2 * self.margin)
        pixels, orientations, probability = self.heads(pivot, orientation, mask)
        if probability is None:
            return None
        for _ in range(3):
            chosen = np.argmax(np.cumsum(probability) > self.stream.word() / 2**32)
            head, towards = pixels[chosen], orientations[chosen]
            line, around = self.dash(head, towards + np.pi)
            if (mask + around).max() < 1.8 - 1e-9:
                return (pivot, towards, around), np.maximum(image, line), np.maximum(mask, last), head
        return None

    def targets(self):
        """Two long snakes: (image, mask, tips, ends), or None."""
        d = self.design
        mask = np.ones((d.size, d.size))
        mask[d.padding : -d.padding, d.padding : -d.padding] = 0
        taken = np.ones((d.size, d.size))
        band = 2 * d.seed_distance
        taken[band:-band, band:-band] = 0
        orientation = np.radians(self.stream.integers(360) - 180)
        room = self.room(taken, orientation)
        if room is None or not room.any():
            return None
        tips = [tuple(np.argwhere(room)[self.stream.integers(room.sum())])]
        snakes = [self.seed(tips[0], orientation)]
        image = self.dash(tips[0], orientation)[0]
        for _ in range(3):
            orientation, direction = np.radians(self.stream.integers(360) - 180), np.radians(self.stream.integers(360))
            away = np.round(d.seed_distance * np.array([np.sin(direction), np.cos(direction)]), 9)
            tip = tuple(np.rint(tips[0] + away).astype(int))
            second = self.seed(tip, orientation)
            if second:
                break
        else:
            return None
        tips.append(tip)
        snakes.append(second)
        image = np.maximum(image, self.dash(tip, orientation)[0])
        ends = [None, None]
        for _ in range(d.contour_length - 1):
            for i in range(2):
                grown = self.extend(snakes[i], image, mask)
                if grown is None:
                    return None
                snakes[i], image, mask, ends[i] = grown
        return image, np.maximum(mask, snakes[1][2]), tips, ends

    def pixel(self, room):
        """A uniform pixel of the room: 64 draws from the whole image, then one from what there is."""
        for _ in range(64):
            pixel = divmod(self.stream.integers(room.size), len(room))
            if room[pixel]:
                return pixel
        wanted = self.stream.integers(room.sum())
        return tuple(np.argwhere(room)[wanted]) if room.any() else None

    def distractor(self, image, mask):
        """Image and mask with one more short snake, or None."""
        if (mask <= 0.3).mean() < 0.01:
            return None
        for _ in range(3):
            orientation = np.radians(self.stream.integers(360) - 180)
            room = self.room(mask, orientation)
            point = None if room is None else self.pixel(room)
            if point is None:
                return None
            snake = self.seed(point, orientation)
            if snake:
                break
        else:
            return None
        image = np.maximum(image, self.dash(point, orientation)[0])
        for _ in range(self.design.distractor_length - 1):
            grown = self.extend(snake, image, mask)
            if grown is None:
                return None
            snake, image, mask, _ = grown
        return image, np.maximum(mask, snake[2])

    def disc(self, point):
        d = self.design
        y, x = np.ogrid[: d.size * d.antialias, : d.size * d.antialias]
        far = (y - point[0] * d.antialias) ** 2 + (x - point[1] * d.antialias) ** 2
        return shrink(np.where(far <= (d.marker_radius * d.antialias) ** 2, np.uint8(255), np.uint8(0)), d.size)

    def image(self):
        """(pixels (W, W) uint8, label, facts): facts are the layers as floats and the number of distractors."""
        d = self.design
        label = self.stream.integers(2)
        self.margin = d.margins[self.stream.integers(len(d.margins))]
        drawn = None
        while drawn is None:
            drawn = self.targets()
        image, mask, tips, ends = drawn
        first = self.stream.integers(2)
        discs = np.maximum(self.disc(tips[first]), self.disc(ends[first if label else 1 - first]))
        others, count = np.zeros_like(image), 0
        for _ in range(d.distractors):
            for _ in range(5):
                more = self.distractor(others, mask)
                if more is not None:
                    (others, mask), count = more, count + 1
                    break
        shown = np.maximum(np.maximum(image * d.target_contrast, others * d.distractor_contrast), discs)
        scale = 255 / (shown.max() - shown.min())
        pixels = ((shown - shown.min()) * scale + 0.5).astype(np.uint8)
        return pixels, label, {"targets": image, "distractors": others, "discs": discs, "count": count}
