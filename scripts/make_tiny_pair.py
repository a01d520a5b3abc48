"""Make the tiny pair again: corpus, tokenizer, target, draft.

    python scripts/make_tiny_pair.py --hours 1.5 --out build/tiny

Target: 5.0 M parameters, by cross entropy on public-domain novels, the World English Bible and the
Python documentation. Draft: 0.76 M, by KL to the target on the same text, then by 0.3·KL + TV on
text and the target's own samples in turn. Each stage ends after its steps or its share of
``--hours``, whichever comes first; the learning rate falls to zero by then. Text comes out of
Debian packages (``scripts/draft/texts.py``), fetched by apt-get at the first run.

Writes ``target/`` and ``draft/`` (Hugging Face folders, bfloat16), ``made.json`` (what was run),
and ``heldout.jsonl``, on which ``eval_draft.py --target OUT/target --draft OUT/draft --prompts
OUT/heldout.jsonl`` measures.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from node.inference.catalog import default_cache_dir
from scripts.draft import texts
from scripts.draft.llama import Shape, Weights
from scripts.draft.samples import Job, Sampler

Document = tuple[str, str]  # source, text
EOS, PAD = "<|endoftext|>", "<|pad|>"


@dataclass(frozen=True)
class Sizes:
    """Everything that makes the pair big or small."""

    vocab: int = 3072
    target: tuple[int, int, int, int, int] = (256, 6, 8, 2, 704)  # hidden, layers, heads, kv, mlp
    draft: tuple[int, int, int, int, int] = (128, 2, 4, 2, 352)
    context: int = 1024
    batch_tokens: int = 4096
    length: int = 256
    target_steps: int = 800
    draft_steps: int = 500
    mix_steps: int = 250
    samples: int = 512  # sequences of the target's own, as long as two windows


def documents(cache: Path) -> list[Document]:
    """The corpus, cut into pieces of some thousand characters, punctuation in ASCII."""
    table = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "\t": "    "})

    def plain(text: str) -> str:
        text = text.translate(table).replace("—", "--").replace("…", "...")
        return re.sub(r"\n{3,}", "\n\n", text.encode("ascii", "ignore").decode())

    out: list[Document] = []
    for novel in texts.austen(cache):
        out += [("austen", "\n".join(novel[i : i + 40])) for i in range(0, len(novel), 40)]
    verses = texts.bible(cache)
    out += [("bible", "\n".join(verses[i : i + 60])) for i in range(0, len(verses), 60)]
    for _, rst in texts.python_docs(cache):
        out += [("pydoc", rst[i : i + 12_000]) for i in range(0, len(rst), 12_000)]
    return [(source, plain(text)) for source, text in out]


def split(corpus: list[Document], seed: int) -> tuple[list[Document], list[Document]]:
    """Shuffled by seed; one document in 33 is held out, at least one."""
    order = list(corpus)
    random.Random(f"tiny/{seed}").shuffle(order)
    held = max(1, len(order) // 33)
    return order[held:], order[:held]


def train_tokenizer(corpus: list[Document], vocab: int) -> Any:
    """Byte-level BPE, digits alone, as a Hugging Face tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[EOS, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator((text for _, text in corpus), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=EOS, eos_token=EOS, pad_token=PAD, model_max_length=1024
    )


def token_row(tokenizer: Any, corpus: list[Document]) -> np.ndarray:
    """All documents in a row, int64, each opened by the end-of-text id (0)."""
    row: list[int] = []
    for _, text in corpus:
        row += [0, *tokenizer.encode(text, add_special_tokens=False)]
    return np.array(row, dtype=np.int64)


def make_model(dimensions: tuple[int, int, int, int, int], sizes: Sizes, seed: int) -> Any:
    """A fresh tied Llama in float32."""
    from transformers import LlamaConfig, LlamaForCausalLM

    hidden, layers, heads, kv_heads, mlp = dimensions
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=sizes.vocab,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            intermediate_size=mlp,
            max_position_embeddings=sizes.context,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=1,
        )
    )


def windows(row: np.ndarray, sizes: Sizes, rng: np.random.Generator) -> Iterator[torch.Tensor]:
    """Endless batches (rows, length + 1): shuffled windows, pass after pass, at a new offset."""
    n, count = sizes.length, max(1, sizes.batch_tokens // sizes.length)
    if len(row) < 2 * n + 1:
        raise ValueError(f"a corpus of {len(row)} tokens is too short for windows of {n}")
    pending: list[np.ndarray] = []
    while True:
        offset = int(rng.integers(0, n))
        for i in rng.permutation((len(row) - offset - 1) // n):
            pending.append(row[offset + i * n : offset + i * n + n + 1])
            if len(pending) == count:
                yield torch.from_numpy(np.stack(pending))
                pending = []


def fit(
    model: Any,
    batches: Iterator[torch.Tensor],
    loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    *,
    steps: int,
    hours: float,
    lr: float,
    name: str,
) -> dict[str, float]:
    """Train until the steps or the hours are over; Muon for matrices, AdamW for the rest.

    Args:
        loss_of: (logits (n, vocabulary) float32, batch) to a scalar.
        lr: Muon's peak; AdamW has 0.6 of it.

    Returns:
        Steps, minutes and the mean loss of the last tenth.
    """
    matrices = [p for k, p in model.named_parameters() if p.ndim == 2 and "embed" not in k]
    others = [p for k, p in model.named_parameters() if p.ndim != 2 or "embed" in k]
    steppers = [
        (
            torch.optim.Muon(
                matrices, lr=lr, weight_decay=0.05, momentum=0.95, adjust_lr_fn="match_rms_adamw"
            ),
            lr,
        ),
        (torch.optim.AdamW(others, lr=0.6 * lr, betas=(0.9, 0.95), weight_decay=0.0), 0.6 * lr),
    ]
    device = model.device.type
    start, history, step = time.monotonic(), [], 0
    model.train()
    while True:
        part = max(step / steps, (time.monotonic() - start) / (hours * 3600))
        if part >= 1.0 and step > 0:
            break
        rate = min(1.0, (step + 1) / 40) * min(1.0, max(0.02, (1.0 - part) / 0.65))
        batch = next(batches).to(model.device)
        with torch.autocast(device, torch.bfloat16):
            logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        loss = loss_of(logits.float().reshape(-1, logits.shape[-1]), batch)
        for stepper, _ in steppers:
            stepper.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        for stepper, peak in steppers:
            for group in stepper.param_groups:
                group["lr"] = peak * rate
            stepper.step()
        history.append(loss.item())
        step += 1
        if step % 50 == 0:
            spent = (time.monotonic() - start) / 60
            left = spent * (1 / max(part, 1e-6) - 1)
            print(f"{name} step {step}: loss {history[-1]:.3f}, {left:.0f} min left", flush=True)
    model.eval()
    tail = history[-max(1, len(history) // 10) :]
    minutes = (time.monotonic() - start) / 60
    return {"steps": step, "minutes": round(minutes, 2), "loss": round(float(np.mean(tail)), 4)}


def own_text(model: Any, prompts: list[list[int]], length: int, seed: int) -> np.ndarray:
    """The target's continuations at temperature 1, prompts included, in one row (int64)."""
    tensors = {k: v.detach().to(torch.bfloat16) for k, v in model.state_dict().items()}
    weights = Weights(tensors, Shape.of(model.config.to_dict()))
    sampler = Sampler(
        weights,
        tensors["model.embed_tokens.weight"],
        slots=min(64, len(prompts)),
        length=length,
        eos=0,
        rng=np.random.default_rng([seed, 3]),
        k=min(48, weights.shape.vocab),
    )
    jobs = (Job(prompt, 1.0, length, tag=i) for i, prompt in enumerate(prompts))
    return np.concatenate([s.tokens.astype(np.int64) for s in sampler.run(jobs)])


def make(
    corpus: list[Document], out: Path, sizes: Sizes, *, hours: float, seed: int, device: str
) -> dict[str, Any]:
    """Train the pair on a corpus and write it; gives back what ``made.json`` holds."""
    learn, held = split(corpus, seed)
    tokenizer = train_tokenizer(learn, sizes.vocab)
    row = token_row(tokenizer, learn)
    print(f"{len(learn)} documents, {len(row)} tokens, {len(held)} documents held out", flush=True)
    made: dict[str, Any] = {"seed": seed, "sizes": asdict(sizes), "tokens": len(row)}
    # How the hours are divided when they run out before the steps do.
    shares = {"target": 0.60, "draft": 0.25, "mix": 0.15}

    target = make_model(sizes.target, sizes, seed).to(device)
    made["target"] = fit(
        target,
        windows(row, sizes, np.random.default_rng([seed, 0])),
        lambda logits, batch: F.cross_entropy(logits, batch[:, 1:].reshape(-1)),
        steps=sizes.target_steps,
        hours=hours * shares["target"],
        lr=5e-3,
        name="target",
    )

    def divergences(logits: torch.Tensor, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad(), torch.autocast(device, torch.bfloat16):
            wanted = target(input_ids=batch[:, :-1], use_cache=False).logits
        logp = wanted.float().reshape(logits.shape).log_softmax(-1)
        logq = logits.log_softmax(-1)
        kl = F.kl_div(logq, logp, log_target=True, reduction="batchmean")
        return kl, 0.5 * (logq.exp() - logp.exp()).abs().sum(-1).mean()

    draft = make_model(sizes.draft, sizes, seed + 1).to(device)
    made["draft"] = fit(
        draft,
        windows(row, sizes, np.random.default_rng([seed, 1])),
        lambda logits, batch: divergences(logits, batch)[0],
        steps=sizes.draft_steps,
        hours=hours * shares["draft"],
        lr=5e-3,
        name="draft, KL",
    )

    rng = np.random.default_rng([seed, 2])
    starts = rng.integers(0, len(row) - 24, sizes.samples)
    prompts = [[0, *row[i : i + 24].tolist()] for i in starts]
    own = own_text(target, prompts, min(sizes.context, 2 * sizes.length), seed)
    made["own_tokens"] = len(own)

    def in_turn() -> Iterator[torch.Tensor]:
        real, sampled = windows(row, sizes, rng), windows(own, sizes, rng)
        while True:
            yield next(real)
            yield next(sampled)

    def mixed(logits: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        kl, tv = divergences(logits, batch)
        return 0.3 * kl + tv

    made["mix"] = fit(
        draft,
        in_turn(),
        mixed,
        steps=sizes.mix_steps,
        hours=hours * shares["mix"],
        lr=2e-3,
        name="draft, TV",
    )

    for name, model in (("target", target), ("draft", draft)):
        model.to(torch.bfloat16).save_pretrained(out / name)
        tokenizer.save_pretrained(out / name)
    openings = [{"kind": source, "prompt": text[:400]} for source, text in held if len(text) >= 400]
    (out / "heldout.jsonl").write_text("".join(json.dumps(o) + "\n" for o in openings))
    (out / "made.json").write_text(json.dumps(made, indent=1) + "\n")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Command line; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--cache", type=Path, default=default_cache_dir() / "train")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    corpus = documents(options.cache)
    made = make(
        corpus,
        options.out,
        Sizes(),
        hours=options.hours,
        seed=options.seed,
        device=options.device,
    )
    print(json.dumps(made, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
