"""The whole study: every pairing under every payment model, as figures, tables and JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from node.economics import bias, expected, roles
from node.economics.bias import Bias
from node.economics.expected import Deviation, Limit
from node.economics.market import Acceptance, Market, Sessions
from node.economics.play import Played, Table, play, sample_pairing, set_table
from node.economics.roles import Assumed, AuditCost, Row
from node.economics.strategies import (
    COUPLED,
    HONEST,
    MODES,
    Drafter,
    Verifier,
    drafters,
    verifiers,
)
from node.economics.terms import Cover, Terms, inequality, textbook
from settlement.payments import PaymentModel

OURS: Final = PaymentModel.ACCEPTED_AND_OUTPUT
TEXTBOOK: Final = (
    PaymentModel.PER_FORWARD_PASS,
    PaymentModel.PER_PROPOSED,
    PaymentModel.PER_ACCEPTED,
)
COVERS: Final = (3.7, 4.0, 5.0, 8.0, 32.0, 107.0, 1000.0)
BIASES: Final = (0.1, 0.2, 0.3, 0.5, 1.0)
# The strategy in which each textbook model's own rule, without any oversight, fails first.
FAILS_BY: Final = {
    PaymentModel.PER_FORWARD_PASS: ("verifier", "retaliating"),
    PaymentModel.PER_PROPOSED: ("drafter", "random"),
    PaymentModel.PER_ACCEPTED: ("verifier", "accept all"),
}
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """What a study varies. `pairs`: the acceptance to use, by mode."""

    pairs: Mapping[str, Acceptance]
    terms: Terms = field(default_factory=Terms)
    market: Mapping[str, Any] = field(default_factory=dict)
    assumed: Assumed = field(default_factory=Assumed)
    steer_value: float = 1.0
    batches: int = 150
    pool: int = 128
    seeds: int = 20
    seed: int = 1


@dataclass(frozen=True)
class Matrix:
    """One model and mode: what every pairing came to, and each lie against honest others."""

    table: Table
    cells: dict[tuple[str, str], Played]
    lies: list[Deviation]
    honest_pool: Sessions
    pools: dict[tuple[str, str], Sessions]

    @property
    def model(self) -> PaymentModel:
        return self.table.terms.model

    def best_reply(self, role: str) -> tuple[str, float]:
        """(the strategy that pays this role most against honest others, by how much it beats the
        honest one). Ties go to the honest one."""
        honest = self.cells[HONEST, HONEST]
        best, margin = HONEST, 0.0
        for (drafter, verifier), played in self.cells.items():
            if role == "drafter" and verifier == HONEST:
                name, more = drafter, played.drafter - honest.drafter
            elif role == "verifier" and drafter == HONEST:
                name, more = verifier, played.verifier - honest.verifier
            else:
                continue
            if more > max(margin, 1e-6):
                best, margin = name, more
        return best, margin

    def margin(self, role: str) -> tuple[str, float]:
        """(the lie that comes nearest to honest play, how much it falls short of it)."""
        honest = self.cells[HONEST, HONEST]
        short = {}
        for (drafter, verifier), played in self.cells.items():
            if role == "drafter" and verifier == HONEST and drafter != HONEST:
                short[drafter] = honest.drafter - played.drafter
            if role == "verifier" and drafter == HONEST and verifier != HONEST:
                short[verifier] = honest.verifier - played.verifier
        name = min(short, key=short.__getitem__)
        return name, short[name]

    def equilibria(self) -> list[tuple[str, str]]:
        """Pairings in which neither gains by changing alone (pure Nash equilibria)."""
        names_d = list(dict.fromkeys(drafter for drafter, _ in self.cells))
        names_v = list(dict.fromkeys(verifier for _, verifier in self.cells))
        found = []
        for d in names_d:
            for v in names_v:
                here = self.cells[d, v]
                if all(
                    self.cells[other, v].drafter <= here.drafter + 1e-6 for other in names_d
                ) and all(
                    self.cells[d, other].verifier <= here.verifier + 1e-6 for other in names_v
                ):
                    found.append((d, v))
        return found


@dataclass(frozen=True)
class Study:
    """Everything that was found."""

    options: Options
    matrices: dict[tuple[PaymentModel, str], Matrix]
    rows: list[Row]
    biases: list[Bias]
    covers: list[Cover]
    audit: AuditCost
    limits: list[Limit]
    seconds: float

    def ours(self, mode: str) -> Matrix:
        return self.matrices[OURS, mode]

    @property
    def balanced(self) -> bool:
        return all(p.balanced for matrix in self.matrices.values() for p in matrix.cells.values())

    @property
    def honest_slashed(self) -> int:
        """What honest operators lost to slashes, whatever the others did."""
        total = 0
        for matrix in self.matrices.values():
            for (drafter, verifier), played in matrix.cells.items():
                total += played.slashed_drafter if drafter == HONEST else 0
                total += played.slashed_verifier if verifier == HONEST else 0
        return total

    def honest_is_best(self) -> bool:
        """Of every role, in every mode, at these parameters."""
        operators = all(
            self.ours(mode).best_reply(role)[0] == HONEST
            for mode in MODES
            for role in ("drafter", "verifier")
        )
        return operators and all(row.net <= 1e-9 for row in self.rows)


def study(options: Options, progress: Progress = lambda _line: None) -> Study:
    """Play everything. Every pairing of a mode sees the same random numbers, so that differences
    are those of the strategies."""
    began = time.monotonic()
    matrices: dict[tuple[PaymentModel, str], Matrix] = {}
    for mode in MODES:
        progress(f"{mode}: {len(drafters(mode))} drafters × {len(verifiers(mode))} verifiers")
        market = Market(options.pairs[mode], **options.market)
        pools = _pools(options, market, mode)
        models = (OURS, *TEXTBOOK) if mode == COUPLED else (OURS,)
        for model in models:
            terms = options.terms if model is OURS else textbook(model)
            matrices[model, mode] = _matrix(options, market, terms, mode, pools)
    ours = matrices[OURS, COUPLED]
    table, honest = ours.table, ours.honest_pool
    accept_all = next(lie for lie in ours.lies if lie.name == "accept all")
    retaliating = ours.pools[HONEST, "retaliating"]
    coalition = roles.pairs(table, honest, retaliating, accept_all)
    rows = [
        *roles.clients(table, honest, options.assumed),
        *roles.auditors(table, honest, options.assumed),
        *roles.pair_rows(table, coalition),
    ]
    progress("a biased drafter, and where honest play stops being best")
    pair = options.pairs[COUPLED]
    claim = pair.claim(options.terms.claim_slack)
    biases = [
        bias.run(pair, table.market.length, share, bias.AMBIGUOUS, claim, range(options.seeds))
        for share in BIASES
    ]
    tables = [(matrices[OURS, mode].table, matrices[OURS, mode].lies) for mode in MODES]
    return Study(
        options,
        matrices,
        rows,
        biases,
        inequality(options.terms, COVERS),
        roles.audit_cost(table, honest),
        expected.limits(tables),
        time.monotonic() - began,
    )


def _pools(options: Options, market: Market, mode: str) -> dict[tuple[str, str], Sessions]:
    return {
        (drafter.name, verifier.name): sample_pairing(
            market, drafter, verifier, options.pool, np.random.default_rng([options.seed, 1])
        )
        for drafter in drafters(mode)
        for verifier in verifiers(mode)
    }


def _matrix(
    options: Options,
    market: Market,
    terms: Terms,
    mode: str,
    pools: dict[tuple[str, str], Sessions],
) -> Matrix:
    honest_pool = pools[HONEST, HONEST]
    table = set_table(
        market,
        terms,
        mode,
        honest_pool,
        steer_value=options.steer_value,
        batches=options.batches,
    )
    cells = {
        (drafter.name, verifier.name): play(
            table,
            drafter,
            verifier,
            pools[drafter.name, verifier.name],
            np.random.default_rng([options.seed, 2]),
        )
        for drafter in drafters(mode)
        for verifier in verifiers(mode)
    }
    honest = cells[HONEST, HONEST]
    lies: list[Deviation] = []
    liars: Iterable[tuple[Drafter | Verifier, tuple[str, str]]] = (
        *((one, (one.name, HONEST)) for one in drafters(mode)),
        *((one, (HONEST, one.name)) for one in verifiers(mode)),
    )
    for strategy, key in liars:
        if strategy.name != HONEST:
            lies.append(expected.deviation(table, strategy, pools[key], cells[key], honest))
    return Matrix(table, cells, lies, honest_pool, pools)


# ---------------------------------------------------------------- JSON


def to_json(found: Study) -> dict[str, Any]:
    """All figures. Payoffs in target passes per 1,000 output tokens; money in stake tokens."""
    return {
        "seed": found.options.seed,
        "seconds": round(found.seconds, 1),
        "balanced": found.balanced,
        "honestSlashed": found.honest_slashed,
        "honestIsBest": found.honest_is_best(),
        "acceptance": {
            mode: {
                "source": pair.source,
                "rates": pair.rates.round(4).tolist(),
                "shares": pair.shares.round(4).tolist(),
            }
            for mode, pair in found.options.pairs.items()
        },
        "models": [_matrix_json(matrix) for matrix in found.matrices.values()],
        "others": [asdict(row) for row in found.rows],
        "bias": [asdict(one) | {"median": one.median} for one in found.biases],
        "inequality": [asdict(cover) for cover in found.covers],
        "auditCost": asdict(found.audit) | {"share": found.audit.share},
        "limits": [asdict(limit) for limit in found.limits],
    }


def _matrix_json(matrix: Matrix) -> dict[str, Any]:
    table = matrix.table
    flat = expected.flat_rate_limit(table, matrix.lies) if table.terms.checked else None
    return {
        "model": matrix.model.value,
        "mode": table.mode,
        "prices": asdict(table.prices),
        "stakes": asdict(table.stakes),
        "payoffs": [
            {"drafter": d, "verifier": v, **asdict(played)}
            for (d, v), played in matrix.cells.items()
        ],
        "bestReplies": {
            role: dict(zip(("strategy", "gain"), matrix.best_reply(role), strict=True))
            for role in ("drafter", "verifier")
        },
        "equilibria": [list(pair) for pair in matrix.equilibria()],
        "breakEvenAuditRate": None if flat is None else {"chance": flat[0], "by": flat[1]},
        "lies": [
            {
                "role": lie.role,
                "name": lie.name,
                "fault": lie.fault,
                "gain": lie.gain / 10**18,
                **_break_evens(table, lie),
            }
            for lie in matrix.lies
        ],
    }


def _break_evens(table: Table, lie: Deviation) -> dict[str, float | None]:
    if not table.terms.checked:
        return {}
    net = lie.net(table.terms, table.stakes)
    return {
        "expectedNet": net / 10**18,
        "chance": lie.chance(table.terms, table.stakes),
        "breakEvenChance": expected.break_even_chance(table, lie),
        "breakEvenStake": expected.break_even_stake(table, lie),
        "largestBatch": expected.largest_batch(table, lie),
    }
