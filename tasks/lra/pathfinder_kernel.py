"""Pathfinder images, one dash after another: the loops of `pathfinder_generator`, compiled where numba is installed.

Without numba the interpreter runs the same lines, with the same result and some hundred times slower. Nothing here
computes what `pathfinder_tables` holds. `memory` is the generator's `Memory`, `stream` the (4,) int64 of its numbers.

A mask holds how much of a pixel is taken, 0 to 255. A dash enters it only when its snake has grown by one more, so a
snake does not run into its own last dash, and neither does the other one (as published).

    R pixels of the ring, W width of the image
"""

from tasks.lra.pathfinder_tables import DEGREES

try:
    from numba import njit

    COMPILED = True
except ImportError:  # also raised by a numba that is too old for this numpy

    def njit(**options):
        return lambda function: function

    COMPILED = False

compiled = njit(nogil=True, cache=True, error_model="numpy")

DASH_TRIALS = 3  # places drawn for a dash, and seeds for a snake
TARGET_TRIALS = 200_000  # of both target snakes; LRA's need 240 on average
SNAKE_TRIALS = 5  # distractors begun per distractor wanted
PIXEL_TRIALS = 64  # pixels drawn for a seed before all free ones are listed
FREE = 76  # a pixel of at most this mask counts as free: 0.3 of 255
CROWDED = 459  # two masks that add up to this cross: 1.8 of 255
DEAD_END = 1e-4  # sum of a ring's weights below which a snake cannot go on
LEAST_FREE = 0.01  # fraction of free pixels below which no distractor is begun


@compiled
def word(stream):
    """32 random bits: sfc32 (Doty-Humphrey), stream (4,) int64 holding its four words."""
    a, b, c, count = stream[0], stream[1], stream[2], stream[3]
    out = (a + b + count) & 0xFFFFFFFF
    stream[0] = b ^ (b >> 9)
    stream[1] = (c + (c << 3)) & 0xFFFFFFFF
    stream[2] = (((c << 21) | (c >> 11)) + out) & 0xFFFFFFFF
    stream[3] = (count + 1) & 0xFFFFFFFF
    return out


@compiled
def below(stream, count):
    """A number from 0 to count - 1; count is below 2^31."""
    return (word(stream) * count) >> 32


@compiled
def inside(y, x, width):
    return 0 <= y < width and 0 <= x < width


@compiled
def stamp(canvas, sprite, y, x):
    """canvas = maximum of itself and the sprite in its place around (y, x)."""
    width, reach = canvas.shape[0], sprite.shape[0] // 2
    for row in range(max(0, y - reach), min(width, y + reach + 1)):
        for column in range(max(0, x - reach), min(width, x + reach + 1)):
            canvas[row, column] = max(canvas[row, column], sprite[row - y + reach, column - x + reach])


@compiled
def crosses(mask, sprite, y, x):
    width, reach = mask.shape[0], sprite.shape[0] // 2
    for row in range(max(0, y - reach), min(width, y + reach + 1)):
        for column in range(max(0, x - reach), min(width, x + reach + 1)):
            if int(mask[row, column]) + int(sprite[row - y + reach, column - x + reach]) >= CROWDED:
                return True
    return False


@compiled
def largest(mask, disc, y, x):
    """Largest value of the mask on the disc around a pixel."""
    width, out = mask.shape[0], 0
    for k in range(len(disc)):
        row, column = y + disc[k, 0], x + disc[k, 1]
        if inside(row, column, width):
            out = max(out, int(mask[row, column]))
    return out


@compiled
def set_dash(row, y, x, orientation):
    row[0], row[1], row[2] = y, x, orientation


@compiled
def add_to_mask(mask, sprites, dash):
    """A dash enters the mask."""
    stamp(mask, sprites[dash[2]], dash[0], dash[1])


@compiled
def extend(tables, memory, stream, snake, dashes):
    """One more dash to a snake of so many; the one before it enters the mask. False: a dead end."""
    mask, sums, ring, weight, sprites = (
        memory.mask[0],
        memory.sums,
        tables.ring,
        tables.weight[snake[0, 2]],
        tables.mask,
    )
    step, disc = tables.step[snake[0, 2]], tables.disc
    y, x = snake[0, 0] + step[0], snake[0, 1] + step[1]
    total = 0.0
    for j in range(len(ring)):
        head_y, head_x = y + ring[j, 0], x + ring[j, 1]
        if weight[j] > 0 and inside(head_y, head_x, mask.shape[0]):
            total += (1 - largest(mask, disc, head_y, head_x) / 255) * weight[j]
        sums[j] = total
    if total < DEAD_END:
        return False
    for _ in range(DASH_TRIALS):
        drawn = word(stream) / 4294967296 * total
        j = 0
        while sums[j] <= drawn:
            j += 1
        head_y, head_x = y + ring[j, 0], x + ring[j, 1]
        if not crosses(mask, sprites[DEGREES + j], head_y, head_x):
            add_to_mask(mask, sprites, snake[dashes])
            set_dash(snake[dashes + 1], head_y, head_x, DEGREES + j)
            set_dash(snake[0], y, x, DEGREES + j)
            return True
    return False


@compiled
def start_snake(reach, width, snake, orientation, y, x):
    """The first dash of a snake. False: its head or its pivot lies outside."""
    pivot_y, pivot_x = y + reach[orientation, 2], x + reach[orientation, 3]
    head = inside(y + reach[orientation, 0], x + reach[orientation, 1], width)
    set_dash(snake[1], y, x, orientation)
    set_dash(snake[0], pivot_y, pivot_x, orientation)
    return head and inside(pivot_y, pivot_x, width)


@compiled
def seeds(tables, memory, stream):
    """The first dash of both target snakes, the second one `seed_distance` from the first. False: none was found."""
    width, reach, orientation = memory.mask.shape[1], tables.reach, below(stream, DEGREES)
    if not tables.count[orientation, 0]:
        return False
    tail = tables.tails[orientation, below(stream, tables.count[orientation, 0])]
    y, x = tail // width, tail % width
    start_snake(reach, width, memory.snakes[0], orientation, y, x)
    for _ in range(DASH_TRIALS):
        orientation = below(stream, DEGREES)
        away = tables.second[below(stream, DEGREES)]
        if start_snake(reach, width, memory.snakes[1], orientation, round(y + away[0]), round(x + away[1])):
            return True
    return False


@compiled
def targets(tables, memory, stream, length):
    """Both target snakes, growing in turn. False: one of them could not go on."""
    memory.mask[0] = memory.mask[2]
    if not seeds(tables, memory, stream):
        return False
    for i in range(2, 2 * length):
        if not extend(tables, memory, stream, memory.snakes[i % 2], i // 2):
            return False
    add_to_mask(memory.mask[0], tables.mask, memory.snakes[1, length])  # the first snake's last dash stays out of it
    return True


@compiled
def is_free(mask, kernel, y, x):
    for k in range(len(kernel)):
        row, column = y + kernel[k, 0], x + kernel[k, 1]
        if inside(row, column, mask.shape[0]) and mask[row, column] > FREE:
            return False
    return True


@compiled
def free_pixel(mask, kernel, stream):
    """A pixel, uniform over the pixels where a seed of this kernel has room; -1 if there is none."""
    width = mask.shape[0]
    for _ in range(PIXEL_TRIALS):
        pixel = below(stream, width * width)
        if is_free(mask, kernel, pixel // width, pixel % width):
            return pixel
    free = 0
    for pixel in range(width * width):
        free += is_free(mask, kernel, pixel // width, pixel % width)
    wanted = below(stream, free)
    for pixel in range(width * width):
        if is_free(mask, kernel, pixel // width, pixel % width):
            if not wanted:
                return pixel
            wanted -= 1
    return -1


@compiled
def distractor(tables, memory, stream, length):
    """One short snake in the first snake's rows. False: there was no room, and the mask may hold a part of it."""
    mask, snake = memory.mask[0], memory.snakes[0]
    width, free = mask.shape[0], 0
    for row in range(width):
        for column in range(width):
            free += mask[row, column] <= FREE
    if free < LEAST_FREE * width * width:
        return False
    for _ in range(DASH_TRIALS):
        orientation = below(stream, DEGREES)
        pixels = tables.count[orientation, 1]
        pixel = free_pixel(mask, tables.kernel[orientation, :pixels], stream) if pixels else -1
        if pixel < 0:
            return False
        if start_snake(tables.reach, width, snake, orientation, pixel // width, pixel % width):
            for dashes in range(1, length):
                if not extend(tables, memory, stream, snake, dashes):
                    return False
            add_to_mask(mask, tables.mask, snake[length])
            return True
    return False


@compiled
def draw_snake(layer, sprites, snake, length):
    for i in range(1, length + 1):
        stamp(layer, sprites[snake[i, 2]], snake[i, 0], snake[i, 1])


@compiled
def draw_marker(layer, markers, y, x):
    """A disc; near an edge its sprite is another one (the filter is cut off there)."""
    width, reach = layer.shape[0], markers.shape[0] // 2
    row = min(max(y, 0), reach) + max(0, y - (width - 1 - reach))
    column = min(max(x, 0), reach) + max(0, x - (width - 1 - reach))
    stamp(layer, markers[row, column], y, x)


@compiled
def draw(tables, memory, stream, label, lengths, layers):
    """One image: targets, distractors and discs in layers (3, W, W) uint8, all zero before.

    `lengths`: dashes of a target, dashes of a distractor, distractors. Returns how often the targets were begun, 0 if
    they never came to their ends.
    """
    tries = 1
    while not targets(tables, memory, stream, lengths[0]):
        if tries == TARGET_TRIALS:
            return 0
        tries += 1
    for snake in memory.snakes:
        draw_snake(layers[0], tables.line, snake, lengths[0])
    first = below(stream, 2)
    tip, end = memory.snakes[first, 1], memory.snakes[first if label else 1 - first, lengths[0]]
    draw_marker(layers[2], tables.marker, tip[0], tip[1])
    draw_marker(layers[2], tables.marker, end[0], end[1])
    for _ in range(lengths[2]):
        memory.mask[1] = memory.mask[0]
        for _ in range(SNAKE_TRIALS):
            if distractor(tables, memory, stream, lengths[1]):
                draw_snake(layers[1], tables.line, memory.snakes[0], lengths[1])
                break
            memory.mask[0] = memory.mask[1]
    return tries
