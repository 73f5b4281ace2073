"""Parts of committed epochs under the names that their targets have in the job file today.

::

    part of an epoch ─► the table's id ─► its place ─► its name     whichever tells first whose it is
                    └─► no id: its data files, then those           (and its data files, where none of these does)

A target is identified by its table; the name is a label in the job file, which people change, and may give to another
table. A manifest keeps the name at its time, and the table and place for which each part was prepared
(`sinks.held.Base`). A part that was prepared before its table existed has no id, and belongs to the target that has its
data files: another table may be at its place today. If others have rewritten these files, the part belongs to the table
that the next part of its name and place names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ingest.protocol.job import JobContext
from sinks.held import base_of, contents_of
from timeline.epoch import Manifest, Part
from timeline.errors import TargetRefusedError


@dataclass(frozen=True)
class Named:
    """A committed epoch, with its parts under the names of today.

    Attributes:
        manifest: its parts have the names of the job file; a part of no target in it has a name of no target.
        then: by a target's current name, the name that it had in this epoch.
    """

    manifest: Manifest
    then: Mapping[str, str]


def named_today(job: JobContext, manifests: Sequence[Manifest]) -> list[Named]:
    """Committed epochs with their parts under the current names, in their order.

    Args:
        job: the job.
        manifests: manifests of some epochs, oldest first; later ones name the tables that earlier ones have created.

    Raises:
        StoreUnavailableError: a target cannot be read.
    """
    targets = _targets(job)
    ids: dict[tuple[str, str], str] = {}
    named = [_named(targets, ids, manifest) for manifest in reversed(manifests)]
    return named[::-1]


def under_current_names(job: JobContext, manifest: Manifest) -> Manifest:
    """One epoch with its parts under the current names; see `named_today`."""
    return named_today(job, [manifest])[0].manifest


@dataclass(frozen=True)
class _Target:
    """A target of the job file.

    Attributes:
        job: the job that it belongs to.
        name: its name.
        place: where it lies; "" if its place does not identify it.
        table: its table's id; None if it has no table.
    """

    job: JobContext
    name: str
    place: str = ""
    table: str | None = None

    def has_files_of(self, part: Part) -> bool:
        """Whether the target has data files of a part; no two files have one name."""
        return self.place != "" and has_files_of(self.job, self.name, part)


def has_files_of(job: JobContext, target: str, part: Part) -> bool:
    """Whether a target has data files of a part; False for a part without files.

    Args:
        job: the job.
        target: the target's name today.
        part: a part of any epoch.
    """
    return len(job.problems_of(target, part)) < len(part.files)


def _targets(job: JobContext) -> list[_Target]:
    found = []
    for sink in job.sinks:
        contents = contents_of(sink)
        if contents is None or not contents.place:
            found.append(_Target(job, sink.target))
            continue
        table = None
        with contextlib.suppress(TargetRefusedError):  # the error is reported where the table is needed
            table = contents.held().table
        found.append(_Target(job, sink.target, contents.place, table))
    return found


def _named(targets: Sequence[_Target], ids: dict[tuple[str, str], str], manifest: Manifest) -> Named:
    """One epoch; `ids` holds the tables' ids of later epochs, by place and name, and receives those of this one."""
    claims = sorted(
        (claim for part in manifest.parts for claim in _claims(targets, ids, part)), key=lambda claim: claim.weakness
    )
    names: dict[str, str] = {}
    for claim in claims:
        if claim.then not in names and claim.target not in names.values():
            names[claim.then] = claim.target
    for part in manifest.parts:
        if part.target not in names:
            free = (target for target in targets if target.name not in names.values())
            owner = next((target for target in free if target.has_files_of(part)), None)
            if owner is not None:
                names[part.target] = owner.name
    today = {target.name for target in targets}
    parts = tuple(
        replace(part, target=names.get(part.target) or _nobodys(part.target, today)) for part in manifest.parts
    )
    return Named(replace(manifest, parts=parts), {target: then for then, target in names.items()})


@dataclass(frozen=True)
class _Claim:
    """Claim that a part, by its name then, belongs to a target; a lower weakness is a stronger claim."""

    weakness: int
    then: str
    target: str


def _claims(targets: Sequence[_Target], ids: dict[tuple[str, str], str], part: Part) -> Iterable[_Claim]:
    base, place = base_of(part), _place(part)
    own = base.table if base is not None else None
    holders = [] if own is not None else [target.name for target in targets if target.has_files_of(part)]
    table = ids.get((place, part.target)) if own is None else own
    if table is not None:
        ids[place, part.target] = table
    for target in targets:
        is_there, is_called_so = place != "" and target.place == place, target.name == part.target
        if target.name in holders if holders else table is not None and target.table == table:
            # A copy of a table has the same id and files: the table at the same place comes first.
            yield _Claim(0 if is_there else 1 if is_called_so else 2, part.target, target.name)
        elif holders:
            continue
        elif is_there:
            yield _Claim(3, part.target, target.name)
        elif is_called_so:
            yield _Claim(4, part.target, target.name)


def _place(part: Part) -> str:
    base = base_of(part)
    return base.place if base is not None else ""


def _nobodys(then: str, today: Iterable[str]) -> str:
    """The name for a part of a table that the job file no longer has."""
    return f"{then} (as it was)" if then in today else then


def part_of(manifest: Manifest, target: str) -> Part | None:
    """A target's part of an epoch; None if it has none."""
    return next((part for part in manifest.parts if part.target == target), None)


def quarantine_of(manifest: Manifest) -> str:
    """The quarantine's name in an epoch: its part is the last one, as the quarantine is applied last."""
    return manifest.parts[-1].target
