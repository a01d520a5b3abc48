"""Plants faults in the engine, one by one, and demands that the test named for each one fails.

    python scripts/mutants.py            # all; about five minutes
    python scripts/mutants.py --only kv  # those whose name contains "kv"
    python scripts/mutants.py --list

The faults are those seen in the best public projects, and more of our own. Each is planted in a
copy of the sources, never in place. First every test that is named must pass on the unchanged copy.
Exit status 1 if a mutant survives, or a fault no longer fits its source.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
UNIT: Final = "tests/unit/"
# Seconds; a mutant that makes a test hang is found too.
PATIENCE: Final = 300


@dataclass(frozen=True)
class Mutant:
    """A fault: in `path`, `old` (which occurs once) becomes `new`; `test` must then fail."""

    name: str
    path: str
    old: str
    new: str
    test: str


_ENGINE: Final = "node/inference/"
MUTANTS: Final = (
    # What a drafter declares, and what it drew from.
    Mutant(
        "greedy-draft-with-softmax-q",
        _ENGINE + "model_drafter.py",
        "        return kept, token_at(kept, w)",
        "        return kept, max(kept, key=lambda pair: pair[1])[0]",
        "test_engine_rejection.py::test_an_honest_draw_is_where_the_coin_falls",
    ),
    Mutant(
        "q-before-temperature",
        _ENGINE + "model_drafter.py",
        "        scores = sampling.fixed_point(z, params.score_temperature)",
        "        scores = sampling.fixed_point(z, 1 << 16)",
        "test_engine_drafters.py::test_the_targets_processors_apply_to_the_draft",
    ),
    Mutant(
        "q-recomputed-not-the-one-drawn-from",
        _ENGINE + "model_drafter.py",
        "        kept = kept_list(self._drafter.ids[columns], masses)\n",
        "        kept = kept_list(self._drafter.ids[columns], masses)\n"
        "        sharper = masses_from_probabilities(p * p, columns)\n"
        "        sharper = kept_list(self._drafter.ids[columns], sharper)\n"
        "        w0 = draw_coin(coin.chain_value, self.seed, coin.context_hash, position)\n"
        "        return kept, token_at(sharper, w0)\n",
        "test_engine_rejection.py::test_an_honest_draw_is_where_the_coin_falls",
    ),
    Mutant(
        "penalties-on-the-target-only",
        _ENGINE + "model_drafter.py",
        "        z = sampling.penalised(\n"
        "            logits, params, self._history, ahead, first=len(ahead), "
        "columns=drafter.columns\n        )\n",
        "        z = logits.double()\n",
        "test_engine_drafters.py::test_the_targets_processors_apply_to_the_draft",
    ),
    Mutant(
        "penalties-forget-the-window",
        _ENGINE + "rows.py",
        "    z = sampling.penalised(logits, params, history, drafts)",
        "    z = sampling.penalised(logits, params, history)",
        "test_engine_trajectory.py::test_text_equals_plain_decoding",
    ),
    Mutant(
        "padded-or-reordered-ids-unchecked",
        _ENGINE + "tokens.py",
        "        if ours != theirs:\n            raise TokenizerMismatch(",
        "        if False:\n            raise TokenizerMismatch(",
        "test_engine_tokens.py::test_reordered_ids_of_equal_count_are_refused",
    ),
    # The rule.
    Mutant(
        "residual-without-clamp",
        "settlement/masses.py",
        "np.where(p > q, p - q, np.uint64(0))",
        "p - q",
        "test_engine_rejection.py::test_every_emitted_token_has_the_targets_law",
    ),
    Mutant(
        "residual-of-no-mass",
        "settlement/masses.py",
        "    return rest if bool(rest.any()) else p\n",
        "    return rest\n",
        "test_masses.py::test_without_residual_mass_p_itself_is_drawn",
    ),
    Mutant(
        "no-residual-at-all",
        "settlement/masses.py",
        "    return sample_masses(residual_masses(p, q), coin)",
        "    return sample_masses(p, coin)",
        "test_engine_rejection.py::test_joint_sequences_follow_the_target",
    ),
    Mutant(
        "a-draft-without-mass-is-accepted",
        "settlement/masses.py",
        "    return q > 0 and u * q < p << 64",
        "    return u * q < p << 64",
        "test_engine_rejection.py::test_a_draft_that_q_gives_no_mass_is_never_accepted",
    ),
    Mutant(
        "bonus-from-the-wrong-row",
        "settlement/acceptance.py",
        "        position, row = base + index, rows[index]\n",
        "        position, row = base + index, rows[min(index, max(len(drafts) - 1, 0))]\n",
        "test_engine_trajectory.py::test_text_equals_plain_decoding",
    ),
    Mutant(
        "first-draft-never-checked",
        "settlement/acceptance.py",
        "        outcomes.append(outcome)\n",
        "        if index == 0 and draft is not None:\n"
        "            from dataclasses import replace\n"
        "            outcome = replace(outcome, token=draft.token, accepted=True)\n"
        "        outcomes.append(outcome)\n",
        "test_engine_trajectory.py::test_text_equals_plain_decoding",
    ),
    Mutant(
        "relaxed-at-key-positions",
        "settlement/acceptance.py",
        "    return tau > 0 and not key and score_draft >= score_top - tau",
        "    return tau > 0 and score_draft >= score_top - tau",
        "test_acceptance.py::test_key_positions_are_strict",
    ),
    Mutant(
        "noise-of-the-next-position",
        _ENGINE + "verifier.py",
        "            session.terms,\n            base,\n",
        "            session.terms,\n            base + (base > 0),\n",
        "test_engine_trajectory.py::test_text_equals_plain_decoding",
    ),
    Mutant(
        "noise-bounded-too-low",
        _ENGINE + "choice.py",
        "            largest.append((1 << 64) - 1 - (least << 32))",
        "            largest.append((1 << 64) - 1 - min(least << 33, (1 << 64) - 1))",
        "test_choice.py::test_no_noise_of_a_class_exceeds_its_bound",
    ),
    Mutant(
        "equal-scores-to-the-highest-id",
        _ENGINE + "choice.c",
        "(sum == most && first + i < at_best)",
        "(sum == most && first + i > at_best)",
        "test_choice.py::test_ties_go_to_the_lowest_id",
    ),
    # Ends of an output.
    Mutant(
        "eos-inside-the-window-passed-over",
        "settlement/acceptance.py",
        "            outcome.token in terms.stop_ids\n",
        "            (outcome.token in terms.stop_ids and not outcome.accepted)\n",
        "test_engine_stops.py::test_stop_at_every_window_position",
    ),
    Mutant(
        "stop-string-inside-the-window-passed-over",
        _ENGINE + "verifier.py",
        "            session.scanner.completes_string if session.stops.strings else None,\n",
        "            None,\n",
        "test_engine_stops.py::test_stop_at_every_window_position",
    ),
    Mutant(
        "max-tokens-passed-over",
        "settlement/acceptance.py",
        "            or position + 1 >= terms.max_tokens\n",
        "",
        "test_engine_stops.py::test_a_full_accept_that_reaches_max_tokens_emits_no_bonus",
    ),
    Mutant(
        "figures-leak-past-the-stop",
        _ENGINE + "verifier.py",
        "            hidden = rows.hidden[: len(emitted)].cpu().numpy()",
        "            hidden = rows.hidden.cpu().numpy()",
        "test_engine_stops.py::test_stop_at_every_window_position",
    ),
    # Caches.
    Mutant(
        "draft-kv-one-short-after-a-full-accept",
        _ENGINE + "model_drafter.py",
        "        missing = [*self.tokens, *ahead][self._cache.length :]\n",
        "        missing = [*self.tokens, *ahead][self._cache.length :]\n"
        "        missing = missing[-1:] if self._cache.length else missing\n",
        "test_engine_drafters.py::test_proposals_after_any_history_equal_a_fresh_sessions",
    ),
    Mutant(
        "kv-not-cropped-after-a-reject",
        _ENGINE + "verifier.py",
        "            session.cache.truncate(len(session.tokens) - 1)\n"
        "        session.history.commit(emitted)\n",
        "            session.cache.truncate(min(session.cache.length, len(session.tokens)))\n"
        "        session.history.commit(emitted)\n",
        "test_engine_trajectory.py::test_text_equals_plain_decoding",
    ),
    Mutant(
        "row-ahead-used-after-a-wrong-guess",
        _ENGINE + "own_lookup.py",
        "bool(self.rows) and self.rows[0][0] == emitted[0]",
        "bool(self.rows)",
        "test_own_lookup.py::test_the_text_is_the_targets_and_every_round_has_one_token",
    ),
    Mutant(
        "rows-ahead-kept-under-a-draft",
        _ENGINE + "verifier.py",
        "                session.ahead.forget()\n"
        "                session.cache.truncate(len(session.tokens) - 1)\n",
        "                session.ahead.forget()\n",
        "test_own_lookup.py::test_drafts_may_come_at_any_time",
    ),
    Mutant(
        "crop-to-zero-misread",
        _ENGINE + "paged.py",
        'cannot truncate a cache of {self.length} tokens to {length}")\n'
        "        self.length = length\n",
        'cannot truncate a cache of {self.length} tokens to {length}")\n'
        "        self.length = length or self.length\n",
        "test_engine_paged.py::test_after_any_rollback_logits_equal_a_fresh_prefill",
    ),
    Mutant(
        "rollback-keeps-the-penalties",
        _ENGINE + "verifier.py",
        "        session.history = History(prompt, output)\n",
        "",
        "test_engine_trajectory.py::test_rollback_of_a_session_repeats_the_same_outcome",
    ),
    Mutant(
        "shared-blocks-written-in-place",
        _ENGINE + "paged.py",
        "        if self._references[block] == 1:\n",
        "        if True:\n",
        "test_engine_paged.py::test_writing_where_another_reads_copies",
    ),
    Mutant(
        "blocks-found-by-their-own-tokens-alone",
        _ENGINE + "paged.py",
        "        key = hashlib.sha256(key + words[end - BLOCK : end].tobytes()).digest()",
        "        key = hashlib.sha256(salt + words[end - BLOCK : end].tobytes()).digest()",
        "test_engine_paged.py::test_nothing_is_shared_across_salts_or_different_beginnings",
    ),
    Mutant(
        "blocks-shared-between-clients",
        _ENGINE + "paged.py",
        '                key, salted = hashlib.sha256(b"salt" + key + salt).digest(), True',
        '                key, salted = hashlib.sha256(b"salt" + key).digest(), True',
        "test_engine_serving.py::test_sessions_of_one_client_share_what_they_begin_with",
    ),
    Mutant(
        "every-beginning-is-public",
        _ENGINE + "paged.py",
        "        open_to_all = int(differ[0]) if len(differ) else len(public)",
        "        open_to_all = len(public)",
        "test_engine_paged.py::test_what_is_public_is_shared_across_salts_and_nothing_behind_it",
    ),
    Mutant(
        "changed-blocks-stay-published",
        _ENGINE + "paged.py",
        "            self._unpublish(block)\n            return block\n",
        "            return block\n",
        "test_engine_paged.py::test_writing_into_a_published_block_takes_it_out_of_the_index",
    ),
    Mutant(
        "windows-see-the-next-draft",
        _ENGINE + "llama.py",
        "    return mask.triu_(past + 1).repeat(group, 1)",
        "    return mask.triu_(past + 2).repeat(group, 1)",
        "test_engine_model.py::test_logits_equal_the_textbook",
    ),
    # Many sessions, and drafting ahead.
    Mutant(
        "rows-of-another-session",
        _ENGINE + "verifier.py",
        "zip(spans.items(), rows[: len(spans)], strict=True)",
        "zip(spans.items(), rows[1 : len(spans)] + rows[:1], strict=True)",
        "test_engine_trajectory.py::test_batched_sessions_say_what_each_says_alone",
    ),
    Mutant(
        "drafts-of-another-session",
        _ENGINE + "drafter.py",
        "zip(group.items(), rows, strict=True)",
        "zip(group.items(), rows[::-1], strict=True)",
        "test_draft_together.py::test_sessions_drafted_together_draft_what_each_would_alone",
    ),
    Mutant(
        "surplus-kept-after-a-mismatch",
        _ENGINE + "drafter.py",
        "        kept = self._ahead[match:] if match == len(emitted) else []\n",
        "        kept = self._ahead[match:]\n",
        "test_engine_drafters.py::test_proposals_after_any_history_equal_a_fresh_sessions",
    ),
    Mutant(
        "drafted-ahead-in-rejection-mode",
        _ENGINE + "drafter.py",
        "        if self.params.mode != Mode.REJECTION:\n            self._extend(n, None)\n",
        "        self._extend(n, None)\n",
        "test_engine_drafters.py::test_nothing_is_drafted_ahead_in_rejection_mode",
    ),
    Mutant(
        "survival-taken-for-acceptance",
        _ENGINE + "window.py",
        "            self._rejects = decay * self._rejects + done.rejected\n",
        "            self._rejects = decay * self._rejects + done.drafts - done.accepted\n",
        "test_window.py::test_alpha_is_conditional_and_forgets",
    ),
    Mutant(
        "constant-verify-cost",
        _ENGINE + "window.py",
        "        verify = self.cost.seconds(k + 1)\n",
        "        verify = self.cost.seconds(1)\n",
        "test_window.py::test_the_known_optima_are_found",
    ),
    Mutant(
        "choice-changes-by-asking",
        _ENGINE + "window.py",
        '        self._why = "fastest"\n        return best\n',
        '        self._why = "fastest"\n        self._accepts += 0.5\n        return best\n',
        "test_window.py::test_choice_depends_on_past_rounds_only",
    ),
)


def copy_sources(into: Path) -> None:
    """What the tests need, without what is built or large."""
    skip = shutil.ignore_patterns("__pycache__", "*.pyc", "out", "cache")
    for name in ("node", "settlement", "scripts", "tests/unit"):
        shutil.copytree(ROOT / name, into / name, ignore=skip)
    for path in (*(ROOT / "tests").glob("*.py"), ROOT / "pyproject.toml", ROOT / "README.md"):
        target = into / path.relative_to(ROOT)
        target.write_bytes(path.read_bytes())


def passes(folder: Path, tests: Sequence[str]) -> bool:
    """Whether all the tests pass in a copy of the sources."""
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-m", "not slow"]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        done = subprocess.run(
            [*command, *(UNIT + test for test in tests)],
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1):  # 1: tests failed; more: nothing was tested
        raise SystemExit(f"{tests}: pytest says {done.returncode}\n{done.stdout.decode()[-2000:]}")
    return done.returncode == 0


def plant(mutant: Mutant, folder: Path) -> str:
    """Puts the fault in; returns the source as it was."""
    path = folder / mutant.path
    source = path.read_text()
    if source.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.name}: its text occurs {source.count(mutant.old)} times")
    path.write_text(source.replace(mutant.old, mutant.new))
    return source


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="only say what would be planted")
    parser.add_argument("--only", default="", metavar="TEXT", help="names that contain this")
    args = parser.parse_args(argv)
    chosen = [mutant for mutant in MUTANTS if args.only in mutant.name]
    if args.list:
        for mutant in chosen:
            print(f"{mutant.name:45} {mutant.test}")
        return 0
    survivors = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_sources(folder)
        if not passes(folder, sorted({mutant.test for mutant in chosen})):
            raise SystemExit("the tests fail without any mutant")
        for number, mutant in enumerate(chosen, start=1):
            source = plant(mutant, folder)
            killed = not passes(folder, [mutant.test])
            (folder / mutant.path).write_text(source)
            print(
                f"{number}/{len(chosen)} {'killed' if killed else 'SURVIVED':8} {mutant.name}",
                flush=True,
            )
            if not killed:
                survivors.append(mutant.name)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
