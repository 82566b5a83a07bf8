"""A small transformer that trains in float8 follows the loss of its training in bfloat16."""

import copy

import pytest
import torch
from torch import nn

import tcgemm

WIDTH, TOKENS, SYMBOLS, STEPS = 512, 128, 64, 300


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, 8, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


class Model(nn.Module):
    def __init__(self, blocks=4):
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, WIDTH)
        self.positions = nn.Parameter(torch.randn(TOKENS, WIDTH) / 50)
        self.blocks = nn.Sequential(*(Block() for _ in range(blocks)))
        self.head = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, symbols):
        return self.head(self.blocks(self.embedding(symbols) + self.positions))


def batch(table, generator):
    """Text of a Markov chain: the next symbol depends on the last one."""
    device = table.device
    text = torch.randint(SYMBOLS, (32, TOKENS + 1), device=device, generator=generator)
    for at in range(1, TOKENS + 1):
        weights = table[text[:, at - 1]]
        text[:, at] = torch.multinomial(weights, 1, generator=generator)[:, 0]
    return text[:, :-1], text[:, 1:]


def losses_of(model, table, batches):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    losses = []
    for x, target in batches:
        with torch.autocast(table.device.type, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), target.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses).cpu()


@pytest.mark.gpu
@pytest.mark.parametrize("scaling", ["current", "delayed"])
def test_the_loss_stays_within_one_percent(scaling):
    torch.manual_seed(0)
    reference = Model().cuda()
    generator = torch.Generator("cuda").manual_seed(1)
    table = torch.rand(SYMBOLS, SYMBOLS, device="cuda", generator=generator) ** 8
    batches = [batch(table, generator) for _ in range(STEPS)]
    model = copy.deepcopy(reference)
    report = tcgemm.swap_linear(model, skip="head", to=tcgemm.nn.Float8Linear, scaling=scaling)
    assert len(report.swapped) == 16
    expected = losses_of(reference, table, batches)
    losses = losses_of(model, table, batches)
    smooth, smooth_expected = (series.unfold(0, 20, 20).mean(1) for series in (losses, expected))
    print(f"{scaling}: {smooth.tolist()} beside bfloat16: {smooth_expected.tolist()}")
    assert smooth_expected[-1] < 0.75 * expected[0]  # it learns: from about log(64), 4.16, to 2.91
    assert ((smooth - smooth_expected).abs() <= 0.01 * smooth_expected).all()
