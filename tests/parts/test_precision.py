"""Sums in float32 that are as good as float64."""

import torch

from hashprompt.parts.precision import add_exactly, exact


def test_a_sum_in_float32_does_not_stand_still() -> None:
    total = torch.tensor([[2.0**24, 0.0], [0.0, 0.0]])
    for _ in range(1000):
        total = add_exactly(total, torch.tensor([1.0, 0.1]))
    assert total.dtype == torch.float32
    expected = [2.0**24 + 1000, 1000 * float(torch.tensor(0.1))]
    torch.testing.assert_close(
        exact(total).sum(0), torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0
    )


def test_sums_of_several_devices_can_be_added() -> None:
    torch.manual_seed(0)
    values = torch.rand(2000, 3)
    halves = []
    for half in values.chunk(2):
        total = torch.zeros(2, 3)
        for row in half:
            total = add_exactly(total, row)
        halves.append(total)
    found = exact(halves[0] + halves[1]).sum(0)
    torch.testing.assert_close(found, values.double().sum(0), rtol=1e-7, atol=0)


def test_a_sum_of_an_older_checkpoint_goes_on() -> None:
    total = add_exactly(torch.tensor([5.0, 7.0]), torch.tensor([1.0, 2.0]))
    assert total.tolist() == [[6.0, 9.0], [0.0, 0.0]]
