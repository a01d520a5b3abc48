"""Seeds, chains, coins, draws, kept lists and noise are the same in Python and in Solidity."""

from __future__ import annotations

import re
from random import Random

import numpy as np
import pytest
from random_records import kept_of, pack_ids, pack_kept, value_of

from settlement.chain.paths import CONTRACTS
from settlement.coins import (
    MAX_CHAIN,
    Purpose,
    anchor_of,
    chain,
    chain_step,
    client_seed,
    coin,
    draw_coin,
    joint_seed,
    nonce_commitment,
    round_value,
)
from settlement.logarithm import ARTANH_Q31, ln_q31, ln_up_q20
from settlement.masses import accept_rejection, interval
from settlement.noise import H_Q31, gumbel_q24, noise_for, philox4x32, uniform_bits
from settlement.records import MASS_TOTAL, NO_TOKEN, RecordError, check_kept

RUNS = [300, pytest.param(10_000, marks=pytest.mark.slow)]
U64 = 2**64 - 1


def _u64(rng: Random) -> int:
    """Every bit length, and the ends."""
    return value_of(rng, "uint64") >> rng.choice((0, 0, rng.randrange(64)))


@pytest.mark.parametrize("runs", RUNS)
def test_seeds_and_commitments_agree(harness, runs: int) -> None:
    h, rng = harness("CoinsHarness"), Random(runs)
    calls, expected = [], []
    for _ in range(runs):
        a, b, c = rng.randbytes(32), rng.randbytes(32), rng.randbytes(32)
        number, ids = value_of(rng, "int64"), [value_of(rng, "uint32") for _ in range(5)]
        calls += [
            h.calldata("nonceCommitment", a),
            h.calldata("seed", a, b, c),
            h.calldata("clientSeed", number, b, pack_ids(ids)),
        ]
        expected += [nonce_commitment(a), joint_seed(a, b, c), client_seed(number, b, ids)]
    for value, answer in zip(expected, h.batch(calls), strict=True):
        assert answer.word == value


@pytest.mark.parametrize("runs", RUNS)
def test_chains_lead_to_the_same_anchors(harness, runs: int) -> None:
    h, rng = harness("CoinsHarness"), Random(runs)
    cases = [(rng.randbytes(32), rng.randrange(20)) for _ in range(runs)]
    steps = h.batch([h.calldata("chainStep", value) for value, _ in cases])
    anchors = h.batch([h.calldata("anchorOf", *case) for case in cases])
    for (value, index), step, anchor in zip(cases, steps, anchors, strict=True):
        assert step.word == chain_step(value)
        assert anchor.word == anchor_of(value, index)


def test_a_chain_serves_its_rounds_in_order_and_no_longer(harness) -> None:
    h = harness("CoinsHarness")
    values = chain(b"\x07" * 32, 300)
    for index in (0, 1, 2, 298, 299):
        assert h.call("requireOnChain", values[0], round_value(values, index), index) == ()
        assert h.failure("requireOnChain", values[0], round_value(values, index), index + 1) == (
            "NotOnChain",
            (values[0], values[index + 1], index + 1),
        )
    # v_0 itself, public before the first draft, is no round's coin.
    assert h.failure("requireOnChain", values[0], values[0], 0)[0] == "NotOnChain"
    last = MAX_CHAIN - 1
    assert h.call("anchorOf", values[0], last) == (anchor_of(values[0], last),)
    assert h.failure("anchorOf", values[0], MAX_CHAIN) == ("RoundPastChain", (MAX_CHAIN,) * 2)


@pytest.mark.parametrize("runs", RUNS)
def test_coins_and_draws_agree(harness, runs: int) -> None:
    h, rng = harness("CoinsHarness"), Random(runs)
    calls, expected = [], []
    for _ in range(runs):
        v, seed, context = rng.randbytes(32), rng.randbytes(32), rng.randbytes(32)
        position, purpose = value_of(rng, "uint64"), rng.choice(list(Purpose))
        calls += [
            h.calldata("coin", v, seed, position, int(purpose)),
            h.calldata("draw", v, seed, context, position),
        ]
        expected += [coin(v, seed, position, purpose), draw_coin(v, seed, context, position)]
    for value, answer in zip(expected, h.batch(calls), strict=True):
        assert answer.number == value


@pytest.mark.parametrize("runs", RUNS)
def test_the_coin_rule_decides_alike(harness, runs: int) -> None:
    """u · q < p · 2**64, over all sizes and a unit to either side of equality."""
    h, rng = harness("CoinsHarness"), Random(runs)
    cases = [(0, 0, 0), (0, 0, U64), (0, 1, 0), (0, 1, 1), (U64, U64, U64), (U64, U64, U64 - 1)]
    while len(cases) < runs:
        u, q = _u64(rng), _u64(rng)
        p = (u * q >> 64) + rng.choice((0, 1)) if rng.random() < 0.5 else _u64(rng)
        cases.append((u, q, min(p, U64)))
    decided = [accept_rejection(*case) for case in cases]
    assert 0.2 < sum(decided) / len(decided) < 0.8
    for value, answer in zip(
        decided, h.batch([h.calldata("accepts", *case) for case in cases]), strict=True
    ):
        assert answer.number == value


@pytest.mark.parametrize("runs", RUNS)
def test_a_place_falls_on_one_token_alike(harness, runs: int) -> None:
    h, rng = harness("CoinsHarness"), Random(runs)
    cases = []
    for _ in range(runs):
        below, q = _u64(rng), _u64(rng)
        w = rng.choice((below - 1, below, below + q - 1, below + q, _u64(rng)))
        cases.append((below, q, max(0, min(w, U64))))
    answers = h.batch([h.calldata("holds", *case) for case in cases])
    for (below, q, w), answer in zip(cases, answers, strict=True):
        assert answer.number == (below <= w < below + q)


def _spoil_kept(rng: Random, kept: list[tuple[int, int]]) -> list[tuple[int, int]]:
    kept, at = list(kept), rng.randrange(len(kept))
    token, mass = kept[at]
    kind = rng.randrange(8)
    if kind == 0:
        kept[at] = (token, min(mass + 1, U64))
    elif kind == 1:
        kept[at] = (token, 0)
    elif kind == 2:
        kept[at] = (NO_TOKEN, mass)
    elif kind == 3:
        kept.insert(at, (token, mass))
    elif kind == 4:
        kept.reverse()
    elif kind == 5:
        kept = kept[:at] + kept[at + 1 :]
    elif kind == 6:  # nothing wrong but an entry without mass
        kept = sorted({rng.randrange(1 << 16): 0, **dict(kept)}.items())
    return kept


@pytest.mark.parametrize("runs", RUNS)
def test_kept_lists_are_judged_and_read_alike(harness, runs: int) -> None:
    h, rng = harness("CoinsHarness"), Random(runs)
    cases = []
    for _ in range(runs):
        kept = list(kept_of(rng))
        if rng.random() < 0.5:
            kept = _spoil_kept(rng, kept)
        token = rng.choice([*(token for token, _ in kept), rng.randrange(1 << 17), NO_TOKEN])
        cases.append((tuple(kept), token))
    # 64 entries, and one too many with nothing else wrong.
    cases += [(kept_of(rng, 64), 3), (kept_of(rng, 65), 3)]
    cases += [((), 0), (((0, MASS_TOTAL),), 0), (tuple((i, 1) for i in range(65)), 3)]
    answers = h.batch([h.calldata("interval", pack_kept(kept), token) for kept, token in cases])
    verdicts = set()
    for (kept, token), answer in zip(cases, answers, strict=True):
        well_formed, *figures = h.decode("interval", answer.data)
        try:
            check_kept(kept)
        except RecordError:
            assert not well_formed
        else:
            assert well_formed
            assert tuple(figures) == interval(kept, token)
        verdicts.add(well_formed)
    assert verdicts == {True, False}


def test_a_list_cut_inside_an_entry_is_no_list(harness) -> None:
    h = harness("CoinsHarness")
    packed = pack_kept(((5, MASS_TOTAL),))
    assert h.call("interval", packed, 5) == (True, MASS_TOTAL, 0)
    for spoilt in (packed[:-1], packed + b"\0", b""):
        assert h.call("interval", spoilt, 5)[0] is False


def test_buckets_change_where_the_protocol_says(harness) -> None:
    h = harness("CoinsHarness")
    positions = {0: 0, 15: 0, 16: 1, 63: 1, 64: 2, 255: 2, 256: 3, 2**32 - 1: 3}
    probabilities = {65535: 0, 58983: 0, 58982: 1, 39322: 1, 39321: 2, 19661: 2, 19660: 3, 0: 3}
    for position, row in positions.items():
        for top_prob, column in probabilities.items():
            assert h.call("bucket", position, top_prob) == (4 * row + column,)


# ---------------------------------------------------------------- noise


def _pack(words: tuple[int, ...]) -> int:
    return sum(word << (32 * i) for i, word in enumerate(words))


# Random123's kat_vectors: counter, key, result of philox4x32-10.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_its_published_answers(harness, counter, key, expected) -> None:
    assert harness("NoiseHarness").call("philox", _pack(counter), _pack(key)) == (_pack(expected),)


@pytest.mark.parametrize("runs", RUNS)
def test_philox_agrees(harness, runs: int) -> None:
    h, rng = harness("NoiseHarness"), Random(runs)
    cases = [
        (tuple(value_of(rng, "uint32") for _ in range(4)), (rng.getrandbits(32), 0xFFFFFFFF))
        for _ in range(runs)
    ]
    answers = h.batch([h.calldata("philox", _pack(c), _pack(k)) for c, k in cases])
    for (counter, key), answer in zip(cases, answers, strict=True):
        words = philox4x32(tuple(np.uint64(word) for word in counter), key)
        assert answer.number == _pack(tuple(int(word) for word in words))


def _literals(library: str, function: str) -> list[int]:
    """The decimal literals of a Solidity function that stand alone after `+` or `acc =`."""
    source = (CONTRACTS / "libraries" / f"{library}.sol").read_text()
    body = source.split(f"function {function}(")[1].split("\n    }\n")[0]
    return [int(text) for text in re.findall(r"(?:acc =|\+) ([\d_]{4,});", body)]


def test_the_polynomials_have_the_same_coefficients() -> None:
    """A unit in a high coefficient moves one value in a hundred million: no sample shows it."""
    assert _literals("Logarithm", "lnMantissaQ31") == list(reversed(ARTANH_Q31))
    assert _literals("Noise", "_tailQ31") == [c for c in reversed(H_Q31) if c]


@pytest.mark.parametrize("runs", RUNS)
def test_logarithms_agree(harness, runs: int) -> None:
    h, rng = harness("NoiseHarness"), Random(runs)
    powers = [1 << bit for bit in range(64)]
    cases = [x for power in powers for x in (power - 1, power, power + 1) if x] + [U64]
    cases += [max(1, rng.getrandbits(64) >> rng.randrange(64)) for _ in range(runs)]
    for name, function in (("lnQ31", ln_q31), ("lnUpQ20", ln_up_q20)):
        for x, answer in zip(cases, h.batch([h.calldata(name, x) for x in cases]), strict=True):
            assert answer.number == function(x), x
        for x in (0, 1 << 64, 1 << 255):
            assert h.failure(name, x) == ("LogarithmOutsideRange", (x,))


@pytest.mark.parametrize("runs", RUNS)
def test_gumbel_values_agree(harness, runs: int) -> None:
    """Every magnitude from both ends of r, and the middle where the formula changes."""
    h, rng = harness("NoiseHarness"), Random(runs)
    cases = [0, 1, 2**63 - 1, 2**63, U64 - 1, U64]
    cases += [1 << bit for bit in range(64)] + [U64 - (1 << bit) for bit in range(64)]
    for _ in range(runs // 2):
        r = rng.getrandbits(64) >> rng.randrange(64)
        cases += [r, U64 - r]
    cases += [rng.getrandbits(64) for _ in range(max(runs, 2000))]
    expected = gumbel_q24(np.array(cases, dtype=np.uint64))
    answers = h.batch([h.calldata("gumbelOf", r) for r in cases])
    for r, value, answer in zip(cases, expected, answers, strict=True):
        assert answer.signed == int(value), r


@pytest.mark.parametrize("runs", RUNS)
def test_noise_of_a_token_agrees(harness, runs: int) -> None:
    h, rng = harness("NoiseHarness"), Random(runs)
    seeds = [rng.randbytes(32) for _ in range(20)]
    calls, bits, noise = [], [], []
    for seed in seeds:
        for position in (0, U64, rng.getrandbits(32)):
            ids = [0, 1, 2**32 - 1, 2**32 - 2]
            ids += [rng.getrandbits(17) for _ in range(max(1, runs // 60 - 4))]
            bits += [int(r) for r in uniform_bits(seed, position, ids)]
            noise += [int(g) for g in noise_for(seed, position, ids)]
            calls += [(seed, position, token) for token in ids]
    for name, values in (("uniformBits", bits), ("gumbel", noise)):
        answers = h.batch([h.calldata(name, *call) for call in calls])
        for call, value, answer in zip(calls, values, answers, strict=True):
            assert answer.signed == value, call
