"""What a devnet says of its sessions' speed: beside plain decoding, and stage by stage."""

from __future__ import annotations

from typing import Any

import pytest

from node.devnet.report import COURSE, Report, print_report, stages_since
from node.devnet.sessions import one_line


def timings(**seconds: float) -> dict[str, dict[str, float]]:
    return {stage: {"total": total, "count": 1} for stage, total in seconds.items()}


def test_a_sessions_stages_are_what_all_verifiers_spent_since() -> None:
    before = [timings(verify=1.0, hash=9.0), {}]
    after = [timings(verify=1.5, hash=9.5), timings(prompt=0.25, verify=2.0)]
    found = stages_since(before, after)
    assert found.keys() == COURSE.keys()
    assert found["verify"] == 2.5
    assert found["prompt"] == 0.25
    assert sum(found.values()) == 2.75


def report(arithmetic: str) -> str:
    entry = {
        "session_id": "0x" + "ab" * 32,
        "output_tokens": 50,
        "rounds": 40,
        "accepted": 10,
        "proposed": 20,
        "trial_drafts": 4,
        "trial_drafts_right": 1,
        "seconds": 2.0,
        "first_seconds": 0.4,
        "first_tokens": 1,
        "plain_seconds": 2.5,
        "plain_first_seconds": 0.5,
        "stages": dict.fromkeys(COURSE, 0.0) | {"prompt": 0.1, "verify": 1.5, "commit": 0.2},
        "lossless_check": True,
        "near_ties": 0,
        "paid": True,
    }
    overhead = dict.fromkeys(("hash_ms_p50", "sign_ms_p50", "journal_ms_p50", "wire_ms_p50"), 0.1)
    overhead |= {"share_of_round": 0.01, "journal_durability": "normal"}
    lines: list[str] = []
    shown = Report([entry], overhead=overhead, arithmetic=arithmetic)
    print_report(shown, lambda line="": lines.append(line))
    return "\n".join(lines)


def row_after(text: str, head: str) -> list[str]:
    """The cells of the first session's row in the table whose first line has `head`."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if head in line)
    return lines[at + 1].split()


def test_each_session_stands_beside_plain_decoding() -> None:
    text = report("int8 + kernel")
    # 50 tokens in 2 s and in 2.5 s.
    assert row_after(text, "times plain")[:8] == [
        "0xabababab",
        "50",
        "40",
        "10/20",
        "1/4",
        "25.00",
        "20.00",
        "1.25",
    ]
    course = [float(cell) for cell in row_after(text, "target passes")[1:]]
    plain, first, here, *stages, rest = course
    assert (plain, first, here) == (50.0, 10.0, 40.0)
    assert dict(zip(COURSE, stages, strict=True))["verify"] == 30.0
    assert rest == pytest.approx(40.0 - 2.0 - 30.0 - 4.0)


@pytest.mark.parametrize(
    ("arithmetic", "slow"), [("int8 + kernel", False), ("int8", True), ("torch.float32", False)]
)
def test_a_missing_kernel_is_named(arithmetic: str, slow: bool) -> None:
    assert ("no native kernel" in report(arithmetic)) is slow


def test_all_sessions_together_are_tokens_over_time() -> None:
    assert "all 50 tokens: 25.0 tokens/s, plain 20.0: 1.25 times plain; 1.25" in report("int8")

    def entry(output: int, here: tuple[float, float, int], plain: tuple[float, float]) -> Any:
        seconds, first, tokens = here
        return {
            "output_tokens": output,
            "seconds": seconds,
            "first_seconds": first,
            "first_tokens": tokens,
            "plain_seconds": plain[0],
            "plain_first_seconds": plain[1],
        }

    long, short = entry(50, (2.0, 0.5, 3), (2.5, 0.9)), entry(10, (1.0, 0.1, 1), (0.5, 0.3))
    both = Report(sessions=[long, short])
    assert both.total == {
        "output_tokens": 60,
        "tokens_per_s": 20.0,
        "plain_tokens_per_s": 20.0,
        "times_plain": 1.0,
        "times_plain_after_first": pytest.approx((56 / 2.4) / (58 / 1.8)),
    }
    assert Report().total["times_plain"] == Report().total["times_plain_after_first"] == 0.0
    only = entry(1, (0.3, 0.3, 1), (0.2, 0.2))
    assert Report(sessions=[only]).total["times_plain_after_first"] == 0.0


def test_a_prompt_is_shown_on_one_line() -> None:
    assert one_line("a\nb") == "a⏎b"
    assert one_line("x" * 500) == "x" * 119 + "…"
