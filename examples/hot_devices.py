"""Devices that run hot: each trains only while it is cool enough, and decides so at the moment (a live schedule).

A device warms up by 8 degrees when it trains and loses a quarter of its excess over the room every round. The five
phones lie in places of 15 to 34 degrees and may not get hotter than 45. Nobody plans anything; CC-FedAvg takes what
comes.
"""

from dataclasses import dataclass, field

import tyro

import ccfed
from ccfed import data, methods, schedules


@dataclass
class Phones:
    """Temperatures in degrees Celsius; `decide` is what the live schedule asks, once a client and round."""

    rooms: tuple[float, ...] = (15, 20, 25, 30, 34)
    limit: float = 45.0
    now: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now = list(self.rooms)

    def decide(self, client: int, round: int) -> bool:
        """Whether the phone trains in this round; it warms up or cools down accordingly."""
        cool = self.now[client] + 8 <= self.limit
        self.now[client] += 8 * cool - 0.25 * (self.now[client] - self.rooms[client])
        return cool


@dataclass(frozen=True)
class Options:
    """How long to run."""

    rounds: int = 100
    """Rounds T."""


def main() -> None:
    """Compares CC-FedAvg with leaving hot phones out, and with training on whatever the temperature."""
    options = tyro.cli(Options)
    federation = data.load("digits").split(data.mixed(iid=0.0), clients=5)
    anything = [1.0] * 5  # the budget is not known beforehand: the thermometer decides
    runs = ccfed.simulate(
        federation,
        [
            methods.fedavg(),
            methods.cc_fedavg(anything, schedule=schedules.live(Phones().decide)),
            methods.strategy_1(anything, schedule=schedules.live(Phones().decide)),
        ],
        rounds=options.rounds,
    )
    print(runs.table())


if __name__ == "__main__":
    main()
