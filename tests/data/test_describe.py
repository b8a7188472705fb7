"""Who holds what, as numbers, as a table and as a picture."""

from pathlib import Path

import matplotlib.image
import pytest
import torch

from ccfed import data


def test_counts_are_what_the_clients_hold() -> None:
    digits = data.load("digits")
    federation = digits.split(data.dirichlet(0.3), clients=9, seed=1)
    counts = federation.describe().counts
    for client in range(9):
        assert counts[client].tolist() == digits.train_y[federation.parts[client]].bincount(minlength=10).tolist()
    assert counts.sum(0).tolist() == digits.train_y.bincount().tolist()


def test_the_table_lists_every_client_and_class() -> None:
    x = torch.zeros(12, 2)
    words = ["cat"] * 6 + ["dog"] * 6
    federation = data.from_arrays(x, words, x, words, name="pets").split(data.mixed(0.0), clients=3)
    assert str(federation.describe()).splitlines() == [
        "pets, mixed split: 3 clients, 4 to 4 samples and 1 to 2 of 2 classes each",
        "client  samples  classes  cat  dog",
        "     0        4        1    4    0",
        "     1        4        2    2    2",
        "     2        4        1    0    4",
    ]


def test_a_long_table_shows_both_ends() -> None:
    lines = str(data.synthetic(4000).split(data.iid(), clients=1000).describe()).splitlines()
    assert len(lines) < 30
    assert [line.split()[0] for line in lines[2:]] == [*map(str, range(10)), "...", *map(str, range(990, 1000))]


@pytest.mark.parametrize(("clients", "classes"), [(1, 1), (8, 10), (100, 10), (20, 100), (3001, 3)])
def test_the_picture_shows_each_cell_in_its_place(clients: int, classes: int, tmp_path: Path) -> None:
    """Client i holds class i mod classes only: exactly those cells are coloured."""
    n = max(clients, classes)
    labels = torch.arange(n) % classes
    parts = [torch.arange(i, n, clients) for i in range(clients)]
    x = torch.zeros(n, 1)
    federation = data.from_arrays(x, labels, x, labels).split(data.explicit(parts), clients)
    holdings = federation.describe()
    path = holdings.plot(tmp_path / "below" / "who.png")
    assert matplotlib.image.imread(path).shape[0] > 300
    (image,) = holdings.figure().axes[0].images
    drawn = torch.tensor(image.get_array().filled(0.0))
    assert drawn.shape[0] == classes
    assert drawn.shape[1] <= 1000
    if clients <= 1000:
        assert torch.equal(drawn.T, holdings.counts.double())
    else:
        widths = torch.full((drawn.shape[1],), 4.0, dtype=torch.float64)
        widths[-1] = clients - 4 * (drawn.shape[1] - 1)
        torch.testing.assert_close((drawn * widths).sum(1), holdings.counts.sum(0).double())
