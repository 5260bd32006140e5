"""One-line refusals of settings and data, without torch, so that processes that make data start fast."""

from collections.abc import Callable, Collection

# (what is being done, how much is done, of how much), shown as a bar or a line
Progress = Callable[[str, int, int], None]


def no_progress(activity: str, done: int, total: int) -> None:
    """Progress that shows nothing."""


def say(progress: Progress, line: str) -> None:
    """Show a line beside the progress, where something shows it."""
    getattr(progress, "say", lambda line: None)(line)


class DataError(ValueError):
    """Data that cannot be used. The message is one line: file and line, what is wrong, and what to do.

    `cure`: what to do before the next command. The task adds that command, `arguments` behind it.
    """

    def __init__(self, problem: object, cure: str = "", arguments: str = "") -> None:
        super().__init__(str(problem), cure, arguments)  # all of `args`, so that a worker process can send it
        self.command = ""

    def __str__(self) -> str:
        problem, cure, arguments = self.args
        command = f"run: {self.command} {arguments}".strip() if self.command else arguments
        steps = [step for step in (cure, command) if step]
        return "; ".join(part for part in (problem, ", then ".join(steps)) if part)


def at_least(least: float, **values: float | None) -> None:
    """Raises ValueError for a setting that is less than `least`. None is not a value."""
    for name, value in values.items():
        if value is not None and value < least:
            raise ValueError(f"{name}={value} is less than {least}")


def one_of(allowed: Collection[str], **values: str) -> None:
    """Raises ValueError for a setting that is not one of the allowed ones."""
    for name, value in values.items():
        if value not in allowed:
            raise ValueError(f"{name}={value!r} is none of {', '.join(allowed)}")
