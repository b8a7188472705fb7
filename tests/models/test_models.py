"""The paper's networks, and what is asked of a network of one's own."""

import pytest
import torch
from torch import nn

from ccfed.models import Network, cnn, find_model, mlp, resnet18
from ccfed.models.network import build, check_fit


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_the_perceptron_is_the_papers() -> None:
    net = mlp((1, 28, 28), 10)
    assert [type(layer) for layer in net] == [nn.Flatten, nn.Linear, nn.Dropout, nn.ReLU, nn.Linear]
    assert parameters(net) == 784 * 50 + 50 + 50 * 10 + 10
    assert net[2].p == 0.5


def test_the_convolutional_network_is_the_papers() -> None:
    net = cnn((3, 32, 32), 10)
    sizes = [tuple(p.shape) for p in net.parameters() if p.dim() > 1]
    assert sizes == [(6, 3, 5, 5), (16, 6, 5, 5), (120, 400), (84, 120), (10, 84)]
    assert net(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize("classes", [10, 100])
def test_resnet_18_is_the_one_for_small_images(classes: int) -> None:
    net = resnet18((3, 32, 32), classes)
    kinds = [type(module) for module in net.modules()]
    assert kinds.count(nn.Conv2d) == 1 + 16 + 3
    assert kinds.count(nn.GroupNorm) == kinds.count(nn.Conv2d)
    assert all(m.num_groups == 16 for m in net.modules() if isinstance(m, nn.GroupNorm))
    assert nn.MaxPool2d not in kinds
    # The convolutions' weights, two numbers for each normalised channel, and the last layer.
    channels = 64 * 5 + (128 + 256 + 512) * 5
    assert parameters(net) == 11_159_232 + 2 * channels + 513 * classes
    assert net(torch.zeros(1, 3, 32, 32)).shape == (1, classes)


@pytest.mark.parametrize("shape", [(1, 8, 8), (12, 12), (20,)])
def test_the_perceptron_takes_any_shape(shape: tuple[int, ...]) -> None:
    assert mlp(shape, 3)(torch.zeros(4, *shape)).shape == (4, 3)


def test_parameters_go_into_a_vector_and_back() -> None:
    network = build(cnn, (3, 32, 32), 10, seed=0)
    flat = network.flat()
    assert flat.shape == (network.size,)
    views = network.views(flat)
    for name, parameter in network.module.named_parameters():
        assert torch.equal(views[name], parameter)
    many = torch.stack([flat, 2 * flat])
    assert torch.equal(network.views(many)["0.weight"][1], 2 * views["0.weight"])
    views["0.bias"].zero_()
    assert (flat[3 * 6 * 25 :][:6] == 0).all()  # views, not copies


def test_the_first_model_depends_on_the_seed_and_on_nothing_else() -> None:
    torch.manual_seed(1)
    first = build(mlp, (1, 8, 8), 10, seed=0).flat()
    state = torch.random.get_rng_state()
    assert torch.equal(build(mlp, (1, 8, 8), 10, seed=0).flat(), first)
    assert not torch.equal(build(mlp, (1, 8, 8), 10, seed=1).flat(), first)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_maker_is_given_what_it_asks_for() -> None:
    def of_nothing() -> nn.Module:
        return nn.Linear(4, 2)

    def of_shape(shape: tuple[int, ...]) -> nn.Module:
        return nn.Linear(shape[0], 2)

    for maker in (of_nothing, of_shape):
        assert build(maker, (4,), 2, seed=0).size == 10


def test_frozen_parameters_stay_out_of_the_vector() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    module[0].requires_grad_(False)
    assert Network.of(module).names == ("1.weight", "1.bias")


def test_names_lead_to_makers() -> None:
    assert find_model("cnn") is cnn
    assert find_model("ccfed.models.resnet:resnet18") is resnet18


def test_whole_numbers_for_a_model_that_wants_others_are_explained() -> None:
    network = build(nn.Linear(4, 2), (4,), 2, seed=0)
    with pytest.raises(ValueError, match="token ids: give the samples as floats"):
        check_fit(network, torch.zeros(2, 4, dtype=torch.int64), 2)
