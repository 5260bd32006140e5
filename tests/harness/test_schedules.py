import math

import pytest
import torch

from harness.training.optim import schedules


def rates(make, steps, lr=0.1):
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    schedule = make(optimizer)
    recorded = []
    for _ in range(steps):
        recorded.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return recorded


def test_inverse_sqrt_is_lra_s_warmup_and_rsqrt():
    lr = rates(lambda o: schedules.inverse_sqrt(o, warmup=10), 50, lr=0.05 / math.sqrt(10))
    for step, rate in enumerate(lr):
        assert rate == pytest.approx(0.05 * min(1, step / 10) / math.sqrt(max(step, 10)))


def test_inverse_sqrt_starts_where_fairseq_does():
    lr = rates(lambda o: schedules.inverse_sqrt(o, warmup=4, start=1e-7), 5)
    assert lr[0] == pytest.approx(1e-7) and lr[4] == pytest.approx(0.1)


def test_cosine_peaks_after_warmup_and_ends_at_zero():
    lr = rates(lambda o: schedules.cosine(o, warmup=5, steps=20), 21)
    assert lr[0] == 0 and max(lr) == lr[5] == pytest.approx(0.1) and lr[20] == pytest.approx(0, abs=1e-12)


def test_one_cycle_reaches_lr_at_the_end_of_its_warmup_and_cycles_beta():
    lr = rates(lambda o: schedules.one_cycle(o, warmup=5, steps=20), 20)
    assert lr[0] == pytest.approx(0.1 / 25) and max(lr) == pytest.approx(0.1)
    assert lr.index(max(lr)) in (4, 5) and lr[-1] < 1e-6
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=0.1, betas=(0.9, 0.999))
    schedules.one_cycle(optimizer, warmup=5, steps=20)
    assert optimizer.param_groups[0]["betas"][0] == pytest.approx(0.95)


@pytest.mark.parametrize(
    "make",
    [
        lambda o: schedules.one_cycle(o, warmup=5, steps=20),
        lambda o: schedules.inverse_sqrt(o, warmup=5, start=1e-3),
        lambda o: schedules.linear(o, warmup=5, steps=20, start=1e-3),
        lambda o: schedules.cosine(o, warmup=5, steps=20),
    ],
    ids=["one_cycle", "inverse_sqrt", "linear", "cosine"],
)
def test_a_group_with_its_own_rate_follows_the_same_curve(make):
    first, second = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([{"params": [first]}, {"params": [second], "lr": 0.01, "weight_decay": 0.0}], lr=0.1)
    schedule = make(optimizer)
    expected = rates(make, 20)
    for rate in expected:
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([rate, rate / 10])
        optimizer.step()
        schedule.step()


def test_exponential_falls_by_epochs_from_the_one_after_those_it_holds():
    """Informer's rates: two epochs at the first one, then halved at each."""
    lr = rates(lambda o: schedules.exponential(o, epoch=5, factor=0.5, hold=1), 25)
    assert lr == pytest.approx([0.1 * 0.5 ** max(0, step // 5 - 1) for step in range(25)])
    assert lr[9] == 0.1 and lr[10] == 0.05


def test_exponential_falls_a_little_each_epoch_to_its_floor():
    """PoinTr's rates: times 0.9 every 21 epochs in 21 steps, but never below a fiftieth."""
    lr = rates(lambda o: schedules.exponential(o, epoch=2, factor=0.9, every=21, floor=0.02), 2 * 21 + 1)
    assert lr[2] == lr[3] == pytest.approx(0.1 * 0.9 ** (1 / 21)) and lr[42] == pytest.approx(0.09)
    assert rates(lambda o: schedules.exponential(o, epoch=1, factor=0.1, floor=0.02), 9)[-1] == pytest.approx(0.002)


@pytest.mark.parametrize(("schedule", "settings"), [
    (schedules.one_cycle, {"warmup": 1, "steps": 4}),
    (schedules.inverse_sqrt, {"warmup": 0}),
    (schedules.inverse_sqrt, {"warmup": 2, "start": -1.0}),
    (schedules.milestones, {"warmup": 1, "at": [2], "factor": -1.0}),
    (schedules.exponential, {"epoch": 1, "factor": 0.0}),
])  # fmt: skip
def test_impossible_settings_are_refused(schedule, settings):
    with pytest.raises(ValueError, match=r"less than|between 0 and 1|OneCycleLR"):
        schedule(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0), **settings)
