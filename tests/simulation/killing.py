"""Runs a command of ccfed in child processes which are killed again and again, until one of them finishes.

`python killing.py FOLDER KILLS SEED whole|tiny ARGUMENTS...` adds `--out FOLDER --resume` to the arguments and prints
how many children were killed, and how many of them while they wrote a file. One process has everything loaded, and
forks: so a child costs what its rounds cost, and is a real process that runs the real command and gets a real SIGKILL.
If it finishes before so many were killed, the folder is removed and all begins anew. With `tiny`, checkpoints are
written as those of large federations are: in many files, of which only what is new is written.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

import torch

from ccfed.cli import main
from ccfed.files import whole
from ccfed.simulation import checkpoint, segments


def forked(arguments: list[str], log: Path, writes_left: int | None) -> int:
    """A child that runs the command; with `writes_left` it kills itself just before that call that changes the disk."""
    child = os.fork()
    if child:
        return child
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    if writes_left is not None:
        count = [writes_left]

        def counted(call):
            def counting(*args, **kwargs):
                if count[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                count[0] -= 1
                return call(*args, **kwargs)

            return counting

        for name in ("replace", "fsync"):
            setattr(whole.os, name, counted(getattr(os, name)))
    code = 1
    try:
        code = main(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def kill_until_it_finishes(folder: Path, kills: int, seed: int, arguments: list[str]) -> dict[str, int]:
    """Returns how many were killed, how many of them while they wrote, and how often all began anew."""
    draw = random.Random(seed)
    counts = {"killed": 0, "while writing": 0, "begun": 1}
    log = folder.with_suffix(".log")
    while True:
        at_a_write = draw.random() < 0.5
        child = forked(
            [*arguments, "--out", str(folder), "--resume", "--checkpoint-every", "0"],
            log,
            draw.randrange(60) if at_a_write else None,
        )
        if not at_a_write:
            time.sleep(0.6 * draw.random())
            os.kill(child, signal.SIGKILL)  # it may have finished: then it waits to be asked for its code
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL, status
            counts["killed"] += 1
            counts["while writing"] += bool(list(folder.rglob("*.new")))
        elif os.WEXITSTATUS(status):
            raise SystemExit(f"exit code {os.WEXITSTATUS(status)}: {log.read_text()[-2000:]}")
        elif counts["killed"] >= kills:
            return counts
        else:
            shutil.rmtree(folder)
            counts["begun"] += 1


if __name__ == "__main__":
    torch.set_num_threads(1)  # no thread is there when the process forks
    folder, kills, seed, size, *arguments = sys.argv[1:]
    if size == "tiny":
        segments.SMALL_BYTES, segments.PIECE_BYTES = 0, 3 * 4 * 4000
        checkpoint.LOG_BYTES, checkpoint.COUNTED_APART = 200, 7
    main([*arguments, "--out", f"{folder}-straight"])
    print(json.dumps(kill_until_it_finishes(Path(folder), int(kills), int(seed), arguments)))
