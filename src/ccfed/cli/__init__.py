"""The command line: `ccfed run`, `ccfed compare` and the rest. Results go to stdout, all else to stderr."""

import importlib
import os
import sys
from collections.abc import Sequence

from ccfed.cli.failures import Failure
from ccfed.cli.terminal import tell

# Each command is a module with `main(arguments) -> exit code`; it is imported when called, so that help comes at once.
COMMANDS = {
    "run": ("ccfed.cli.run", "simulate one federation"),
    "compare": ("ccfed.cli.compare", "simulate the same federation under several methods and seeds"),
    "report": ("ccfed.cli.report", "make one HTML page of one or several runs"),
    "reproduce": ("ccfed.cli.reproduce", "run and draw a table or figure of the paper beside its own numbers"),
    "theory": ("ccfed.cli.theory", "the paper's convergence bound for given constants"),
    "data": ("ccfed.cli.data", "list, fetch and check data sets"),
    "flower": ("ccfed.cli.flower", "real devices: write a Flower app, go on with a run"),
    "bench": ("ccfed.cli.bench", "measure the training engines on this machine"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `ccfed ARGUMENTS` and returns its exit code: 0, 1 if the run failed, 2 for bad input, 130 after Ctrl-C."""
    if "" not in sys.path:
        sys.path.append("")  # `--model module:function` also finds a module in the current folder
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(_help())
        return 0
    if words[0] == "--version":
        import ccfed

        print(f"ccfed {ccfed.__version__}")
        return 0
    command = words.pop(0)
    if command not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(command, COMMANDS, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        tell(f"ccfed: {command!r} is no command{hint}; there are {', '.join(COMMANDS)}")
        return 2
    try:
        try:
            return int(importlib.import_module(COMMANDS[command][0]).main(words))
        finally:
            sys.stdout.flush()
    except Failure as failure:
        tell(f"ccfed {command}: {failure}")
        return failure.code
    except KeyboardInterrupt:
        tell(f"ccfed {command}: interrupted")
        return 130
    except BrokenPipeError:
        # Whoever reads stdout, such as `head`, has seen enough: end as a program does that this signal ends.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 141


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name.ljust(width)}  {what}" for name, (_, what) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: ccfed COMMAND [OPTIONS]",
            "",
            "Federated learning in which every device pays only the compute it can afford.",
            "",
            *lines,
            "",
            "`ccfed COMMAND --help` explains every option with its default.",
        ]
    )


__all__ = ["main"]
