"""The table: all comparisons, in groups that share a section of a page."""

from benchmarks import goals
from benchmarks.comparison import Group
from benchmarks.peers import mixers, others, recurrent

LAYERS = """\
Forward and backward of a layer, to its input and all parameters, with the same weights on both sides, no dropout, no
padding."""
LEFT_OUT = """
Without a row: xformers, whose attention has no CPU form any more; mega-pytorch, whose average has one decay for each
head, so that it is another function; the code of Mega, Luna and LRA, which need their own frameworks."""
MIXERS = """\
An operator or a layer, and a public form of the same function, forward and backward, batch 1, 4 heads, width 128. They
are compared in float64 at 512 tokens."""
GOALS = """\
The cores of Latte and Luna have 8 heads of 32, with 32 latents or slots; LAVO, windows of 256 and LongNet have 4 heads
of 64."""

GROUPS = (
    Group("layers", "One training step beside public implementations", f"{LAYERS}\n{LEFT_OUT}", others.COMPARISONS),
    Group("recurrent", "One training step of recurrent layers beside public ones", LAYERS, recurrent.COMPARISONS),
    Group("mixers", "Sequence mixers beside public CPU forms", MIXERS, mixers.COMPARISONS),
    Group("goals", "Goals of the core algorithms", GOALS, goals.COMPARISONS),
)
ROWS = [(group, comparison) for group in GROUPS for comparison in group.comparisons]
