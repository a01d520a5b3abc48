"""The study in words and columns, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from node.economics import expected
from node.economics.expected import Deviation
from node.economics.play import Table
from node.economics.report import FAILS_BY, OURS, TEXTBOOK, Matrix, Study
from node.economics.strategies import COUPLED, DRAFTERS, HONEST, MODES, VERIFIERS

_TOKEN = 10**18
_WHAT = {
    **{("drafter", one.name): one.what for one in DRAFTERS},
    **{("verifier", one.name): one.what for one in VERIFIERS},
}


def lines(found: Study, matrix_mode: str = COUPLED) -> list[str]:
    """Everything, in the order in which an argument would go."""
    return [
        *_setting(found),
        "",
        *_rules_alone(found),
        "",
        *_failures(found),
        "",
        *_matrix(found.ours(matrix_mode)),
        "",
        *_best_replies(found),
        "",
        *_lies(found),
        "",
        *_others(found),
        "",
        *_inequality(found),
        "",
        *_bias(found),
        "",
        *_limits(found),
        "",
        *_closing(found),
    ]


def _columns(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Columns as wide as their widest cell; the first `left` of them flush left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _setting(found: Study) -> Iterator[str]:
    matrix = found.ours(COUPLED)
    table, market = matrix.table, matrix.table.market
    costs, played = market.costs, matrix.cells[HONEST, HONEST]
    yield "SETTING"
    for mode in MODES:
        pair = found.options.pairs[mode]
        mean = pair.mean(market.length)
        yield f"{mode} acceptance: {pair.source}, mean {mean:.3f} over {market.length} tokens"
    yield (
        f"costs in target passes: a draft token {costs.draft_token / costs.target_pass:g}, "
        f"a further row {costs.target_row / costs.target_pass:g}; {market.window} drafts a round; "
        f"prices {market.margin:.0%} over honest costs"
    )
    yield (
        f"a batch: {market.sessions} sessions of {market.length} tokens, settled every "
        f"{table.terms.settle_seconds / 86400:g} days; stakes "
        f"{table.stakes.drafter / _TOKEN:,.0f} (D) and {table.stakes.verifier / _TOKEN:,.0f} (V) "
        f"stake tokens; honest: {played.passes:.0f} passes per 1,000 tokens"
    )
    yield (
        f"{table.terms.corrupt:.0%} of the auditors' stake lies for whoever asks; "
        f"seed {found.options.seed}, {table.batches} batches a pairing"
    )
    yield "payoffs below: target passes per 1,000 output tokens"


def _rules_alone(found: Study) -> Iterator[str]:
    """What each payment rule rewards when nobody looks: earned, less honest, before punishment."""
    yield "WHAT EACH RULE REWARDS BY ITSELF (gain over honest play, nothing staked or audited)"
    models = (*TEXTBOOK, OURS)
    rows = [["", *(model.value for model in models)]]
    first = found.matrices[OURS, COUPLED]
    for lie in first.lies:
        cells = []
        for model in models:
            matrix = found.matrices[model, COUPLED]
            key = (lie.name, HONEST) if lie.role == "drafter" else (HONEST, lie.name)
            honest, played = matrix.cells[HONEST, HONEST], matrix.cells[key]
            gain = (
                played.earned_drafter - honest.earned_drafter
                if lie.role == "drafter"
                else played.earned_verifier - honest.earned_verifier
            )
            cells.append(f"{gain:+.0f}" if abs(gain) >= 0.5 else "0")
        rows.append([f"{lie.role[0].upper()} {lie.name}", *cells])
    yield from _columns(rows)


def _failures(found: Study) -> Iterator[str]:
    yield "HOW EACH TEXTBOOK MODEL FAILS"
    for model in TEXTBOOK:
        matrix = found.matrices[model, COUPLED]
        role, name = FAILS_BY[model]
        key = (name, HONEST) if role == "drafter" else (HONEST, name)
        lie, honest = matrix.cells[key], matrix.cells[HONEST, HONEST]
        gain = getattr(lie, role) - getattr(honest, role)
        replies = ", ".join(f"{r} {matrix.best_reply(r)[0]}" for r in ("drafter", "verifier"))
        ends = "; ".join(f"({d}, {v})" for d, v in matrix.equilibria()) or "none in pure strategies"
        yield (
            f"{model.value}: {role} '{name}' ({_WHAT[role, name]}) gains {gain:+.0f}; "
            f"α {honest.alpha:.2f} → {lie.alpha:.2f}, passes {honest.passes:.0f} → "
            f"{lie.passes:.0f}, text intact {lie.intact:.0%}"
        )
        yield f"  best replies to honest play: {replies}; equilibria: {ends}"


def _matrix(matrix: Matrix) -> Iterator[str]:
    yield f"PAYOFFS UNDER OURS, {matrix.table.mode} mode (drafter / verifier, slashes included)"
    names_v = list(dict.fromkeys(v for _, v in matrix.cells))
    for start in range(0, len(names_v), 5):
        some = names_v[start : start + 5]
        rows = [["D \\ V", *some]]
        for d in dict.fromkeys(d for d, _ in matrix.cells):
            cells = [matrix.cells[d, v] for v in some]
            rows.append([d, *(f"{c.drafter:,.0f} / {c.verifier:,.0f}" for c in cells)])
        yield from _columns(rows)
        yield ""


def _best_replies(found: Study) -> Iterator[str]:
    yield "BEST REPLIES UNDER OURS, everybody else honest"
    for mode in MODES:
        matrix = found.ours(mode)
        for role in ("drafter", "verifier"):
            best, _ = matrix.best_reply(role)
            nearest, short = matrix.margin(role)
            yield f"{mode:<10}{role:<9} {best:<8} next: {nearest} ({-short:+.1f})"
    for role in ("client", "auditor", "pair"):
        rows = [row for row in found.rows if row.role == role and row.name != HONEST]
        worst = max(rows, key=lambda row: row.net)
        best = HONEST if worst.net <= 1e-9 else worst.name
        yield f"{'':<10}{role:<9} {best:<8} next: {worst.name} ({worst.net / _TOKEN:+.2f} tokens)"


def _lies(found: Study) -> Iterator[str]:
    yield "WHAT TEMPTS, AND WHAT IT MEETS (stake tokens per batch; stakes in batches' dues)"
    rows = [
        [
            "", "gain", "net", "fault", "chance of a draw", "break-even chance", "break-even stake",
            "has", "loss / gain, one big batch",
        ]
    ]  # fmt: skip
    for mode in MODES:
        matrix = found.ours(mode)
        for lie in matrix.lies:
            if lie.tempts and (mode == COUPLED or lie.role == "drafter"):
                rows.append(_lie(matrix.table, lie))
    yield from _columns(rows)
    for mode in MODES:
        matrix = found.ours(mode)
        chance, by = expected.flat_rate_limit(matrix.table, matrix.lies)
        yield (
            f"break-even audit rate, {mode}: {chance:.2%} of lanes if all were drawn alike ({by}); "
            f"the deployed least rate is {matrix.table.terms.draw.base_rate / 2**32:.2%}"
        )


def _lie(table: Table, lie: Deviation) -> list[str]:
    net = lie.net(table.terms, table.stakes)
    even = expected.break_even_chance(table, lie)
    least = expected.break_even_stake(table, lie)
    big = expected.largest_batch(table, lie)
    return [
        f"{lie.role[0].upper()} {lie.name}{'' if lie.mode == COUPLED else ' (rejection)'}",
        f"{lie.gain / _TOKEN:+.2f}",
        f"{net / _TOKEN:+.1f}",
        lie.fault,
        f"{lie.chance(table.terms, table.stakes):.2%}",
        "—" if even is None else f"{even:.2%}",
        "—" if least is None else f"{least:.2f}",
        f"{lie.stake(table.stakes) / max(lie.revenue, 1):.0f}",
        "—" if big is None else f"{big:.2f}",
    ]


def _others(found: Study) -> Iterator[str]:
    yield "CLIENTS, AUDITORS AND PAIRS (stake tokens; net beyond honest play)"
    rows = [["", "gain", "net", "met by", "ends"]]
    for row in found.rows:
        if row.name != HONEST:
            rows.append(
                [
                    f"{row.role}: {row.name}",
                    f"{row.gain / _TOKEN:+.2f}",
                    f"{row.net / _TOKEN:+.2f}",
                    row.caught,
                    row.breaks,
                ]
            )
    width = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        yield (
            f"{row[0]:<{width[0]}}  {row[1]:>{width[1]}}  {row[2]:>{width[2]}}  "
            f"{row[3]:<{width[3]}}  {row[4]}"
        ).rstrip()
    spent = found.audit
    yield (
        f"audits cost {spent.share:.2%} of what the lane's inference costs both payees "
        f"({spent.audits:.2%} by messages, {spent.tickets:.2%} on chain, panels "
        f"{spent.panels:.2%}; batch of {spent.batch_tokens:,} tokens, a draw with chance "
        f"{spent.chance:.2%}, {found.options.terms.auditors} auditors each)"
    )


def _inequality(found: Study) -> Iterator[str]:
    yield "DETECTION × SLASH OVER THE WORST REVENUE OF A BATCH (at least 2 is asked for)"
    rows = [["stake / what it answers for", "chance", "ratio", "with corrupt auditors and juries"]]
    for cover in found.covers:
        rows.append(
            [
                f"{cover.cover:g}",
                f"{cover.chance:.2%}",
                f"{cover.ratio:.2f}",
                f"{cover.judged:.2f}",
            ]
        )
    yield from _columns(rows)


def _bias(found: Study) -> Iterator[str]:
    yield (
        f"A BIASED DRAFTER (own choice at a share of ambiguous positions; {found.options.seeds} "
        f"seeds; proposals until the first flag, up to {found.biases[0].horizon:,})"
    )
    rows = [
        ["share", "of all drafts", "average α", "claimed", "points below claim there",
         "flagged after (median)", "by one average rate"]
    ]  # fmt: skip
    for one in found.biases:
        rows.append(
            [
                f"{one.share:.0%}",
                f"{one.steered:.1%}",
                f"{one.average:.3f}",
                f"{one.claimed:.3f}",
                f"{one.fall:.1f}",
                "never" if one.median is None else f"{one.median:,.0f}",
                "never" if one.median_by_average is None else f"{one.median_by_average:,.0f}",
            ]
        )
    yield from _columns(rows)


def _limits(found: Study) -> Iterator[str]:
    yield "WHERE HONEST PLAY STOPS BEING BEST (one parameter at a time, stakes following it)"
    for limit in found.limits:
        if limit.breaks is None:
            yield f"{limit.parameter}: {limit.default:.3g}; nowhere up to {limit.searched:.3g}"
        else:
            yield f"{limit.parameter}: {limit.default:.3g}; at {limit.breaks:.3g}, for {limit.lie}"
    for mode in MODES:
        table = found.ours(mode).table
        for lie in found.ours(mode).lies:
            big = expected.largest_batch(table, lie)
            if big is not None and big < 1:
                least = expected.break_even_stake(table, lie)
                yield (
                    f"in one batch that takes all that its stake may be paid for: {lie.role} "
                    f"{lie.name} ({mode}) loses {big:.2f} of what it gains; it needs "
                    f"{least:.0f} batches' dues of stake"
                )


def _closing(found: Study) -> Iterator[str]:
    verdict = "is" if found.honest_is_best() else "IS NOT"
    yield f"Honest play {verdict} the best reply of every role at these parameters."
    yield (
        f"Honest operators lost {found.honest_slashed} to slashes; money "
        f"{'balances' if found.balanced else 'DOES NOT BALANCE'} in all runs "
        f"({found.seconds:.0f} s)."
    )
