"""One exception tree. Every message says what happened, with its values, then what to do."""

from typing import ClassVar

CUT = 2000  # characters of a message: enough for any that we write


class TrajsoupError(Exception):
    """A problem the user can mend. The command line prints it as one message and exits with 1.

    A value in the message may be a stranger's: endless, or of several lines.
    """

    SEVERAL_LINES: ClassVar[bool] = False  # the message is of several lines, all of them ours

    def __str__(self) -> str:
        said = super().__str__()
        return cut(said if self.SEVERAL_LINES else said.replace("\n", "\\n").replace("\r", "\\r"))


class MissingExtraError(TrajsoupError):
    """Something needs a package of an extra that is not installed."""


class ScanError(TrajsoupError):
    """A run folder or its metrics cannot be read as a branch of checkpoints."""


class StudyError(TrajsoupError):
    """A study or soup file is wrong."""


class SelectionError(TrajsoupError):
    """The requested checkpoints cannot be chosen from the pools."""


class ScreenError(TrajsoupError):
    """The compatibility screen cannot be computed, or nothing passes it."""


class UncomparableError(ScreenError):
    """The runs have no training losses that could be compared."""


class CheckpointError(TrajsoupError):
    """A checkpoint is missing, damaged, or of a kind that must not be averaged."""


class NonfiniteError(CheckpointError):
    """A checkpoint holds NaN or Inf."""

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key  # of the checkpoint among those of the pass that met it


class MismatchError(CheckpointError):
    """Two ingredients differ where they must agree."""


class BlendError(TrajsoupError):
    """The weighted sum cannot be computed."""


class GeometryError(TrajsoupError):
    """A distance, direction or projection is asked for that the checkpoints do not define."""


class TheoryError(TrajsoupError):
    """A quantity of the theory is asked for that its inputs do not define or allow."""


class ScalingError(TrajsoupError):
    """A scaling law or a compute figure cannot be computed from these points."""


class OutputError(TrajsoupError):
    """The output cannot be written where it was asked for."""


class VerifyError(TrajsoupError):
    """An output does not equal what its record says."""


class PilotError(StudyError):
    """Prices are asked for before the pilot that they are estimated from. The message has the commands, a line each."""

    SEVERAL_LINES = True


class RecipeError(StudyError):
    """A recipe, or the set of recipes of a study, cannot be trained as written."""


class TrainError(TrajsoupError):
    """A branch cannot be trained or resumed."""


class DivergedError(TrainError):
    """A loss or gradient became NaN or infinite."""


class CorpusError(TrajsoupError):
    """Documents, their splits or their tokenizer cannot be used as they are."""


class ScoreError(TrajsoupError):
    """A model cannot be scored, or scores cannot be compared."""


class UnansweredError(ScoreError):
    """A method asks for a score that cannot be known here."""


class StoreError(TrajsoupError):
    """An object store does not answer, or refuses."""


class ExecutorError(TrajsoupError):
    """A task failed more often than it may, or the machines that should run it are gone."""


class HeldError(TrajsoupError):
    """A lock has another owner. The message is the owner; who asks says what it holds."""


class ReportError(TrajsoupError):
    """A report cannot be drawn or shown."""


def cut(message: str) -> str:
    """The message, without its middle where a value in it is endless."""
    return message if len(message) <= CUT else f"{message[: CUT * 3 // 4]} [...] {message[-CUT // 4 :]}"


def install(extra: str) -> str:
    """The command that brings an extra: from the clone that this package came from, or from the index."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path
    from urllib.parse import unquote

    try:
        origin = distribution("trajectory-soup").read_text("direct_url.json")
        url = json.loads(origin).get("url", "") if origin else ""
        source = unquote(url.removeprefix("file://")) if url.startswith("file://") else "trajectory-soup"
    except PackageNotFoundError:  # never installed: a clone on the path
        clone = Path(__file__).absolute().parents[2]
        source = str(clone) if (clone / "pyproject.toml").is_file() else "trajectory-soup"
    return f"pip install '{source}[{extra}]'"
