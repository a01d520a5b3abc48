"""Everything that is played with a chain: scenes with what court and panel make of them, pairs of a
verifier and its jurors, and hearings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gallery import BEFORE_A_PANEL, NAMES, SCENES, Judge, show
from hearings import HEARINGS, heard
from panelroom import PanelRoom
from stage import Row, Scene


@dataclass(frozen=True)
class Plea:
    """A scene's lie, before a panel some of which lie too, or to which V says nothing."""

    name: str
    role: str
    scene: str
    lying: int = 0
    silent: bool = False


PLEAS = (
    Plea("one juror lies for it", "verifier and auditor", "shading by 2 %", lying=1),
    Plea("most of a panel lies for it", "verifier and auditor", "shading by 2 %", lying=2),
    Plea("silent before the panel", "verifier", "shading by 2 %", silent=True),
)
ALL_NAMES = (*NAMES, *(plea.name for plea in PLEAS), *(hearing.name for hearing in HEARINGS))


def tried(room: PanelRoom, scene: Scene, judge: Judge, seed: int = 5) -> Row:
    """One scene, and before court or panel whatever was found."""
    row, played = show(scene, judge, seed)
    if played.proofs:
        row = room.ruled(row, scene, played)
    if row.caught and (scene, judge) in BEFORE_A_PANEL:
        return room.judged(row, scene, played)
    return row if played.proofs else room.paid(row, scene, played)


def pleaded(room: PanelRoom, plea: Plea, seed: int = 5) -> Row:
    scene, judge = SCENES[NAMES.index(plea.scene)]
    row, played = show(scene, judge, seed)
    row = room.judged(row, scene, played, lying=plea.lying, silent=plea.silent)
    return replace(
        row, adversary=plea.name, role=plea.role, fault="F7" if plea.silent else row.fault
    )


def trials(room: PanelRoom, only: str | None = None, seed: int = 5) -> Iterator[Row]:
    """Every adversary's row, in the gallery's order."""
    for scene, judge in SCENES:
        if only in (None, scene.name):
            yield tried(room, scene, judge, seed)
    for plea in PLEAS:
        if only in (None, plea.name):
            yield pleaded(room, plea, seed)
    for hearing in HEARINGS:
        if only in (None, hearing.name):
            yield heard(room, hearing)
