"""Vectors for juries: draws, seals, distances, verdicts."""

from __future__ import annotations

from random import Random
from typing import Any

from settlement import panels
from settlement.panels import Answer, Measure


def panels_vectors() -> dict[str, Any]:
    rng = Random("verdraft vectors: panels")
    return {
        "draws": [_draw(rng, size) for size in (1, 3, 8) for _ in range(3)],
        "seals": [_seal(rng) for _ in range(4)],
        "tickets": [_ticket(rng, kind) for kind in (0, 1)],
        "distances": [_distance(rng, edge) for edge in (0, 1, 2, 2, 2)],
        "verdicts": [_verdict(rng, seats) for seats in (1, 2, 3, 5, 15) for _ in range(12)],
    }


def _draw(rng: Random, size: int) -> dict[str, Any]:
    seed = rng.randbytes(32)
    weights = [10**21 + rng.getrandbits(rng.choice((60, 70, 80))) for _ in range(8)]
    order = panels.draw_jury(seed, weights, size)
    return {"seed": seed, "weights": [str(weight) for weight in weights], "order": list(order)}


def _seal(rng: Random) -> dict[str, Any]:
    answer = Answer(
        print=rng.randbytes(32), margin=rng.getrandbits(64), withheld=rng.random() < 0.5
    )
    contract, member, salt = rng.randbytes(20), rng.randbytes(20), rng.randbytes(32)
    jury = rng.getrandbits(32)
    return {
        "chainId": 31337,
        "juries": contract,
        "jury": jury,
        "member": member,
        "withheld": answer.withheld,
        "margin": str(answer.margin),
        "print": answer.print,
        "salt": salt,
        "commitment": panels.commitment(31337, contract, jury, member, answer, salt),
    }


def _ticket(rng: Random, kind: int) -> dict[str, Any]:
    salt = rng.randbytes(32)
    if kind == 0:
        named = [rng.getrandbits(60), rng.getrandbits(5), rng.getrandbits(2)]
        content = panels.drawn_content(*named)
        shape: dict[str, Any] = {"batchId": str(named[0]), "index": named[1], "sample": named[2]}
    else:
        canary = (rng.randbytes(32), 3, 1, rng.randbytes(32), rng.randbytes(32), rng.randbytes(32))
        content = panels.canary_content(canary)
        names = ("startHash", "round", "within", "figures", "print", "text")
        shape = dict(zip(names, canary, strict=True))
    return {
        "kind": kind,
        **shape,
        "content": content,
        "salt": salt,
        "ticket": panels.ticket(kind, content, salt),
    }


def _distance(rng: Random, edge: int) -> dict[str, Any]:
    one = bytes.fromhex("8000") * 16 if edge == 0 else rng.randbytes(32)
    other = bytes.fromhex("7fff") * 16 if edge == 0 else one if edge == 1 else rng.randbytes(32)
    return {"one": one, "other": other, "distance": panels.distance(one, other)}


def _verdict(rng: Random, seats: int) -> dict[str, Any]:
    print_, expected = rng.randbytes(32), rng.randbytes(32)
    exact = rng.random() < 0.3
    near = rng.choice((0, 300, 10**5))
    measure = Measure(exact, rng.random() < 0.7, 1000, near, print_, expected)
    lean = rng.random()
    answers = []
    for _ in range(seats):
        bad = rng.random() < lean
        said = rng.choice((print_, expected)) if not bad else rng.randbytes(32)
        answers.append(
            Answer(
                print=(expected if not bad else print_) if exact else said,
                margin=rng.choice((1001, 5000)) if bad else rng.choice((0, 999, 1000)),
                withheld=rng.random() < 0.1,
                revealed=rng.random() < 0.85,
            )
        )
    return {
        "exact": measure.exact,
        "printed": measure.printed,
        "margin": measure.margin,
        "distance": measure.distance,
        "print": print_,
        "expected": expected,
        "prints": [answer.print for answer in answers],
        "margins": [answer.margin for answer in answers],
        "withheld": [answer.withheld for answer in answers],
        "revealed": [answer.revealed for answer in answers],
        "result": int(panels.result_of(answers, measure)),
    }
