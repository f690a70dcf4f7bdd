"""The durable loop: journal, apply, snapshot, replay.

``run``, ``forward`` and ``serve`` all work in this way. Each batch is in the journal, on disk, before
anything is done with it; then an application applies it. Every so often the state of the application is
saved as a snapshot. A killed process restores the last snapshot and applies the batches of the journal
again, which must give the same result.

A batch that makes the application fail would fail again after every restart. It is therefore
quarantined with the reason, and the loop continues. Errors that are not the fault of the batch (a full
disk, an unreachable service, an output that fails, another owner's checkpoint) end the loop. Nothing is
lost then: the next call resumes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from baryflow import container
from baryflow.exceptions import BaryflowError, InvalidInputError
from baryflow.persistence import open_content
from baryflow.runtime.checkpoint import Checkpoint, Snapshot
from baryflow.runtime.session import SessionConfig, describe_error
from baryflow.streams import Batch, Source

Value = TypeVar("Value")
#: Replayed batches between two snapshots: kills may come faster than the usual ones.
_REPLAYED = 16


class Application(Protocol):
    """What batches are applied to."""

    @property
    def owner(self) -> str:
        """Name of the command; only the command that made a checkpoint can resume from it."""

    def apply(self, batch: Batch) -> Any:
        """Do the work for a batch and return the result; it must depend on the batches alone.

        Nothing is counted or written yet.
        """

    def quarantine(self, batch: Batch, reason: str) -> Any:
        """Return the result of a batch whose rows are all set aside, because applying it failed."""

    def finish(self, batch: Batch, result: Any) -> Any:
        """Count a batch and write its result. This is called once; an error ends the loop."""

    def snapshot(self) -> Snapshot:
        """Return the state after the last batch; every file that it names is on disk."""

    def restore(self, snapshot: Snapshot) -> None:
        """Return to a state; raise FileFormatError or FileNotFoundError if it cannot be read."""

    def discard(self, kept: list[Snapshot]) -> None:
        """Delete files that none of the snapshots that are left needs."""


class DurableLoop:
    """Applies batches so that a killed process resumes where it stopped.

    Parameters
    ----------
    application : Application
    checkpoint : Checkpoint, optional
        Without it nothing survives the process.
    """

    def __init__(self, application: Application, checkpoint: Checkpoint | None) -> None:
        self.application, self.checkpoint = application, checkpoint
        self.replaying = False

    def follow(
        self,
        source: Source,
        stop: Callable[[], bool],
        *,
        read_size: int,
        timeout: float | None,
        is_snapshot_due: Callable[[], bool],
    ) -> bool:
        """Take batches of a source until it ends or `stop` returns True; return whether it has ended."""
        while not stop():
            batch = source.read(read_size, timeout)
            if batch is None:
                return True
            if batch:  # otherwise nothing came for a while
                self.take(batch, source)
                if is_snapshot_due():
                    self.save()
        return False

    def take(self, batch: Batch, source: Source) -> Any:
        """Write a batch to the journal, acknowledge it to its source, and apply it."""
        if self.checkpoint is None:
            result = self.apply(batch)
            source.acknowledge(batch.cursor)
            return result
        self.checkpoint.append(batch)
        source.acknowledge(batch.cursor)
        return self.apply(batch)

    def apply(self, batch: Batch) -> Any:
        """Apply a batch that is in the journal; quarantine it if that fails."""
        application = self.application
        result: Any = attempt(
            lambda: application.apply(batch), lambda reason: application.quarantine(batch, reason)
        )
        return application.finish(batch, result)

    def recover(self, is_applied: Callable[[Batch], bool] = lambda _: False) -> int:
        """Restore the newest snapshot and replay the batches after it; return their number.

        `is_applied` recognises batches that the restored state contains already.
        """
        checkpoint = self.checkpoint
        if checkpoint is None:
            return 0
        batches = checkpoint.recover(self._restore)
        if batches is None:
            self.save()  # so that there is a snapshot to resume from
            return 0
        self.replaying, n_replayed = True, 0
        for batch in batches:
            if is_applied(batch):
                continue
            self.apply(batch)
            n_replayed += 1
            if n_replayed % _REPLAYED == 0:
                checkpoint.save_midway(self.application.snapshot())
        self.replaying = False
        if n_replayed:
            self.save()
        return n_replayed

    def _restore(self, snapshot: Snapshot) -> None:
        if snapshot.owner != self.application.owner:
            raise InvalidInputError(
                f"cannot resume: the checkpoint was made by 'baryflow {snapshot.owner}', not by "
                f"'baryflow {self.application.owner}'; use another folder"
            )
        self.application.restore(snapshot)

    def save(self) -> None:
        """Save a snapshot, and begin a new journal."""
        if self.checkpoint is not None:
            self.checkpoint.save(self.application.snapshot())
            self.application.discard(self.checkpoint.snapshots())


def attempt(apply: Callable[[], Value], quarantine: Callable[[str], Value]) -> Value:
    """Return the result of applying rows, or of quarantining them with the reason if that fails.

    Errors that are not the fault of the rows are raised.
    """
    try:
        return apply()
    except (BaryflowError, OSError, MemoryError):
        raise
    except Exception as error:
        return quarantine(f"applying it failed: {describe_error(error)}")


def resume_config(config: SessionConfig, checkpoint: Checkpoint) -> tuple[SessionConfig, str]:
    """Return the configuration with the model that the checkpoint was made with, and a warning.

    The warning is empty if that is the given model.
    """
    given = config.base.to_bytes()
    kept = checkpoint.keep_model(given)
    if kept == given:
        return config, ""
    base: Any = open_content(container.from_bytes(kept))
    if _columns(base) != _columns(config.base):
        raise InvalidInputError(
            f"cannot resume: {checkpoint.folder} was made with a model of other columns; use that "
            "model, or another folder"
        )
    warning = (
        f"{checkpoint.folder} was made with another model, which is used instead of the given one; to "
        "use the given one, use another folder"
    )
    return replace(config, base=base), warning


def _columns(base: Any) -> list[str] | int:
    """Return the names of the columns that a model expects, or their number."""
    names = getattr(base, "feature_names_in_", None)
    return int(getattr(base, "model", base).n_features_in_) if names is None else list(names)
