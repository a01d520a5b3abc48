"""Training prompts: some spoken by the target itself, the rest set up from free texts.

A model tuned for chat, given only the opening of a user's turn, says what a user would say; about
four in ten prompts come about so and follow no template of ours. The others put words and passages
of ``texts`` into the templates below. Prompts for measuring are kept apart, in ``heldout.jsonl``:
written by hand, none made from these templates or texts.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from scripts.draft import texts

SELF_SHARE = 0.60
KINDS = ("question", "chat", "code", "summary", "maths")

_QUESTION = (
    "What is {a} {n}?",
    "What is meant by the word {n}?",
    "Explain {n} to a ten-year-old.",
    "What is the difference between {a} {n} and {a2} {n2}?",
    "Give me three interesting facts about {n}.",
    "How does {a} {n} relate to {a2} {n2}?",
    "Why does {n} matter?",
    "Describe {a} {n} in two sentences.",
    "What are the main kinds of {n}?",
    "Who would need {a} {n}, and for what?",
    "What is the history of {n}?",
    "List the advantages and disadvantages of {n}.",
    "In which situations is {n} a bad idea?",
    "Define {n}. Then use the word in a sentence.",
    "tell me about {n}",
)
_CHAT = (
    "I want to learn more about {n}. Where should I start?",
    "Write a short story about {a} {n} and {a2} {n2}.",
    "Write a poem about {n}.",
    "Write a friendly email to a colleague about {n}.",
    "My friend is obsessed with {n}. What could I give them as a present?",
    "Give me five ideas for a blog post about {n}.",
    "Pretend that you are {a} {n}. Introduce yourself.",
    "Write a dialogue between {a} {n} and {a2} {n2}.",
    "I am worried about {n}. What should I do?",
    "Can you recommend some activities that have to do with {n}?",
    "Suggest a title for a book about {n} and {n2}.",
    "Plan a lesson on {n} for beginners.",
    "Convince me that {n} is more important than {n2}.",
    "Create a slogan for a company that sells {n}.",
    "Write a product review of {a} {n}.",
    "hi! can we talk about {n}?",
)
_CODE = (
    "Explain what this Python function does:\n\n```python\n{f}\n```",
    "Write a docstring for this function:\n\n{f}",
    "How could the following code be improved?\n\n```\n{f}\n```",
    "Write a unit test for this function.\n\n{f}",
    "Write a Python function that takes a list of {n} records and returns the {adj} one.",
    "Write a Python class named {c} with a constructor and two methods.",
    "Show me how to use the {m} module in Python with a small example.",
    "Write a JavaScript function which filters {n} objects by name.",
    "Write an SQL query that counts the rows of a table called {n} by {n2}.",
    "Write a Python function to {task}.",
    "What does this code print?\n\n{f}",
)
_SUMMARY = (
    "Summarize this text:\n\n{p}",
    "Summarize the following passage in one sentence.\n\n{p}",
    "{p}\n\nWhat is the main point of this text?",
    "Rewrite the following text in simpler words:\n\n{p}",
    "Extract the three most important points from this text:\n\n{p}",
    "Give a title to this passage:\n\n{p}",
    "Read this and answer: who or what is it about?\n\n{p}",
    "TL;DR of this please: {p}",
)
_MATHS = (
    "{who} has {x} {n}s and buys {y} more. Then {who} gives away {z}. How many are left?",
    "What is {x} + {y}?",
    "What is {x} times {z}?",
    "Calculate {x} - {y} + {z}.",
    "A {n} costs ${x}. How much do {z} of them cost?",
    "If {who} drives {x} miles in {z} hours, what is the average speed?",
    "What is {z}% of {x}0?",
    "Solve for x: {z}x + {y} = {x}",
    "The sides of a rectangle are {x} cm and {y} cm. What are its area and perimeter?",
    "A class of {x} students is split into groups of {z}. How many groups are there?",
    "{who} reads {z} pages a day. How long does a book of {x} pages take?",
    "List the first five multiples of {z}.",
    "Is {x} a prime number? Explain your answer.",
    "What is the average of {x}, {y} and {z}?",
)
_WHO = ("Anna", "Ben", "Maria", "Omar", "Priya", "Tom", "Lucy", "Chen", "Sara", "David")
_MODULES = (
    "json", "csv", "re", "datetime", "itertools", "collections", "random", "math", "os", "pathlib",
    "argparse", "logging", "threading", "sqlite3", "statistics", "heapq", "functools", "asyncio",
)  # fmt: skip
_TASKS = (
    "reverse a string", "count the vowels in a sentence", "merge two sorted lists",
    "find the largest number in a list", "check whether a word is a palindrome",
    "compute the factorial of a number", "remove duplicates from a list",
    "convert Celsius to Fahrenheit", "sort a list of tuples by the second element",
    "count how often each word occurs in a text", "generate the Fibonacci numbers",
    "read a file and print its lines", "flatten a nested list", "find common elements of two lists",
    "calculate the average of a list", "check whether a number is even", "capitalise each word",
)  # fmt: skip
_ADJECTIVES = ("newest", "cheapest", "longest", "heaviest", "most frequent", "oldest")
# Kinds of noun in WordNet that make sensible topics: act, animal, artifact, body, thinking,
# communication, event, feeling, food, place, natural object, phenomenon, plant, process, substance.
_TOPICS = frozenset({4, 5, 6, 8, 9, 10, 11, 12, 13, 15, 17, 19, 20, 22, 27})


@dataclass(frozen=True)
class Material:
    """What the templates are filled with."""

    nouns: list[texts.Noun]
    functions: list[tuple[str, str]]
    passages: list[str]

    @staticmethod
    def load(cache: Path) -> Material:
        """Read the sources, fetching those that are not in ``cache`` yet."""
        docs = [p for _, rst in texts.python_docs(cache) for p in texts.prose(rst)]
        novels = [p for novel in texts.austen(cache) for p in novel]
        verses = texts.bible(cache)
        chapters = [" ".join(verses[i : i + 5]) for i in range(0, len(verses), 5)]
        passages = [p for p in docs + novels + chapters if 200 <= len(p) <= 700]
        nouns = [n for n in texts.nouns(cache) if n.kind in _TOPICS]
        return Material(nouns, texts.python_functions(cache, longest=600), passages)


def training_prompt(index: int, material: Material, seed: int) -> tuple[str, str] | None:
    """(kind, text) of prompt ``index``; None where the target is to speak the user's turn itself.

    A function of its arguments alone, so that an interrupted run goes on where it stopped.
    """
    rng = random.Random(f"prompt/{seed}/{index}")
    if rng.random() < SELF_SHARE:
        return None
    kind = rng.choices(KINDS, weights=(30, 27, 18, 15, 10))[0]
    # A third of the topics from the thousand nouns that are used most.
    pool = material.nouns[:1000] if rng.random() < 0.33 else material.nouns
    one, two = rng.choice(pool).word, rng.choice(pool).word
    x, y, z = rng.randint(11, 400), rng.randint(2, 99), rng.randint(2, 20)
    template = rng.choice(
        {"question": _QUESTION, "chat": _CHAT, "code": _CODE, "summary": _SUMMARY, "maths": _MATHS}[
            kind
        ]
    )
    text = template.format(
        n=one,
        n2=two,
        a=_article(one),
        a2=_article(two),
        f=rng.choice(material.functions)[1],
        p=rng.choice(material.passages),
        c="".join(part.capitalize() for part in one.replace("-", " ").split()),
        m=rng.choice(_MODULES),
        task=rng.choice(_TASKS),
        adj=rng.choice(_ADJECTIVES),
        who=rng.choice(_WHO),
        x=x,
        y=y,
        z=z,
    )
    return kind, text


def _article(word: str) -> str:
    return "an" if word[0].lower() in "aeiou" else "a"
