"""What a devnet run measured: tables for people, one JSON object for machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Final

from node.devnet.books import Settled
from node.roles.receipt import Checked
from settlement import alpha
from settlement.records import BUCKETS, Sums

TOKEN: Final = 10**18
POSITIONS: Final = ("<16", "<64", "<256", "≥256")
CONFIDENCE: Final = ("≥.9", "≥.6", "≥.3", "<.3")
STAGES: Final = ("hash", "sign", "journal")
# A verifier's stages, one after the other, and what a person calls them.
COURSE: Final = {
    "prompt": "prompt",
    "verify": "target passes",
    "draft_wait": "waiting for drafts",
    "commit": "records",
    "queue": "between threads",
    "payment": "waiting for vouchers",
}
Show = Callable[[str], None]


@dataclass
class Report:
    """Everything a run has to say; filled as the run goes."""

    sessions: list[dict[str, Any]] = field(default_factory=list)
    settlements: list[Settled] = field(default_factory=list)
    sums: Sums = field(default_factory=Sums)
    accounts: dict[str, dict[str, Any]] = field(default_factory=dict)
    conservation: dict[str, Any] = field(default_factory=dict)
    overhead: dict[str, Any] = field(default_factory=dict)
    draws: dict[str, int] = field(default_factory=dict)
    audits: list[dict[str, Any]] = field(default_factory=list)
    tickets: dict[str, int] = field(default_factory=dict)
    audit_cost: dict[str, Any] = field(default_factory=dict)
    contracts: dict[str, str] = field(default_factory=dict)
    faults: list[Any] = field(default_factory=list)
    prices: tuple[int, int] = (0, 0)
    arithmetic: str = ""  # what the target's products run on

    @property
    def total(self) -> dict[str, Any]:
        """All sessions together: their tokens over their time, and over that of plain decoding; and
        the latter once more from the first round on, for a verifier runs less of the prompts."""

        def total(name: str) -> Any:
            return sum(entry[name] for entry in self.sessions)

        output, here, plain = total("output_tokens"), total("seconds"), total("plain_seconds")
        later = output - total("first_tokens"), here - total("first_seconds")
        alone = output - len(self.sessions), plain - total("plain_first_seconds")
        return {
            "output_tokens": output,
            "tokens_per_s": output / here if here else 0.0,
            "plain_tokens_per_s": output / plain if plain else 0.0,
            "times_plain": plain / here if here else 0.0,
            "times_plain_after_first": after_first(*later, *alone),
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "arithmetic": self.arithmetic,
            "sessions": self.sessions,
            "total": self.total,
            "settlements": [asdict(settled) for settled in self.settlements],
            "alpha": [
                {
                    "bucket": bucket,
                    "proposed": self.sums.proposed_by_bucket[bucket],
                    "accepted": self.sums.accepted_by_bucket[bucket],
                }
                for bucket in range(BUCKETS)
            ],
            "accounts": self.accounts,
            "conservation": self.conservation,
            "overhead": self.overhead,
            "draws": self.draws,
            "audits": self.audits,
            "tickets": self.tickets,
            "audit_cost": self.audit_cost,
            "contracts": self.contracts,
            "faults": self.faults,
        }


def after_first(tokens: int, seconds: float, plain_tokens: int, plain_seconds: float) -> float:
    """Tokens per second behind the first round, over plain decoding's behind the first token; 0
    where nothing came behind them."""
    if min(tokens, seconds, plain_tokens, plain_seconds) <= 0:
        return 0.0
    return (tokens / seconds) / (plain_tokens / plain_seconds)


def stages_since(
    before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]
) -> dict[str, float]:
    """Seconds that verifiers spent in each stage between two looks at all their timings."""

    def total(looks: Sequence[dict[str, Any]], stage: str) -> float:
        return sum(look.get(stage, {}).get("total", 0.0) for look in looks)

    return {stage: round(total(after, stage) - total(before, stage), 6) for stage in COURSE}


def session_entry(done: dict[str, Any], checked: Checked) -> dict[str, Any]:
    """One session of the JSON: what the client said, beside plain decoding."""
    plain = done["plain"]
    kept = (
        "session_id",
        "prompt",
        "text",
        "token_ids",
        "mode",
        "temperature",
        "seed",
        "tier",
        "target_model",
        "draft_model",
        "rounds",
        "proposed",
        "accepted",
        "output_tokens",
        "seconds",
        "first_seconds",
        "first_tokens",
        "drafter",
        "verifier",
        "receipt_path",
    )
    return {
        **{name: done[name] for name in kept},
        "sessions": done["sessions"],
        "trial_drafts": done["tried"][0],
        "trial_drafts_right": done["tried"][1],
        "stages": done["stages"],
        "plain_seconds": plain.seconds,
        "plain_first_seconds": plain.first_seconds,
        "lossless_check": plain.lossless,
        "near_ties": plain.near_ties,
        "plain_difference": plain.difference,
        "receipt_checks": checked.checks,
        "paid": checked.paid,
    }


def sums_of(rounds: Sequence[Any]) -> Sums:
    """What all rounds of a run add up to."""
    total = Sums()
    for done in rounds:
        total = total + alpha.round_sums(done.verdict.leaves)
    return total


def overhead(timings: dict[str, dict[str, Any]], wire_seconds: Sequence[float]) -> dict[str, Any]:
    """Milliseconds per party and round, from the nodes' own timings (role → stage → figures)."""

    def p50(role: str, stage: str) -> float:
        figures = timings.get(role, {}).get(stage)
        return 0.0 if not figures or figures["p50"] is None else figures["p50"] * 1e3

    both = {
        stage: [p50(role, stage) for role in ("drafter", "verifier") if p50(role, stage)]
        for stage in STAGES
    }
    worst = {stage: max(values, default=0.0) for stage, values in both.items()}
    whole = p50("verifier", "round")
    return {
        **{f"{stage}_ms_p50": round(worst[stage], 4) for stage in STAGES},
        "wire_ms_p50": round(median(wire_seconds) * 1e3, 4) if wire_seconds else None,
        "share_of_round": round(sum(worst.values()) / whole, 4) if whole else None,
        "round_ms_p50": round(whole, 4),
        "check_ms_p50": {
            role: round(p50(role, "check"), 4) for role in ("client", "drafter", "verifier")
        },
        "per_party": {
            role: {stage: round(p50(role, stage), 4) for stage in STAGES}
            for role in ("drafter", "verifier", "client")
        },
        "journal_durability": "normal",
    }


def audit_cost(rerun: float, verify: float) -> dict[str, Any]:
    """Seconds that all auditors took to run the target again, beside what the verifiers' passes
    took; model loading counts in neither."""
    return {
        "rerun_seconds": round(rerun, 4),
        "verify_seconds": round(verify, 4),
        "share": round(rerun / verify, 4) if verify else None,
    }


# ---------------------------------------------------------------- for people


def table(show: Show, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A plain table; numbers to the right."""
    text = [[_cell(cell) for cell in row] for row in rows]
    widths = [
        max(len(head), *(len(row[i]) for row in text), 1) if text else len(head)
        for i, head in enumerate(heads)
    ]
    show("  " + "  ".join(head.ljust(width) for head, width in zip(heads, widths, strict=True)))
    for row, raw in zip(text, rows, strict=True):
        cells = [
            cell.rjust(width) if isinstance(value, int | float) else cell.ljust(width)
            for cell, value, width in zip(row, raw, widths, strict=True)
        ]
        show("  " + "  ".join(cells))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 0.1 else f"{value:.2f}"
    return str(value)


def tokens(units: int | str) -> str:
    """Smallest units as tokens, exact."""
    whole, part = divmod(int(units), TOKEN)
    return f"{whole}.{part:018d}".rstrip("0").rstrip(".")


def print_report(report: Report, show: Show) -> None:
    """The whole report."""
    if report.sessions:
        _print_sessions(report, show)
        _print_alpha(report, show)
    _print_money(report, show)
    _print_gas(report, show)
    _print_rest(report, show)


def _print_sessions(report: Report, show: Show) -> None:
    show("\nsessions (plain: the target alone, right after, same weights and arithmetic)")
    rows: list[Sequence[Any]] = []
    for entry in report.sessions:
        output, seconds, plain = (
            entry["output_tokens"],
            entry["seconds"],
            entry["plain_seconds"],
        )
        same = {True: "same text", False: "DIFFERS", None: "law only"}[entry["lossless_check"]]
        rows.append(
            (
                entry["session_id"][:10],
                output,
                entry["rounds"],
                f"{entry['accepted']}/{entry['proposed']}",
                f"{entry['trial_drafts_right']}/{entry['trial_drafts']}",
                output / seconds if seconds else 0.0,
                output / plain if plain else 0.0,
                plain / seconds if seconds else 0.0,
                same,
                entry["near_ties"],
                "paid" if entry["paid"] else "UNPAID",
            )
        )
    heads = ("session", "tokens", "rounds", "accepted/proposed", "right/tried", "tokens/s")
    table(show, (*heads, "plain tokens/s", "times plain", "check", "near-ties", "receipt"), rows)
    if any(entry["trial_drafts"] for entry in report.sessions):
        show("  tried: drafts asked for to learn what they would be worth; no round waits for them")
    total = report.total
    show(
        f"  all {total['output_tokens']} tokens: {total['tokens_per_s']:.1f} tokens/s, plain "
        f"{total['plain_tokens_per_s']:.1f}: {total['times_plain']:.2f} times plain; "
        f"{total['times_plain_after_first']:.2f} from the first round on"
    )
    _print_course(report, show)


def _print_course(report: Report, show: Show) -> None:
    """Where the sessions' time went, and what the same text takes without anybody else."""
    show(f"\nwhere the time went, ms per token (products: {report.arithmetic})")
    rows: list[Sequence[Any]] = []
    for entry in report.sessions:
        each = 1e3 / max(entry["output_tokens"], 1)
        spent = [entry["stages"][stage] for stage in COURSE]
        rest = max(entry["seconds"] - sum(spent), 0.0)
        plain = (entry["plain_seconds"] * each, entry["plain_first_seconds"] * each)
        here = (entry["seconds"] * each, *(s * each for s in spent), rest * each)
        rows.append((entry["session_id"][:10], *plain, *here))
    table(show, ("session", "plain", "its prompt", "here", *COURSE.values(), "rest"), rows)
    show(
        "  a verifier runs the chat template's first lines once, and what a client's prompts have "
        "in common; plain decoding runs every prompt whole"
    )
    show("  records are made beside the next pass where no draft is awaited: stages may overlap")
    if report.arithmetic.startswith("int8") and "kernel" not in report.arithmetic:
        show("  no native kernel (no C compiler, or switched off): passes take about twice as long")


def _print_alpha(report: Report, show: Show) -> None:
    show("\nα per bucket (accepted/reached; rows: output position, columns: target's confidence)")
    rows = []
    for row, name in enumerate(POSITIONS):
        cells = []
        for column in range(4):
            bucket = 4 * row + column
            proposed = report.sums.proposed_by_bucket[bucket]
            accepted = report.sums.accepted_by_bucket[bucket]
            cells.append(f"{accepted}/{proposed}" if proposed else "-")
        rows.append((name, *cells))
    table(show, ("position", *CONFIDENCE), rows)


def _print_money(report: Report, show: Show) -> None:
    show("\naccounts (tokens)")
    rows = [
        (
            name,
            account["role"],
            tokens(account["earned"]),
            tokens(account["stake"]),
            tokens(account["payable"]),
            tokens(account["withdrawn"]),
            tokens(account["bonds_back"]),
        )
        for name, account in report.accounts.items()
    ]
    table(show, ("operator", "role", "earned", "stake", "payable", "withdrawn", "bonds back"), rows)
    terms = {k: v for k, v in report.conservation.items() if k != "ok"}
    parts = " + ".join(f"{k} {tokens(v)}" for k, v in terms.items() if k != "deposited")
    verdict = "holds to the unit" if report.conservation.get("ok") else "DOES NOT HOLD"
    show(f"  conservation {verdict}: deposited {tokens(terms.get('deposited', 0))} = {parts}")


def _print_gas(report: Report, show: Show) -> None:
    show("\nsettlements")
    rows = [
        (
            settled.tx[:12],
            settled.lane[:10],
            settled.output_delta,
            settled.accepted_delta,
            tokens(settled.due_drafter_delta),
            tokens(settled.due_verifier_delta),
            settled.gas_used // settled.lanes_in_tx,
            settled.gas_used / settled.lanes_in_tx / settled.accepted_delta
            if settled.accepted_delta
            else None,
        )
        for settled in report.settlements
    ]
    heads = ("transaction", "lane", "output", "accepted", "to drafter", "to verifier")
    table(show, (*heads, "gas", "gas/accepted"), rows)


def _print_rest(report: Report, show: Show) -> None:
    over = report.overhead
    show("\noverhead per party and round (p50, the slower of drafter and verifier)")
    show(
        f"  hash {over['hash_ms_p50']} ms, sign {over['sign_ms_p50']} ms, journal "
        f"{over['journal_ms_p50']} ms (SQLite WAL, synchronous={over['journal_durability']}), "
        f"wire {over['wire_ms_p50']} ms; all but the wire: "
        f"{100 * (over['share_of_round'] or 0):.1f} % of a round"
    )
    draws = report.draws
    show(
        f"\ndraws: {draws.get('drawn', 0)} lanes drawn, {draws.get('opened', 0)} of "
        f"{draws.get('samples', 0)} positions opened; faults: {len(report.faults)}"
    )
    _print_audits(report, show)


def _print_audits(report: Report, show: Show) -> None:
    audits = report.audits
    sessions = {audit["session_id"] for audit in audits}
    auditors = {audit["auditor"] for audit in audits}
    show(
        f"audits: {len(sessions)} sessions re-run by {len(auditors)} auditors, "
        f"{sum(audit['mismatches'] for audit in audits)} mismatches, "
        f"{sum(audit['near_ties'] for audit in audits)} near-ties, largest fingerprint distance "
        f"{max((a['fingerprint_distance'] or 0 for a in audits), default=0)}"
    )
    for audit in audits:
        if audit["verdict"] != "clean":
            show(
                f"  {audit['auditor']} on {audit['verifier_name']}: {audit['verdict'].upper()}: "
                f"{audit['reason']}"
            )
    paid = report.tickets
    if paid:
        show(
            f"audits on chain: {paid['named']} drawn tokens, {paid['cleared']} found right, "
            f"{paid['answers']} answers ({paid['withheld']} withheld); {paid['payments']} payments "
            f"of {tokens(paid['fees'])} tokens in all, out of the audit fees"
        )
    cost = report.audit_cost
    if cost.get("verify_seconds"):
        show(
            f"  re-runs took {cost['rerun_seconds']:.2f} s in all, the verifiers' own passes "
            f"{cost['verify_seconds']:.2f} s"
        )
