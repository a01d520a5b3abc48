"""The paged cache: logits as of a cache by itself, however blocks lie, are shared, rolled back."""

from __future__ import annotations

import random

import pytest
import torch
from engine_models import tiny_target

from node.inference.cache import ContextOverflow, CountedPool, PoolFull
from node.inference.model import Span
from node.inference.paged import BLOCK, BlockPool


def ids(count: int, number: int = 0) -> list[int]:
    rng = random.Random(number)
    return [rng.randrange(3072) for _ in range(count)]


def small_pool(tokens: int, **kwargs) -> BlockPool:
    """Of a model with one layer, one head and two channels."""
    return BlockPool(1, 1, 2, 4096, torch.float32, torch.device("cpu"), tokens, **kwargs)


def fill(cache, rows):
    """Append rows whose key says which token they are of."""
    cache.reserve(len(rows))
    k = torch.tensor(rows, dtype=torch.float32)[:, None, None].expand(-1, 1, 2)
    runs = cache.append(0, k, -k)
    cache.advance(len(rows))
    return runs


def seen(runs):
    assert all(torch.equal(k, -v) for k, v in runs)
    return torch.cat([k for k, _ in runs], 1)[0, :, 0].int().tolist()


def logits_alone(text, rows):
    model = tiny_target()
    return model.forward([Span(model.new_cache(), text, rows)])[0].logits


def test_scattered_blocks_are_attended_over_in_order():
    """Sessions that grow in turns have interleaved blocks; each reads its own text."""
    model, pool = tiny_target(), tiny_target().new_pool(4096)
    texts = [ids(n, n) for n in (5, 40, 17)]
    caches = [pool.open(t, 1) for t in texts]
    model.forward([Span(c, t) for c, t in zip(caches, texts, strict=True)])
    for step in range(6):
        spans = []
        for i, cache in enumerate(caches):
            fresh = ids(3 + 5 * i + step, 10 * step + i)
            texts[i] = texts[i] + fresh
            spans.append(Span(cache, fresh, len(fresh)))
        for text, span, rows in zip(texts, spans, model.forward(spans), strict=True):
            want = logits_alone(text, span.rows)
            assert (rows.logits - want).abs().max() < 1e-4
    assert max(len(c.runs(c.length)) for c in caches) > 2


def test_after_any_rollback_logits_equal_a_fresh_prefill():
    model, rng = tiny_target(), random.Random(5)
    pool = model.new_pool(2048)
    text = ids(60)
    other = pool.open(text, 64)
    model.forward([Span(other, text)])
    pool.publish(other, text)
    cache = pool.open(text, 64)
    assert cache.shared == cache.length == 56
    model.forward([Span(cache, text[56:])])
    for step in range(25):
        keep = rng.randrange(len(text))
        cache.truncate(keep)  # into the shared blocks too
        fresh = ids(rng.randrange(1, 12), step)
        text = text[:keep] + fresh
        got = model.forward([Span(cache, fresh, len(fresh))])[0]
        assert (got.logits - logits_alone(text, len(fresh))).abs().max() < 1e-4
    tail = ids(4, 99)
    got = model.forward([Span(other, tail, 4)])[0].logits  # its text is as it was
    assert (got - logits_alone(ids(60) + tail, 4)).abs().max() < 1e-4


def test_a_shared_beginning_is_not_computed_again_and_gives_the_same_logits():
    model = tiny_target()
    pool, text = model.new_pool(1024), ids(100)
    first = pool.open(text, 128)
    assert first.length == 0
    model.forward([Span(first, text)])
    pool.publish(first, text)
    used = pool.used
    other = text[:70] + ids(30, 7)
    second = pool.open(other, 128)
    assert second.length == 64  # the whole blocks of the 70 tokens that agree
    assert pool.used - used == 64  # of 128
    got = model.forward([Span(second, other[64:], 36)])[0].logits
    assert (got - logits_alone(other, 36)).abs().max() < 1e-4
    # The last token is always left to compute, or there would be no row to read.
    assert pool.open(text[:64], 64).length == 64 - BLOCK


def test_nothing_is_shared_across_salts_or_different_beginnings():
    pool, text = small_pool(4096), ids(64)
    first = pool.open(text, 64, b"one")
    fill(first, text)
    pool.publish(first, text, b"one")
    assert pool.open(text, 64, b"two").length == 0
    assert pool.open(text, 64).length == 0
    assert pool.open([text[0] + 1, *text[1:]], 64, b"one").length == 0
    # The same block of text after another beginning is another block.
    assert pool.open(text[16:48] + text[:16], 64, b"one").length == 0
    assert pool.open(text, 64, b"one").length == 64 - BLOCK


def test_what_is_public_is_shared_across_salts_and_nothing_behind_it():
    pool, text = small_pool(4096), ids(64)
    pool.public = tuple(text[:21])
    first = pool.open(text, 64, b"one")
    fill(first, text)
    pool.publish(first, text, b"one")
    shared = 21 // BLOCK * BLOCK
    assert pool.open(text, 64, b"two").length == shared
    assert pool.open(text[:21] + ids(43, 7), 64).length == shared
    assert pool.open(text, 64, b"one").length == 64 - BLOCK
    # A text that begins otherwise is its own client's, and so is one that goes on otherwise.
    for at in (0, BLOCK + 1):
        other = [*text[:at], text[at] + 1, *text[at + 1 :]]
        fill(cache := pool.open(other, 64, b"one"), other[cache.length :])
        pool.publish(cache, other, b"one")
        assert pool.open(other, 64, b"one").length == 64 - BLOCK
        assert pool.open(other, 64, b"two").length == at // BLOCK * BLOCK
    assert pool.open(text[BLOCK:], 64, b"two").length == 0
    assert seen(fill(pool.open([*text[:shared], 9], 64, b"two"), [9])) == [*text[:shared], 9]


def test_writing_where_another_reads_copies():
    pool, text = small_pool(4096), list(range(100, 148))
    first = pool.open(text, 64)
    fill(first, text)
    pool.publish(first, text)
    second = pool.open([*text, 9], 64)
    assert second.table[: 48 // BLOCK] == first.table[: 48 // BLOCK]
    second.truncate(20)
    assert seen(fill(second, [1, 2, 3])) == [*text[:20], 1, 2, 3]
    whole = 20 // BLOCK
    assert second.table[:whole] == first.table[:whole]
    assert second.table[whole] != first.table[whole]
    assert seen(fill(first, [7])) == [*text, 7]


def test_writing_into_a_published_block_takes_it_out_of_the_index():
    pool, text = small_pool(4096), list(range(48))
    first = pool.open(text, 64)
    fill(first, text)
    pool.publish(first, text)
    first.truncate(20)
    fill(first, [1] * 12)
    assert pool.open([*text, 1], 64).length == 20 // BLOCK * BLOCK


def test_blocks_nobody_uses_are_found_again_until_their_memory_is_needed():
    pool, text = small_pool(8 * BLOCK, spare=1.0), list(range(3 * BLOCK))
    first = pool.open(text, len(text))
    fill(first, text)
    pool.publish(first, text)
    pool.release(first)
    pool.release(first)
    assert pool.used == 0
    second = pool.open([*text, 1], 4 * BLOCK)
    assert second.length == 3 * BLOCK
    assert seen(fill(second, [1])) == [*text, 1]
    pool.release(second)
    pool.open([5], 6 * BLOCK)  # of eight, three are only remembered: the last of them goes
    # And now the second, for the token behind the first.
    assert pool.open(text[: BLOCK + 1], BLOCK + 1).length == BLOCK
    with pytest.raises(PoolFull):
        pool.open([5], 1)


def test_too_many_blocks_are_refused_and_nothing_changes():
    pool = small_pool(4 * BLOCK)
    first = pool.open([1], 3 * BLOCK)
    long = 5 * BLOCK // 2
    fill(first, list(range(long)))
    pool.publish(first, list(range(long)))
    needed, left, room = 2 * BLOCK, BLOCK, 4 * BLOCK
    with pytest.raises(
        PoolFull, match=f"{needed} tokens of room are needed, {left} of {room} are left"
    ):
        pool.open(list(range(2 * BLOCK + 1)), 4 * BLOCK)
    assert pool.used == 3 * BLOCK
    assert pool.open([2], BLOCK).length == 0
    with pytest.raises(PoolFull):
        pool.open([3], 1)
    first.truncate(long)
    with pytest.raises(PoolFull):
        first.reserve(BLOCK)
    assert seen(fill(first, [9])) == [*range(long), 9]
    with pytest.raises(ContextOverflow, match="4097"):
        first.reserve(4097 - first.length)
    with pytest.raises(ValueError, match="cannot truncate"):
        first.truncate(long + 2)


def test_free_blocks_are_taken_in_runs():
    pool = small_pool(64 * BLOCK)
    caches = [pool.open([i], 8 * BLOCK) for i in range(8)]
    assert all(len(c.runs(8 * BLOCK)) == 1 for c in caches)
    for cache in caches[::2]:
        pool.release(cache)
    assert len(pool.open([1], 16 * BLOCK).runs(16 * BLOCK)) == 2  # two gaps of eight
    assert pool.used == 48 * BLOCK


def test_books_are_kept_over_a_thousand_random_sessions():
    """No block is lost, none is given twice, memory never passes its bound."""
    rng, pool = random.Random(3), small_pool(100 * BLOCK + 5)
    live: list = []
    refused = 0
    for step in range(1000):
        if live and rng.random() < 0.5:
            cache, text, salt = live.pop(rng.randrange(len(live)))
            pool.publish(cache, text, salt)
            pool.release(cache)
            continue
        start = rng.randrange(3)
        text = list(range(start, start + rng.randrange(1, 300)))
        salt = bytes([rng.randrange(2)])
        try:
            cache = pool.open(text, len(text) + rng.randrange(100), salt)
        except PoolFull:
            refused += 1
            continue
        assert seen(fill(cache, text[cache.length :])) == text
        if rng.random() < 0.5:
            pool.publish(cache, text, salt)
        if rng.random() < 0.3:
            keep = rng.randrange(len(text) + 1)
            cache.truncate(keep)
            text = text[:keep] + [step] * min(3, len(text) - keep)
            assert not text[keep:] or seen(fill(cache, text[keep:])) == text
        live.append((cache, text, salt))
        for other, words, _ in live:
            if words and other.length == len(words):
                other.truncate(len(words) - 1)
                assert seen(fill(other, words[-1:])) == words
        tables = [block for c, _, _ in live for block in c.table]
        assert pool.used == len(set(tables)) * BLOCK <= pool.tokens == 100 * BLOCK
        assert pool.bytes <= pool.blocks * pool.block_bytes
    assert refused > 20
    assert pool.hits > 1000
    for cache, _, _ in live:
        pool.release(cache)
    assert pool.used == 0
    assert len(pool.open([1], 100 * BLOCK).table) == 100


def test_a_counted_pool_keeps_the_same_promises():
    pool = CountedPool(tiny_target().new_cache, 100)
    first = pool.open([1, 2], 60)
    assert (first.length, pool.used) == (0, 60)
    with pytest.raises(PoolFull, match="50 tokens of room are needed, 40 of 100 are left"):
        pool.open([1], 50)
    pool.release(first)
    pool.release(first)
    assert pool.used == 0
