"""Cases of the accept rule: decisions and draws by coin, leaf pairs, draft leaves, kept lists."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import numpy as np

from scripts.vectors.samples import draft_leaf_of, order_of, verdict_leaf_of, wide
from settlement import accept_rule, coins, masses, records
from settlement.records import MASS_TOTAL, NO_TOKEN, Mode


def accept_vectors() -> dict[str, Any]:
    rng = Random("verdraft vectors: accept")
    orders = accept_orders(rng)
    decisions = [
        (0, 1, 1), (0, 0, 5), (MASS_TOTAL, 1, 1), (MASS_TOTAL, MASS_TOTAL, MASS_TOTAL),
        (MASS_TOTAL, MASS_TOTAL, MASS_TOTAL - 1), (0, MASS_TOTAL, 0), (1 << 63, 2, 1),
        ((1 << 63) - 1, 2, 1),
    ]  # fmt: skip
    decisions += [(rng.getrandbits(64), wide(rng, 64), wide(rng, 64)) for _ in range(60)]
    draws = []
    for _ in range(12):
        p = _random_masses(rng, 6)
        q = _random_masses(rng, 6)
        coin = rng.getrandbits(64)
        draws.append(
            {
                "p": p,
                "q": q,
                "coin": coin,
                "fromP": masses.sample_masses(p, coin),
                "fromResidual": masses.residual_token(p, q, coin),
            }
        )
    draws.append(
        {
            "p": p,
            "q": p,
            "coin": coin,
            "fromP": masses.sample_masses(p, coin),
            "fromResidual": masses.residual_token(p, p, coin),
        }
    )
    return {
        "decisions": [
            {"u": u, "q": q, "p": p, "accepted": masses.accept_rejection(u, q, p)}
            for u, q, p in decisions
        ],
        "draws": draws,
        "orders": orders,
        "leafPairs": list(leaf_pairs(rng, orders)),
        "draftLeaves": list(draft_leaves(rng, orders)),
        "draftLists": list(draft_lists(rng)),
    }


def _random_masses(rng: Random, count: int) -> np.ndarray:
    weights = np.array([rng.choice((0.0, rng.random())) for _ in range(count)])
    weights[rng.randrange(count)] = rng.random() + 0.01
    return masses.masses_from_probabilities(weights)


def _fault(fault: accept_rule.LeafFault | None) -> int:
    return 0 if fault is None else int(fault)


def accept_orders(rng: Random) -> list[records.Order]:
    """One order for each way that the rule distinguishes; the cases name them by number."""
    low = {"key_target_surprisal": 40, "key_draft_surprisal": 40}
    return [
        order_of(rng, mode, relax_tau=tau, max_tokens=200, **low)
        for mode, tau in (
            (Mode.GREEDY, 0),
            (Mode.COUPLED, 0),
            (Mode.REJECTION, 0),
            (Mode.GREEDY, 1 << 23),
            (Mode.COUPLED, 2**32 - 1),
        )
    ]


def leaf_pairs(rng: Random, orders: list[records.Order]) -> Iterable[dict[str, Any]]:
    """Pairs under every order: honest and faulty figures as the dice fall."""
    for index in range(160):
        number = index % len(orders)
        order = orders[number]
        tau = order.relax_tau
        seed, value = rng.randbytes(32), rng.randbytes(32)
        position = rng.choice((0, 5, 199, 200)) if index % 10 == 0 else rng.randrange(200)
        drafted: records.DraftLeaf | None = draft_leaf_of(
            rng, position=position, surprisal=rng.randrange(44)
        )
        assert drafted is not None
        draft_token = drafted.token + (rng.random() < 0.05)
        if index % 11 == 10:
            drafted, draft_token = None, NO_TOKEN
        accepted = rng.random() < (0.3 if drafted is None else 0.6)
        top = rng.choice((rng.randrange(-(2**26), 2**26), -(2**63), 2**63 - 1))
        gap = rng.choice((0, 1, tau, tau + 1, -1)) if tau else 0
        verdict = verdict_leaf_of(
            rng,
            position=position + (rng.random() < 0.05),
            draft_token=draft_token,
            token=draft_token if accepted ^ (rng.random() < 0.1) else rng.randrange(2**17),
            accepted=accepted,
            score_top=top if tau else 0,
            score_draft=min(max(top - gap, -(2**63)), 2**63 - 1) if tau else 0,
            surprisal=rng.randrange(44) if tau else 0,
            key=bool(tau) and rng.random() < 0.5,
        )
        yield {
            "order": number,
            "seed": seed,
            "position": position,
            "draft": drafted,
            "verdict": verdict,
            "chainValue": value,
            "fault": _fault(
                accept_rule.check_leaf_pair(order, seed, position, drafted, verdict, value)
            ),
        }


def draft_leaves(rng: Random, orders: list[records.Order]) -> Iterable[dict[str, Any]]:
    for index in range(24):
        number = 2 if index % 4 else 1
        order = orders[number]
        seed, value, context = (rng.randbytes(32) for _ in range(3))
        position = rng.randrange(200)
        drawn = coins.draw_coin(value, seed, context, position)
        q = wide(rng, 62) + 1
        below = max(0, drawn - rng.choice((0, q - 1, q, q // 2)))
        leaf = draft_leaf_of(
            rng,
            position=position + (index % 9 == 8),
            token=NO_TOKEN if index % 11 == 10 else rng.randrange(2**17),
            q=min(q, MASS_TOTAL),
            q_below=min(below + (index % 5 == 4), MASS_TOTAL),
        )
        yield {
            "order": number,
            "seed": seed,
            "contextHash": context,
            "position": position,
            "draft": leaf,
            "chainValue": value,
            "fault": _fault(
                accept_rule.check_draft_leaf(order, seed, context, position, leaf, value)
            ),
        }


def draft_lists(rng: Random) -> Iterable[dict[str, Any]]:
    for index in range(16):
        ids = np.array(sorted(rng.sample(range(2**17), 5)))
        full = masses.masses_from_probabilities(np.array([rng.random() + 0.01 for _ in range(5)]))
        kept = list(masses.kept_list(ids, full))
        token = kept[rng.randrange(5)][0] if index % 4 else 2**17
        q, below = masses.interval(tuple(kept), token)
        if index == 5:
            kept[1], kept[2] = kept[2], kept[1]
        if index == 6:
            kept[0] = (kept[0][0], kept[0][1] - 1)
        if index == 7:
            kept.insert(1, (kept[0][0] + 1, 0))
        if index == 9:
            below += 1
        if index == 10:
            kept = [(token_id, 2**57) for token_id in range(65)]
        leaf = draft_leaf_of(
            rng,
            token=token,
            q=q,
            q_below=below,
            kept_hash=records.keccak256(
                records.TAG_KEPT,
                *(i.to_bytes(4, "big") + m.to_bytes(8, "big") for i, m in kept),
            ),
        )
        yield {
            "draft": leaf,
            "kept": kept,
            "fault": _fault(accept_rule.check_draft_list(leaf, kept)),
        }
