"""What a reader wants to know first: which methods, how accurate, and how much compute was saved."""

from collections.abc import Sequence
from typing import Any

from ccfed.report.html import Html, join, tag
from ccfed.report.lines import Line
from ccfed.report.tables import JOULES_PER_FLOP, in_percent, in_units, whole_percent
from ccfed.simulation.results import in_bytes

CARDS = 8
WIDEST = 420
"""Pixels that a card may take in a row of few."""


def _shared(lines: Sequence[Line], name: str) -> Any:
    values = [run.settings.get(name) for line in lines for run in line.runs]
    return values[0] if values and all(value == values[0] for value in values) else None


def title(lines: Sequence[Line]) -> str:
    """Such as 'mlp on digits' or 'cc-fedavg, mlp on digits'."""
    model, data = _shared(lines, "model"), _shared(lines, "data")
    what = f"{model} on {str(data).rsplit('/', 1)[-1]}" if model is not None and data is not None else ""
    if len(lines) == 1:
        return f"{lines[0].label}, {what}" if what else lines[0].label
    return what or f"{len(lines)} lines of runs"


def subtitle(lines: Sequence[Line]) -> str:
    """Such as '4 methods, 3 seeds each; 8 clients, 60 rounds of 20 steps'."""
    runs = sum(len(line.runs) for line in lines)
    counts = {len(line.runs) for line in lines}
    methods = len({line.method for line in lines})
    parts = [_many(methods, "method") if methods == len(lines) else f"{len(lines)} variants"] if len(lines) > 1 else []
    parts.append(
        _many(counts.pop(), "seed") + (" each" if len(lines) > 1 else "") if len(counts) == 1 else f"{runs} runs"
    )
    clients, rounds, steps = (_shared(lines, name) for name in ("clients", "rounds", "steps"))
    participation = _shared(lines, "participation")
    if isinstance(clients, int):
        parts.append(_many(clients, "client"))
    if isinstance(participation, float) and participation < 1:
        parts.append(f"{100 * participation:.3g} % of them in a round")
    if isinstance(rounds, int):
        parts.append(_many(rounds, "round"))
    if isinstance(steps, int):
        parts.append(f"{_many(steps, 'step')} each")
    return " · ".join(parts)


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def headline(lines: Sequence[Line]) -> Html:
    """One sentence: the best line, or the best of those that save compute, beside full training."""
    ready = [line for line in lines if line.counted]
    if not ready:
        return join("No run has played a round yet.")
    thrifty = [line for line in ready if (line.mean("compute_saved") or 0) >= 0.005]
    best = max(thrifty or ready, key=_accuracy)
    if not best.accuracies():
        return join(
            tag("strong", best.label), f" has played {_many(best.rounds, 'round')}; its accuracy was not measured."
        )
    full = max((line for line in ready if line.method == "fedavg" and line is not best), key=_accuracy, default=None)
    so_far = "" if best.finished else " so far"
    reached = tag("strong", _together(in_percent(best.accuracies())))
    words = [tag("strong", best.label), f" reaches{so_far} ", reached]
    saved = best.mean("compute_saved")
    if best in thrifty and saved is not None:
        words += [" with ", tag("strong", f"{whole_percent(saved)} of the training saved")]
    if full is not None:
        gap = _accuracy(best) - _accuracy(full)
        how = "the same as" if abs(gap) < 0.05 else f"{abs(gap):.1f} points {'above' if gap > 0 else 'below'}"
        words += [f", {how} {full.label}, which always trains everyone"]
    others = [line for line in thrifty if line is not best]
    if others:
        second = max(others, key=_accuracy)
        reached = _together(in_percent(second.accuracies()))
        words += [f". Next among those that save compute: {second.label} with ", reached]
    return join(*words, ".")


def _accuracy(line: Line) -> float:
    values = line.accuracies()
    return sum(values) / len(values) if values else -1.0


def cards(lines: Sequence[Line]) -> Html:
    """One card a line: its accuracy, and the share of full training's compute that it spent as a bar. A line alone has
    cards for its costs, too."""
    found = [_card(line, str(i)) for i, line in enumerate(lines) if line.counted]
    if not found or len(lines) > CARDS:
        return Html("")
    if len(lines) == 1:
        found += _cost_cards(lines[0])
    # Few cards stand side by side, none wider than it takes.
    return tag("div", *found, class_="cards", style=f"max-width:{len(found) * WIDEST}px")


def _card(line: Line, number: str) -> Html:
    last = line.accuracies()
    saved = line.mean("compute_saved")
    value, _, spread = in_percent(last).removesuffix(" %").partition(" ± ")
    seeds = _many(len(last), "seed") if last else "not measured"
    small = f"± {spread} over {seeds}" if spread else seeds
    parts = [
        tag("h3", tag("span", class_="swatch", data_line=number), line.label),
        tag("p", value, tag("small", " %") if last else "", class_="big"),
        tag("p", small if line.finished else f"{small}, so far: {_many(line.rounds, 'round')}", class_="quiet"),
        tag("p", "best round ", _together(in_percent(line.accuracies("best"))), class_="quiet"),
    ]
    if saved is not None:
        share = max(0.0, min(1.0, 1 - saved))
        bar = tag("span", class_="spent", style=f"width:{share:.1%}")
        said = f"{whole_percent(saved)} of the compute saved" if saved >= 0.005 else "full compute"
        parts += [tag("div", bar, class_="bar", aria_hidden="true"), tag("p", said)]
    return tag("article", *parts, class_="card")


def _cost_cards(line: Line) -> list[Html]:
    steps, flops = line.mean("client_steps"), line.mean("flops")
    up, down = line.mean("bytes_up"), line.mean("bytes_down")
    found = []
    if steps is not None:
        saved = line.mean("compute_saved")
        full = f"of {steps / (1 - saved):,.0f} in full training" if saved is not None and saved < 1 else "steps of SGD"
        found.append(_fact("Client-steps", f"{steps:,.0f}", full))
    if flops is not None:
        joules = tag("span", in_units(flops * JOULES_PER_FLOP, "J"), data_flops=f"{flops:.6g}")
        found.append(_fact("Estimated energy", joules, f"for {in_units(flops, 'FLOP')} of training, see Costs"))
    if up is not None and down is not None:
        found.append(_fact("Traffic", in_bytes(up + down), f"{in_bytes(up)} up, {in_bytes(down)} down"))
    return found


def _together(text: str) -> Html:
    """`text` as what stands in one line."""
    return tag("span", text, class_="together")


def _fact(name: str, value: str, words: str) -> Html:
    inside = (tag("h3", name), tag("p", value, class_="big"), tag("p", words, class_="quiet"))
    return tag("article", *inside, class_="card")
