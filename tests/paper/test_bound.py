"""The bound against values worked out by other means, and its experiment."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from ccfed.algorithm import methods
from ccfed.algorithm.budgets import groups
from ccfed.paper.bound import Problem, corollary_rate, largest_rate, rounds_needed, theorem_1
from ccfed.paper.theory import SETTING, Landscape, squared_gradients

P = Problem(N=8, K=5, T=1000, r=0.5, W=4, L=2.0, sigma_l=1.5, sigma_g=0.5, gap=3.0)


def test_the_bound_and_its_terms_by_hand() -> None:
    bound = theorem_1(P, 0.004)
    assert bound.start == pytest.approx(4 * 3 / (0.004 * 5 * 1000))  # 0.6
    assert bound.drift == pytest.approx(8 * 1.6e-5 * 4 * 5 * (2.25 + 10 * 0.25))  # 0.01216
    assert bound.noise == pytest.approx(4 * 0.004 * 2 * 4 * 2.25 / 8)  # 0.036
    assert bound.delay == pytest.approx((8 * 0.5 * 5 * 4 * 9 * 1.6e-5 + 0.5 * 2 * 4 * 3 * 0.004) * 2.25 / 8)
    assert bound.total == pytest.approx(0.6 + 0.01216 + 0.036 + (0.01152 + 0.048) * 0.28125)


def test_the_largest_rate_is_the_last_that_fulfils_the_conditions_of_the_proof() -> None:
    for r, W in ((0.0, 1), (0.5, 4), (1.0, 16), (0.25, 2), (0.1, 3), (0.9, 1)):
        p = replace(P, r=r, W=W)
        D = W - 1 if r > 0 else 0

        def allowed(rate: float, p: Problem = p, D: int = D, r: float = r) -> bool:
            y = rate * p.L * p.K
            return y <= 1 / 4 and y * y * (1 + r * D) <= 1 / 16 and (D + 1) * y + 2 * r * D * D * y * y <= 1 / 2

        most = largest_rate(p)
        assert allowed(most * (1 - 1e-9))
        assert not allowed(most * (1 + 1e-6))
        assert most >= 1 / (4 * p.L * p.K * W)


def test_with_nobody_skipping_it_is_the_bound_of_fedavg() -> None:
    nobody = theorem_1(replace(P, r=0.0), 0.004)
    always = theorem_1(replace(P, W=1), 0.004)
    assert nobody == always
    assert nobody.delay == 0
    assert nobody.total < theorem_1(P, 0.004).total


def test_the_corollary_falls_like_one_over_the_root_of_all_steps() -> None:
    totals = [theorem_1(q, corollary_rate(q)).total for q in (replace(P, T=10**9), replace(P, T=4 * 10**9))]
    assert totals[0] / totals[1] == pytest.approx(2.0, rel=1e-2)
    needed = rounds_needed(P)
    assert corollary_rate(replace(P, T=needed)) <= largest_rate(P) * (1 + 1e-12)
    assert corollary_rate(replace(P, T=needed - 1)) > largest_rate(P)


def test_bad_constants_are_refused() -> None:
    with pytest.raises(ValueError, match=r"--lr is 1, but Theorem 1 needs a learning rate above 0 and at most"):
        theorem_1(P, 1.0)
    for wrong, said in (
        ({"N": 0}, "--N is 0, but it must be at least 1"),
        ({"r": 1.5}, r"--r is 1.5, but the share of clients must lie in \[0, 1\]"),
        ({"L": math.inf}, "--L is inf, but it must be a finite number above 0"),
        ({"sigma_g": -1.0}, "--sigma-g is -1.0, but it must be a finite number of at least 0"),
    ):
        with pytest.raises(ValueError, match=said):
            replace(P, **wrong)  # type: ignore[arg-type]


def test_the_landscape_has_the_constants_that_it_claims() -> None:
    land = Landscape.of(SETTING)
    assert torch.allclose(land.a.sum(0), torch.zeros(land.a.shape[1], dtype=torch.float64), atol=1e-12)
    x = torch.linspace(-4, 4, 2001, dtype=torch.float64)[:, None].expand(-1, land.a.shape[1])
    everyone = torch.arange(SETTING.N)
    gradients = land.gradients(x.expand(SETTING.N, -1, -1), everyone)
    assert torch.allclose(gradients.mean(0), land.gradient(x), atol=1e-12)
    away = (gradients - land.gradient(x)).norm(dim=-1)
    assert float(away.max()) == pytest.approx(SETTING.sigma_g)
    slopes = gradients.diff(dim=1) / (8 / 2000)
    assert float(slopes.abs().max()) <= land.smoothness
    point = torch.rand(3, land.a.shape[1], dtype=torch.float64, requires_grad=True)
    (by_torch,) = torch.autograd.grad(land.value(point).sum(), point)
    assert torch.allclose(by_torch, land.gradient(point))


@pytest.mark.parametrize("W", [1, 3])
def test_what_is_measured_stays_under_the_bound(W: int) -> None:
    land = Landscape.of(SETTING)
    p = replace(SETTING, T=60, W=W, L=land.smoothness, gap=float(land.value(torch.ones(1, 10)).item()))
    method = methods.cc_fedavg(groups(p.N, p.r, W), "round-robin")
    rate = largest_rate(p)
    squares = squared_gradients(p, method, land, rate)
    for rounds in (10, 60):
        bound = theorem_1(replace(p, T=rounds), rate).total
        assert squares[:rounds].mean() < bound  # the proof bounds the mean, and so the least
    assert squares.min() < squares[0] / 5


@dataclass(frozen=True)
class Bowl(Landscape):
    """f_i(x) = x A x / 2 + a_i x, where the a_i add up to nothing: smooth with the largest eigenvalue of A."""

    curvature: torch.Tensor

    def gradient(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.curvature

    def gradients(self, x: torch.Tensor, clients: torch.Tensor) -> torch.Tensor:
        return x @ self.curvature + self.a[clients][:, None]


@pytest.mark.parametrize("seed", range(8))
def test_the_bound_holds_on_other_problems_with_known_constants(seed: int) -> None:
    draw = np.random.default_rng(seed)
    clients, W = int(draw.integers(2, 7)), int(draw.integers(1, 7))
    L, sigma_l, sigma_g = draw.uniform(0.2, 5), draw.choice([0.0, 0.3, 3.0]), draw.choice([0.0, 0.3, 3.0])
    turned = np.linalg.qr(draw.standard_normal((10, 10)))[0]
    curvature = torch.from_numpy(turned @ np.diag([L, *draw.uniform(0, L, 9)]) @ turned.T)
    steps, r = int(draw.integers(1, 5)), int(draw.integers(1, clients + 1)) / clients
    p = Problem(clients, steps, 40, r, W, L, sigma_l, sigma_g)
    bowl = Bowl(Landscape.of(p).a, curvature)
    p = replace(p, gap=float(curvature.sum() / 2))  # the start is all ones, the bottom all zeros
    rate = largest_rate(p) * draw.choice([1.0, 0.3])
    method = methods.cc_fedavg(groups(p.N, p.r, W), "round-robin")
    squares = squared_gradients(p, method, bowl, rate)
    for rounds in (5, 40):
        assert squares[:rounds].mean() < theorem_1(replace(p, T=rounds), rate).total


def test_one_round_of_the_experiment_is_plain_sgd() -> None:
    p = replace(SETTING, T=2, sigma_l=0.0)
    land = Landscape.of(p)
    squares = squared_gradients(p, methods.fedavg(), land, 0.1)
    a = land.a.numpy()
    x = np.ones((p.N, 10))
    for _ in range(p.K):
        x = x - 0.1 * (2 * x / (1 + x * x) ** 2 + a * np.cos(x))
    mean = x.mean(0)
    assert squares[0] == pytest.approx(10 * 0.25)
    assert squares[1] == pytest.approx(float(((2 * mean / (1 + mean**2) ** 2) ** 2).sum()))
