"""Every adversary is caught, and nobody honest is accused of it or pays for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cast_drafters as drafters
import pytest
from gallery import BEFORE_THE_COURT, NAMES, SCENES, show
from stage import Scene

from settlement.records import Mode

# What the client keeps under these is V's word, which only a second run of the target refutes.
V_LIES_IN_TEXT = {
    "retaliating",
    "shading by 2 %",
    "accepts everything",
    "smaller model",
    "24 of 30 layers",
    "3-bit weights",
    "cheap tokens, honest prefill",
    "steering text",
    "sinking the drafter",
}


# One of each kind of evidence; the others are slow together.
QUICK = ("equivocating", "honest q, other token", "shading by 2 %", "second verdict", "forged seed")


def _marked(name: str) -> object:
    return name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.parametrize("name", list(map(_marked, NAMES)))
def test_it_is_caught(name: str) -> None:
    scene, judge = SCENES[NAMES.index(name)]
    row, _ = show(scene, judge)
    assert row.caught, row
    assert row.outcome in ("refused", "found", "unprofitable")
    assert row.honest_slashed == 0
    assert row.text_intact == (name not in V_LIES_IN_TEXT)


@pytest.mark.slow
def test_the_court_slashes_half_for_each_proof_and_spares_the_others(tmp_path: Path) -> None:
    from courtroom import STAKE, opened  # the chain's libraries, which no quick test needs

    with opened(tmp_path) as room:
        for scene, judge in BEFORE_THE_COURT:
            row, played = show(scene, judge)
            assert played.proofs, scene.name
            ruled = room.ruled(row, scene, played)
            assert ruled.outcome == "slashed", ruled
            # Half for the first fault, half of what is left for the next.
            assert ruled.slashed >= STAKE // 2
            assert ruled.slashed == STAKE - STAKE // 2 ** len(played.proofs)
            assert ruled.honest_slashed == 0
            assert ruled.all_withdrew, "everybody honest leaves with all that is his"


# One of each kind of second run; the others come before the panel in scripts/gallery.py --court.
BEFORE_THE_PANEL = ("shading by 2 %", "cheap tokens, honest prefill", "lying q")


@pytest.mark.slow
def test_panels_and_juries_slash_the_guilty_alone_and_give_victims_what_they_paid(
    tmp_path: Path,
) -> None:
    from courtroom import STAKE
    from hearings import HEARINGS, heard
    from panelroom import opened
    from trials import PLEAS, pleaded, tried

    with opened(tmp_path) as room:
        for name in BEFORE_THE_PANEL:
            row = tried(room, *SCENES[NAMES.index(name)])
            assert row.outcome == "slashed", row
            assert row.slashed >= STAKE // 2
            assert row.victim_recovered > 0
            assert row.text_intact, "or the client has its money back"
            assert row.honest_slashed == 0
            assert row.all_withdrew, row
        for plea in PLEAS:
            row = pleaded(room, plea)
            assert row.slashed >= STAKE // 2, row
            assert row.honest_slashed == 0
        for hearing in HEARINGS:
            row = heard(room, hearing)
            assert row.caught, row
            assert (row.outcome == "slashed") == (row.slashed > 0), row
            assert row.outcome in ("slashed", "refused", "unprofitable"), row
            assert row.honest_slashed == 0, row
            assert row.all_withdrew, row
        # What the panel would make of a target that says what it should.
        scene, judge = SCENES[NAMES.index("flooding")]
        row, played = show(scene, judge)
        assert room.judged(row, scene, played).slashed == 0
        # Who stays with something in the contracts is seen.
        with room.anvil.rolled_back():
            assert not _leaving_without(room, played).all_withdrew


def _leaving_without(room: Any, played: Any) -> Any:
    """Everybody leaves, and one verifier forgets its stake."""
    from leaving import Leaving
    from panelroom import AUDITORS, Hall

    from settlement.chain.contracts import Role

    hall = Hall(room.contracts, room.anvil, room.folder / "forgetful")
    verifier = played.nodes["verifier"]
    hall.fund("verifier", verifier.key, Role.VERIFIER)

    class Forgetful(Leaving):
        def send(self, call: Any, who: bytes = AUDITORS[0]) -> bool:
            return who == verifier.key or super().send(call, who)

    keys = [*(node.key for node in played.nodes.values()), *AUDITORS]
    return Forgetful(room.contracts, room.anvil, hall.folder, keys)({verifier.address})


@pytest.mark.slow
@pytest.mark.parametrize("mode", [Mode.GREEDY, Mode.COUPLED, Mode.REJECTION])
def test_honest_parties_look_like_no_adversary(mode: Mode) -> None:
    """Judges that find something in everything would find it here."""
    wishes = {"temperature": 0} if mode == Mode.GREEDY else {}
    for role in ("drafter", "verifier"):
        played = Scene("honest", role, mode, wishes=wishes).play(5)
        assert played.faults == set()
        assert played.mismatches == played.farthest == played.redrafted == 0
        assert played.outcome is not None
        assert played.text_is_the_targets()
        for scene, judge in SCENES:
            if scene.mode == mode and scene.role == role and judge.__name__ == "judge":
                assert judge(played, scene).caught == "", scene.name


@pytest.mark.slow
@pytest.mark.parametrize("seed", [5, 8, 13])
def test_a_biased_drafter_changes_no_byte_of_the_text(seed: int) -> None:
    wanted = Scene("biased", "drafter", drafter=drafters.biased).play(seed)
    assert wanted.outcome is not None
    assert wanted.text_is_the_targets()
    proposed = [
        leaf.token
        for served in wanted.sessions
        for done in served.rounds
        if done.draft
        for leaf in done.draft.leaves
    ]
    # It did try.
    assert sum(token in drafters.WANTED for token in proposed) > len(proposed) / 2
