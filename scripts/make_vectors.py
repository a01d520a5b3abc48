"""Write the golden vectors under tests/vectors: what every implementation must reproduce.

    python scripts/make_vectors.py            write the files
    python scripts/make_vectors.py --check    exit 1 if a file differs from what the code gives

Bytes are 0x… strings; integers that may pass 2**32 are decimal strings. Every value follows from
fixed pseudo-random streams, so the files change only when a format or a rule does.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.vectors.decisions import accept_vectors
from scripts.vectors.exact import exact_vectors
from scripts.vectors.panels import panels_vectors
from scripts.vectors.samples import (
    draft_leaf_of,
    order_of,
    round_of,
    shown,
    successor_of,
    verdict_leaf_of,
    voucher_of,
    wide,
)
from settlement import alpha, coins, logarithm, noise, payments, records, trees
from settlement.records import MASS_TOTAL, NO_CUTOFF, Mode
from settlement.schema import Record
from settlement.signing import address_of_key

FOLDER: Final = Path(__file__).resolve().parent.parent / "tests" / "vectors"
DOMAIN: Final = records.Domain(31337, bytes.fromhex("5fbdb2315678afecb367f032d93f642f64180aa3"))
# Edges of every kind that step 4 of the noise distinguishes.
UNIFORM_EDGES: Final = (
    0, 1, 2, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**33, 2**62, 2**63 - 2, 2**63 - 1, 2**63,
    2**63 + 1, 2**64 - 2**33, 2**64 - 2**32, 2**64 - 2**31, 2**64 - 2, 2**64 - 1,
)  # fmt: skip


# ---------------------------------------------------------------- records


def signed_records(rng: Random) -> Iterable[Record]:
    for mode in Mode:
        yield order_of(rng, mode)
    yield successor_of(rng)
    yield records.SessionStart(rng.randbytes(32), rng.randbytes(32), 4)
    yield records.DraftCommit(
        rng.randbytes(32), 3, 1, 77, rng.randbytes(32), rng.randbytes(32), rng.randbytes(32), 5,
        rng.randbytes(32),
    )  # fmt: skip
    yield records.Verdict(
        rng.randbytes(32), 3, 1, rng.randbytes(32), 77, rng.randbytes(32), 4, 5, rng.randbytes(32),
        rng.randbytes(32), rng.randbytes(32), 6,
    )  # fmt: skip
    for _ in range(4):
        yield voucher_of(rng)
    yield records.Claim(
        rng.randbytes(20), rng.randbytes(32), rng.randbytes(32), 1, 65536,
        tuple(rng.randint(6, 99) for _ in range(16)), rng.getrandbits(64),
    )  # fmt: skip


def records_vectors() -> dict[str, Any]:
    rng = Random("verdraft vectors: records")
    key = bytes(range(1, 33))
    signed = list(signed_records(rng))
    leaves: list[Record] = [
        *(draft_leaf_of(rng) for _ in range(3)),
        *(verdict_leaf_of(rng) for _ in range(2)),
        verdict_leaf_of(rng, score_draft=-(2**63), score_top=2**63 - 1, key=True, accepted=True),
        *(round_of(rng) for _ in range(3)),
    ]
    lanes = [order.lane for order in signed if isinstance(order, records.Order)]
    kept = ((3, 5), (9, MASS_TOTAL - 6), (2**20, 1))
    manifest = records.Manifest(
        "LlamaForCausalLM", records.Tier.EXACT, rng.randbytes(32), rng.randbytes(32), 49152,
        (0, 2), 8192,
    )  # fmt: skip
    salt, context = rng.randbytes(32), rng.randbytes(32)
    return {
        "domain": {
            "chainId": DOMAIN.chain_id,
            "escrow": DOMAIN.escrow,
            "separator": DOMAIN.separator,
        },
        "typeStrings": {kind.__name__: kind.type_string() for kind in records.SIGNED_RECORDS}
        | {kind.__name__: kind.type_string() for kind in records.LEAF_RECORDS},
        "privateKey": key,
        "signer": address_of_key(key),
        "signed": [
            {
                "type": type(record).__name__,
                "record": record,
                "structHash": record.struct_hash,
                "digest": DOMAIN.digest(record),
                "signature": DOMAIN.sign(record, key),
                "wire": record.to_wire(),
            }
            for record in signed
        ],
        "leaves": [
            {
                "type": type(leaf).__name__,
                "record": leaf,
                "leafHash": leaf.leaf_hash,
                "wire": leaf.to_wire(),
            }
            for leaf in leaves
        ],
        "lanes": [{"lane": lane, "id": lane.id} for lane in lanes],
        "manifest": {
            "architecture": manifest.architecture,
            "tier": int(manifest.tier),
            "weightsRoot": manifest.weights_root,
            "tokenizerHash": manifest.tokenizer_hash,
            "vocabSize": manifest.vocab_size,
            "eosIds": manifest.eos_ids,
            "contextLength": manifest.context_length,
            "modelId": manifest.model_id,
        },
        "hashes": {
            "salt": salt,
            "context": context,
            "tokens": (1, 2, 4294967294),
            "promptHash": records.prompt_hash(salt, (1, 2, 4294967294)),
            "emptyPromptHash": records.prompt_hash(salt, ()),
            "extendedContext": records.extend_context(context, (1, 2, 4294967294)),
            "kept": kept,
            "keptHash": records.kept_hash(kept),
            "topHash": records.top_hash((1, 2, 4294967294)),
            "saltedFingerprint": records.salted_fingerprint(salt, context),
            "stopString": "\n\nHuman: λ",
            "stopStringHash": records.stop_string_hash("\n\nHuman: λ"),
        },
    }


# ---------------------------------------------------------------- coins and noise


def coins_vectors() -> dict[str, Any]:
    rng = Random("verdraft vectors: coins")
    request, client, verifier = (rng.randbytes(32) for _ in range(3))
    values = coins.chain(rng.randbytes(32), 6)
    prompt = (1, 77, 49151)
    cases = []
    for index in range(12):
        seed, context, value = rng.randbytes(32), rng.randbytes(32), rng.randbytes(32)
        position = (0, 1, 2**32 - 1, 2**64 - 1)[index] if index < 4 else rng.randrange(4096)
        cases.append(
            {
                "chainValue": value,
                "seed": seed,
                "contextHash": context,
                "position": position,
                "coins": [coins.coin(value, seed, position, purpose) for purpose in coins.Purpose],
                "draw": coins.draw_coin(value, seed, context, position),
            }
        )
    return {
        "seed": {
            "requestId": request,
            "nonceClient": client,
            "nonceVerifier": verifier,
            "commitmentClient": coins.nonce_commitment(client),
            "jointSeed": coins.joint_seed(request, client, verifier),
            "clientSeeds": [
                {
                    "seed": seed,
                    "targetModel": request,
                    "prompt": prompt,
                    "value": coins.client_seed(seed, request, prompt),
                }
                for seed in (0, 42, -1, 2**63 - 1, -(2**63))
            ],
        },
        "chain": {
            "values": values,
            "rounds": [coins.round_value(values, index) for index in range(6)],
        },
        "cases": cases,
    }


def philox_vectors() -> list[dict[str, Any]]:
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    ones = (0xFFFFFFFF,) * 4
    rng = Random("verdraft vectors: philox")
    inputs = [((0,) * 4, (0, 0)), (ones, ones[:2]), (pi, (0xA4093822, 0x299F31D0))]
    inputs += [
        (tuple(rng.getrandbits(32) for _ in range(4)), (rng.getrandbits(32), rng.getrandbits(32)))
        for _ in range(5)
    ]
    return [
        {
            "counter": counter,
            "key": key,
            "output": noise.philox4x32(tuple(np.uint64(word) for word in counter), key),
        }
        for counter, key in inputs
    ]


def noise_vectors() -> dict[str, Any]:
    rng = Random("verdraft vectors: noise")
    uniform = [*UNIFORM_EDGES, *(wide(rng, 64) for _ in range(60))]
    uniform += [2**64 - 1 - wide(rng, 64) for _ in range(60)]
    gumbel = noise.gumbel_q24(np.array(uniform, dtype=np.uint64))
    logs = [1, 2, 3, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**64 - 1]
    logs += [max(1, wide(rng, 64)) for _ in range(60)]
    positions, rows = [], []
    for index in range(8):
        seed = rng.randbytes(32)
        position = (0, 1, 2**32 - 1, 2**64 - 1)[index] if index < 4 else rng.randrange(4096)
        tokens = [0, 1, 2, 3, 49151, 2**32 - 1, *(rng.randrange(2**17) for _ in range(4))]
        positions.append(
            {
                "seed": seed,
                "position": position,
                "tokens": tokens,
                "uniform": noise.uniform_bits(seed, position, tokens),
                "noise": noise.noise_for(seed, position, tokens),
            }
        )
        scores = [rng.randrange(-(2**26), 2**26) for _ in range(9)]
        if index == 5:
            scores = [2**61, -(2**61), 2**61] * 3
        cutoff = sorted(scores)[4] if index % 2 else NO_CUTOFF
        vector = np.array(scores, dtype=np.int64)
        token, perturbed = noise.coupled_argmax(vector, seed, position, vector >= cutoff)
        rows.append(
            {
                "seed": seed,
                "position": position,
                "scores": scores,
                "cutoff": cutoff,
                "token": token,
                "perturbed": perturbed,
            }
        )
    return {
        "philox": philox_vectors(),
        "logarithm": [
            {"x": x, "lnQ31": logarithm.ln_q31(x), "lnUpQ20": logarithm.ln_up_q20(x)} for x in logs
        ],
        "gumbel": [{"r": r, "noise": g} for r, g in zip(uniform, gumbel, strict=True)],
        "positions": positions,
        "argmax": rows,
    }


# ---------------------------------------------------------------- trees and money


def trees_vectors() -> dict[str, Any]:
    rng = Random("verdraft vectors: trees")
    plain, sums = [], []
    for count in (1, 2, 3, 5, 6, 7, 13):
        leaves = [rng.randbytes(32) for _ in range(count)]
        tree = trees.MerkleTree(leaves)
        plain.append(
            {
                "leaves": leaves,
                "root": tree.top(),
                "proofs": [tree.proof(index).siblings for index in range(count)],
            }
        )
        base = trees.SumTree(round_of(rng) for _ in range(2)).settled() if count % 2 else None
        rounds = [round_of(rng) for _ in range(count)]
        sum_tree = trees.SumTree(rounds)
        settled = sum_tree.settled(base)
        total = sum_tree.top().sums.output
        descents = []
        for at in sorted({0, total - 1, total // 2, rng.randrange(total)}):
            index = sum_tree.descend(at)
            leaf = trees.round_leaf(rounds[index])
            descents.append(
                {
                    "outputPosition": at,
                    "index": index,
                    "offset": sum_tree.proof(index).offset_of(leaf, at),
                }
            )
        sums.append(
            {
                "rounds": rounds,
                "top": settled.top,
                "total": sum_tree.top().sums.packed,
                "cumulative": settled.sums.packed,
                "leafCount": count,
                "baseRoot": settled.base_root,
                "settledRoot": settled.root,
                "proofs": [
                    [
                        {"hash": node.hash, "sums": node.sums.packed}
                        for node in sum_tree.proof(index).siblings
                    ]
                    for index in range(count)
                ],
                "descents": descents,
            }
        )
    return {"merkle": plain, "sum": sums}


def payments_vectors() -> dict[str, Any]:
    rng = Random("verdraft vectors: payments")
    cases = []
    for index in range(60):
        bits = rng.choice((4, 16, 90))
        due = payments.Dues(wide(rng, bits), wide(rng, bits))
        mark = payments.Dues(wide(rng, bits - 1), wide(rng, bits - 1))
        reserve = wide(rng, bits + 2)
        limits = (wide(rng, bits + 1), wide(rng, bits + 1)) if index % 3 else (2**100, 2**100)
        signed, fee_bps = rng.random() < 0.8, rng.choice((0, 200, 200, 999))
        payment = payments.settle(due, mark, reserve, *limits, signed, fee_bps)
        cases.append(
            {
                "dueDrafter": due.drafter,
                "dueVerifier": due.verifier,
                "watermarkDrafter": mark.drafter,
                "watermarkVerifier": mark.verifier,
                "reserve": reserve,
                "payableDrafter": limits[0],
                "payableVerifier": limits[1],
                "drafterSigned": signed,
                "feeBps": fee_bps,
                "paidDrafter": payment.paid.drafter,
                "paidVerifier": payment.paid.verifier,
                "fee": payment.fee,
            }
        )
    return {"settle": cases}


# ---------------------------------------------------------------- α


def alpha_vectors() -> dict[str, Any]:
    rng = Random("verdraft vectors: alpha")
    edges = (0, 19660, 19661, 39321, 39322, 58982, 58983, 65535)
    counts = [
        (rate, 1000 * proposed // 7) for rate in (6, 19, 20, 21, 80, 99) for proposed in (1, 9)
    ]
    return {
        "buckets": [
            {"position": position, "topProb": top, "bucket": alpha.bucket(position, top)}
            for position in (0, 15, 16, 63, 64, 255, 256, 2**32 - 1)
            for top in edges
        ],
        "weights": [
            {
                "rate": rate,
                "accept": alpha.weights(rate).accept,
                "reject": alpha.weights(rate).reject,
            }
            for rate in range(alpha.LOWEST_RATE, alpha.HIGHEST_RATE + 1)
        ],
        "packedWeights": alpha.packed_weights(),
        "thresholds": [
            {
                "start": start,
                "inverseDelta": inverse,
                "verifierOrder": order,
                "threshold": alpha.threshold(start, inverse, order),
            }
            for start in (1, 2, 3, 40, 513, 2**32)
            for inverse in (100, 10**6)
            for order in (0, 1, 2, 1000)
        ],
        "scores": [
            {
                "rate": rate,
                "proposed": proposed,
                "accepted": accepted,
                "score": alpha.llr(rate, proposed, accepted),
            }
            for rate, proposed in counts
            for accepted in (0, proposed, rng.randrange(proposed))
        ],
    }


FILES: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "records.json": records_vectors,
    "coins.json": coins_vectors,
    "noise.json": noise_vectors,
    "accept.json": accept_vectors,
    "trees.json": trees_vectors,
    "payments.json": payments_vectors,
    "alpha.json": alpha_vectors,
    "exact.json": exact_vectors,
    "panels.json": panels_vectors,
}


def rendered(name: str) -> str:
    """The text of one vectors file."""
    return json.dumps(shown(FILES[name]()), indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    stale = []
    for name in FILES:
        path, text = FOLDER / name, rendered(name)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                FOLDER.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    print(f"{'stale' if check else 'written'}: {', '.join(stale) or 'none'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
