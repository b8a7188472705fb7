"""Pictures of curves."""

from ccfed.records.plots import places


def test_a_method_looks_the_same_whoever_is_drawn_beside_it() -> None:
    alone = places(["cc-fedavg"])
    assert places(["mine", "fedavg", "cc-fedavg"])[2] == alone[0]
    assert places(["fedavg", "mine"])[0] == places(["strategy-1", "strategy-2", "fedavg"])[2]
    several = places(["mine", "yours", "fedavg", "cc-fedavg", "strategy-1", "strategy-2"])
    assert len(set(several)) == 6
    assert len(places([f"method {i}" for i in range(20)])) == 20
