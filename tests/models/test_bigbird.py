"""Visibility between blocks."""

import pytest
import torch
from twins import TWINS
from zoo import build, inputs, run

from models.attention.base import Pattern
from models.attention.bigbird import DRAWS, BigBird, block_rows, random_blocks

PATTERN = Pattern.NONCAUSAL_SELF


def draws(heads, blocks, number):
    return torch.randint(DRAWS, (heads, blocks, number), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("count", [12, 13, 16])
def test_random_blocks_are_others_and_all_are_drawn(count):
    picked = random_blocks(draws(400, count, 3), torch.tensor([count]))[0]
    for g in range(1, count - 1):
        candidates = set(range(1, count - 1)) - {g - 1, g, g + 1}
        assert all(len(set(row)) == 3 for row in picked[:, g].tolist())
        times = torch.bincount(picked[:, g].flatten(), minlength=count)
        assert set(times.nonzero().flatten().tolist()) == candidates
        expected = 400 * 3 / len(candidates)
        assert (times[sorted(candidates)] - expected).abs().max() < 6 * expected**0.5


def test_every_real_block_is_listed_once_and_sees_no_block_twice():
    counts, blocks = torch.tensor([16, 12, 11, 1, 0]), 16
    rows = block_rows(draws(2, blocks, 3), counts, full=False)
    listed = torch.cat([queries.flatten() for queries, _ in rows])
    real = torch.arange(blocks) < counts[:, None, None].expand(-1, 2, -1)
    assert sorted(listed.tolist()) == real.flatten().nonzero().flatten().tolist()
    seen = {
        int(g): sorted(key for key in keys.tolist() if key >= 0)
        for queries, table in rows
        for row, keys in zip(queries, table, strict=True)
        for g in row.view(-1)
    }
    for g, keys in seen.items():
        (example, _), first, position = divmod(g // blocks, 2), g // blocks * blocks, g % blocks
        count = int(counts[example])
        if count <= 11 or position in (0, count - 1):
            assert keys == list(range(first, first + count))
            continue
        assert len(keys) == len(set(keys)) == (7 if position in (1, count - 2) else 8)
        assert {first, first + position - 1, first + position, first + position + 1, first + count - 1} <= set(keys)
        assert max(keys) < first + count


def test_long_short_and_gappy_examples_in_one_batch():
    model = build("bigbird", PATTERN).double()
    x, _ = inputs(PATTERN, 45, batch=5, dtype=torch.float64)
    mask = torch.arange(45) >= torch.tensor([45, 29, 28, 1, 33])[:, None]
    mask[4, [0, 1, 2, 3, 9, 30]] = True  # its first block sees others but is not visible
    y, definition = run(model, x, key_padding_mask=mask), TWINS["bigbird"].forward(model, x, None, mask)
    torch.testing.assert_close(y[~mask], definition[~mask], atol=1e-10, rtol=0)


def test_layers_draw_their_own_blocks_and_save_them():
    torch.manual_seed(0)
    drawn, redrawn = (BigBird(16, 2, pattern=PATTERN, max_length=1024) for _ in range(2))
    x = torch.randn(1, 1024, 16)
    assert not torch.equal(drawn.draws, redrawn.draws)
    redrawn.load_state_dict(drawn.state_dict())
    assert torch.equal(run(drawn, x), run(redrawn, x))


def test_sequences_beyond_max_length_are_read():
    model = build("bigbird", PATTERN, max_length=16).double()
    x, _ = inputs(PATTERN, 61, dtype=torch.float64)
    longer = build("bigbird", PATTERN).double()
    longer.load_state_dict(model.state_dict() | {"draws": model.draws.repeat(1, 4, 1)})
    torch.testing.assert_close(run(model, x), run(longer, x))
