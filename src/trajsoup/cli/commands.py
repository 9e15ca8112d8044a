"""Every command in a line, and the help of `trajsoup` itself: a text for which nothing is imported.

name -> trajsoup.cli.NAME.NAME, imported by app.py when the command is asked for
"""

from __future__ import annotations

COMMANDS = {
    "plan": "What a study costs: tokens, FLOPs, bytes, hours.",
    "design": "Choose recipes to branch with, from short probes.",
    "run": "Run a study, every stage of it, or go on where it was.",
    "status": "How far a study is: stages, branches, the answer.",
    "sweep": "Score all rows of the sweeps from one read of the checkpoints.",
    "geometry": "Directions and angles of the branches, and what theory predicts.",
    "train": "Train every branch of a study to its horizon, nothing more.",
    "scan": "Find checkpoints and losses of existing runs; write a study file.",
    "doctor": "Say before any merge whether these runs will average well.",
    "merge": "Average checkpoints or runs into one ordinary model folder.",
    "verify": "Check a soup against its record and its ingredients.",
    "watch": "Follow runs of any trainer: the best merge that could be had now.",
    "export": "Write a soup as a GGUF file, with its tokenizer.",
    "push": "Put a soup on a model hub, with its card and its record.",
    "demo": "A whole study on the embedded model, in minutes.",
    "report": "Write one self-contained page, its tables and its figures.",
    "serve": "Show the report live while branches train.",
}


def overview() -> str:
    """The help of `trajsoup` itself."""
    width = max(map(len, COMMANDS)) + 2
    lines = "\n".join(f"  {name:{width}}{what}" for name, what in COMMANDS.items())
    return f"""Usage: trajsoup [OPTIONS] COMMAND [ARGS]...

  Average the best checkpoints of several training branches into one better
  model. `trajsoup COMMAND --help` says what a command takes.

Options:
  --version  Show the version.
  --help     Show this message and exit.

Commands:
{lines}
"""
