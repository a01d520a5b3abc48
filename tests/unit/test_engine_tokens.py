"""Text and ids: comparison of vocabularies, chat templates, streaming without broken characters."""

from __future__ import annotations

import json
import random
import shutil

import pytest
from engine_models import TINY, tiny_tokenizer

from node.inference.tokens import (
    TextStream,
    Tokenizer,
    TokenizerError,
    TokenizerMismatch,
    incomplete_suffix,
    require_same_tokens,
)

SAMPLES = [
    "Plain words, and  two spaces.\n\tTabs",
    "naïve café — “quotes” …",
    "日本語のテキスト と emoji 👩‍🚀🎉",
    "1234567 3.14 <|endoftext|> <b>x</b>",
    "\x00\x7f�",
]


def changed(tmp_path, edit):
    """The tiny tokenizer with tokenizer.json edited."""
    shutil.copytree(TINY / "target", tmp_path / "m")
    path = tmp_path / "m" / "tokenizer.json"
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))
    return Tokenizer.load(tmp_path / "m")


def test_bytes_of_tokens_concatenate_to_the_text():
    tokenizer = tiny_tokenizer()
    for text in SAMPLES:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
    assert tokenizer.size == 3072 == len(tokenizer.vocabulary)
    for token, text in enumerate(tokenizer.vocabulary):
        assert tokenizer.token_bytes(token) == (b"" if token in tokenizer.control_ids else text)
    assert [tokenizer.token_bytes(i) for i in (-1, 3072, 1 << 32)] == [b"", b"", b""]


def test_one_tokens_text_does_not_cost_the_whole_vocabularys():
    tokenizer = Tokenizer.load(TINY / "target")
    assert tokenizer.token_bytes(tokenizer.encode("a")[0]) == b"a"
    assert "vocabulary" not in vars(tokenizer)


def test_control_tokens_in_user_text_are_letters():
    tokenizer = tiny_tokenizer()
    assert 0 not in tokenizer.encode("a<|endoftext|>b")
    assert tokenizer.encode_template("a<|endoftext|>b").count(0) == 1
    assert tokenizer.token_bytes(0) == b""
    assert tokenizer.control_ids == {0, 1}


def test_streamed_text_is_whole_characters_and_loses_nothing():
    tokenizer = tiny_tokenizer()
    for text in SAMPLES:
        stream = TextStream(tokenizer.token_bytes)
        pieces = [stream.push([i]) for i in tokenizer.encode(text)]
        assert all("�" not in p for p in pieces) or "�" in text
        assert "".join(pieces) + stream.finish() == text


def test_a_stream_ends_with_half_a_character_only_at_the_finish():
    pieces = [b"a\xe6", b"\x97", b"\xa5b", b"\xf0\x9f"]
    stream = TextStream(pieces.__getitem__)
    assert [stream.push([i]) for i in range(4)] == ["a", "", "日b", ""]
    assert stream.finish() == "�"
    assert stream.finish() == ""


def test_streams_hold_back_what_may_become_a_stop_string():
    rng = random.Random(4)
    data, stops = "one END two ENDING three", ("ENDING", " thx")
    for _ in range(200):
        cuts = sorted(rng.sample(range(1, len(data)), 5))
        pieces = [data[a:b].encode() for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        stream = TextStream(pieces.__getitem__, stops)
        shown = [stream.push([i]) for i in range(len(pieces))]
        assert "".join(shown) == "one END two "
        assert stream.finish() == ""
    stream = TextStream([b"almost END"].__getitem__, stops)
    assert stream.push([0]) == "almost "
    assert stream.finish() == "END"


@pytest.mark.parametrize(
    ("data", "held"),
    [
        (b"", 0),
        (b"a", 0),
        (b"\xc3", 1),
        (b"\xc3\xa9", 0),
        (b"\xe2\x82", 2),
        (b"\xf0\x9f\x8e", 3),
        (b"\xf0\x9f\x8e\x89", 0),
        (b"\x80\x80\x80\x80", 0),
        (b"\xff", 0),
    ],
)
def test_incomplete_suffix(data, held):
    assert incomplete_suffix(data) == held


def test_the_tiny_pair_fits():
    require_same_tokens(Tokenizer.load(TINY / "draft"), tiny_tokenizer(), 3072)
    assert Tokenizer.load(TINY / "draft").vocabulary_hash == tiny_tokenizer().vocabulary_hash


def test_reordered_ids_of_equal_count_are_refused(tmp_path):
    def swap(data):
        vocab = data["model"]["vocab"]
        a, b = (next(t for t, i in vocab.items() if i == n) for n in (1000, 1001))
        vocab[a], vocab[b] = 1001, 1000

    other = changed(tmp_path, swap)
    assert other.size == 3072
    with pytest.raises(TokenizerMismatch, match="id 1000") as refused:
        require_same_tokens(other, tiny_tokenizer(), 3072)
    assert refused.value.token_id == 1000
    assert other.vocabulary_hash != tiny_tokenizer().vocabulary_hash


def test_other_counts_control_flags_and_too_small_embeddings_are_refused(tmp_path):
    token = {
        "id": 3072,
        "content": "<|new|>",
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    more = changed(tmp_path, lambda data: data["added_tokens"].append(token))
    with pytest.raises(TokenizerMismatch, match="3073 tokens to the draft"):
        require_same_tokens(more, tiny_tokenizer(), 3073)
    with pytest.raises(TokenizerMismatch, match="3072 tokens to the draft"):
        require_same_tokens(tiny_tokenizer(), more, 3072)
    with pytest.raises(TokenizerMismatch, match="3000 rows"):
        require_same_tokens(tiny_tokenizer(), tiny_tokenizer(), 3000)
    require_same_tokens(tiny_tokenizer(), tiny_tokenizer(), 4096)  # padding is fine
    plain = changed(tmp_path / "b", lambda data: data["added_tokens"][0].update(special=False))
    with pytest.raises(TokenizerMismatch, match="control token"):
        require_same_tokens(plain, tiny_tokenizer(), 3072)


def test_unusable_tokenizers_are_refused(tmp_path):
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match="not a tokenizer"):
        Tokenizer.load(tmp_path)

    def word_piece(data):
        data["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}

    with pytest.raises(TokenizerError, match="WordPiece"):
        changed(tmp_path / "w", word_piece)


def test_sentencepiece_tokens_have_bytes(tmp_path):
    def sentence_piece(data):
        data["decoder"] = {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        }
        data["model"]["vocab"] = {
            "<|endoftext|>": 0,
            "<|pad|>": 1,
            "▁the": 2,
            "<0xE6>": 3,
            "a▁b": 4,
        }
        data["model"]["merges"] = []

    tokenizer = changed(tmp_path, sentence_piece)
    assert tokenizer.vocabulary[2:] == (b" the", b"\xe6", b"a b")


TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{{ eos_token }}{% endif %}"
)


def with_template(tmp_path, template):
    shutil.copytree(TINY / "target", tmp_path / "m")
    path = tmp_path / "m" / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": template}))
    return Tokenizer.load(tmp_path / "m"), tmp_path / "m"


@pytest.mark.slow
def test_chat_templates_render_as_transformers_does(tmp_path):
    from transformers import AutoTokenizer

    tokenizer, folder = with_template(tmp_path, TEMPLATE)
    messages = [{"role": "system", "content": " S "}, {"role": "user", "content": "été <x>"}]
    theirs = AutoTokenizer.from_pretrained(folder)
    want = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert tokenizer.render(messages) == want
    assert tokenizer.chat(messages)[-1] == 0  # the control token in the template is meant
    assert tokenizer.template_hash != tiny_tokenizer().template_hash == bytes(32)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('no system role') }}", "no system role"),
        ("{{ ''.__class__.__mro__ }}", "fails"),
        ("{% for x in", "fails"),
        ("{{ messages[5].role.a }}", "fails"),
        ("{{ 1 // 0 }}", "fails"),
        ("{{ range(10 ** 9) }}", "fails"),
        ("{{ ''.encode('nope') }}", "fails"),
    ],
)
def test_failing_or_hostile_templates_are_refused(tmp_path, template, message):
    tokenizer, _ = with_template(tmp_path, template)
    with pytest.raises(TokenizerError, match=message):
        tokenizer.chat([{"role": "user", "content": "hi"}])


def test_the_opening_is_what_every_conversation_begins_with(tmp_path):
    tokenizer, _ = with_template(tmp_path, "<system>You are kind.\n" + TEMPLATE)
    assert tokenizer.opening == tuple(
        tokenizer.encode_template("<system>You are kind.\n<user>x")[: len(tokenizer.opening)]
    )
    for words in ("Why?", "été", "9"):
        chat = tokenizer.chat([{"role": "user", "content": words}])
        assert tuple(chat[: len(tokenizer.opening)]) == tokenizer.opening
    assert "You are kind." in tokenizer.decode(tokenizer.opening)
    assert tiny_tokenizer().opening == ()


def test_no_template_is_said_so():
    with pytest.raises(TokenizerError, match="no chat template"):
        tiny_tokenizer().chat([{"role": "user", "content": "hi"}])
