"""Values as tables for a terminal."""

import re
from collections import Counter
from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from agentmem.context import Imbalance
from agentmem.memory import Audit
from agentmem.protocols import Hit, IndexStatus
from agentmem.store import StaleSession
from agentmem.types import (
    Health,
    Pin,
    Prompt,
    Replacement,
    Reply,
    SessionInfo,
    StoredMessage,
    TruncationRecord,
)

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> Text:
    """Return *text* without markup and without control characters, which could steer a terminal."""
    return Text(_CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text))


def shorten(text: str, limit: int = 72) -> str:
    """Return *text* as one line of at most *limit* characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def reply_line(reply: Reply) -> str:
    """Summarize a reply: tokens by tier, prompt and cached tokens, speed, truncations."""
    tiers = " ".join(f"{tier} {num}" for tier, num in reply.prompt.tokens_by_tier.items())
    usage = reply.usage
    broken = f" ({reply.prompt.reuse.broken_by})" if reply.prompt.reuse.broken_by else ""
    speed = f"{usage.tokens_per_s:.0f} tok/s" if usage.tokens_per_s else "- tok/s"
    return (
        f"{tiers} | prompt {usage.prompt_tokens} cached {usage.cached_tokens}{broken} | "
        f"TTFT {usage.ttft_s:.2f} s, {speed} | {truncation_words(reply.prompt)}"
    )


def truncation_words(prompt: Prompt) -> str:
    """Describe the messages that were truncated since the previous prompt."""
    if not prompt.truncations:
        return "new truncations 0"
    runs = ", ".join(f"{r.first}-{r.last} → {r.destination}" for r in prompt.truncations)
    return f"new truncations {len(prompt.truncations)}: messages {runs}"


def health_table(health: Health) -> Table:
    """Return the health of a memory, one fact a row."""
    database = health.database
    table = Table("what", "how")
    connections = f"{database.pool_checked_out} of {database.pool_size} in use"
    for name, value in (
        ("works", "yes" if health.is_ok else "NO"),
        ("database", database.place),
        ("reachable, writable", f"{database.is_reachable}, {database.is_writable}"),
        ("revision, of this version", f"{database.revision}, {database.expected}"),
        ("connections", f"{connections}, {database.pool_overflow} more"),
        ("seconds", f"{database.seconds:.3f}"),
        ("error", str(database.error or "-")),
    ):
        table.add_row(name, plain(value))
    return table


def session_table(sessions: Iterable[SessionInfo]) -> Table:
    """List sessions, one a row."""
    table = Table("session", "messages", "created", "last message")
    for info in sessions:
        created, updated = (f"{t:%Y-%m-%d %H:%M}" for t in (info.created_at, info.updated_at))
        table.add_row(plain(info.key), str(info.num_messages), created, updated)
    return table


def user_table(users: Iterable[str]) -> Table:
    """List users, one a row."""
    table = Table("user")
    for user in users:
        table.add_row(plain(user))
    return table


def message_table(messages: Iterable[StoredMessage], *, full: bool) -> Table:
    """List messages, one a row, in one line each or in full."""
    table = Table("position", "role", "text", show_lines=full)
    for stored in messages:
        calls = "".join(f"→ {call.name}({call.arguments}) " for call in stored.message.tool_calls)
        text = calls + stored.message.text
        mark = "" if stored.origin == "said" else f" ({stored.origin})"
        table.add_row(
            str(stored.position),
            f"{stored.message.role}{mark}",
            plain(text if full else shorten(text)),
        )
    return table


def truncation_table(logs: Iterable[tuple[str, Iterable[TruncationRecord]]]) -> Table:
    """List the truncation records of several branches, one a row."""
    names = ("branch", "when", "prompt", "messages", "tier", "reason", "tokens", "room", "now in")
    table = Table(*names)
    for branch, record in ((name, one) for name, some in logs for one in some):
        when = f"{record.created_at:%Y-%m-%d %H:%M:%S}" if record.created_at else "-"
        table.add_row(
            plain(branch),
            when,
            str(record.assembly_id),
            f"{record.first}-{record.last}",
            record.tier,
            record.reason,
            "not counted" if record.num_tokens is None else str(record.num_tokens),
            str(record.room),
            record.destination,
        )
    return table


def hit_table(hits: Iterable[Hit], *, full: bool) -> Table:
    """List search hits, best first: place, speaker, and reason of each."""
    table = Table("position", "when", "who", "score", "ranks", "text", show_lines=full)
    for hit in hits:
        message = hit.stored.message
        ranks = ", ".join(f"{name} {rank}" for name, rank in sorted(hit.ranks.items()))
        table.add_row(
            str(hit.stored.position) if hit.is_local else "other session",
            f"{hit.stored.created_at:%Y-%m-%d %H:%M}",
            plain(message.name or message.role),
            f"{hit.score:.2f}",
            plain(ranks),
            plain(hit.text if full else shorten(hit.text)),
        )
    return table


def status_table(status: IndexStatus) -> Table:
    """Return the index status of a session or user, one fact a row."""
    table = Table("what", "now", show_header=False)
    reason = status.dense_unavailable_reason
    facts = {
        "messages": status.num_messages,
        "embedded": status.num_embedded,
        "to embed": status.num_pending,
        "semantic search": "on" if reason is None else f"off: {reason}",
        "embedder": status.fingerprint or "none",
        "index": status.kind,
        "memory": f"{status.num_bytes:,} bytes",
        "file": "none" if status.file_bytes is None else f"{status.file_bytes:,} bytes",
        "generation": "none" if status.generation is None else status.generation,
        "last error": status.last_error or "none",
    }
    for name, value in facts.items():
        table.add_row(name, plain(str(value)))
    return table


def pin_table(pins: Iterable[Pin]) -> Table:
    """List pins or versions of one, one a row."""
    table = Table("key", "version", "scope", "author", "set", "text")
    for pin in pins:
        text = plain(pin.text) if pin.text else plain("(removed)")
        when = f"{pin.created_at:%Y-%m-%d %H:%M:%S}"
        table.add_row(plain(pin.key), str(pin.version), pin.scope, plain(pin.author), when, text)
    return table


def replacement_table(replacements: Iterable[Replacement]) -> Table:
    """List replaced messages, one a row."""
    table = Table("message", "replaced by", "found by", "set")
    for one in replacements:
        when = f"{one.created_at:%Y-%m-%d %H:%M:%S}"
        table.add_row(str(one.old), str(one.new), one.author, when)
    return table


def stale_table(sessions: Iterable[StaleSession]) -> Table:
    """List sessions of many users, one a row."""
    table = Table("user", "session")
    for session in sessions:
        table.add_row(plain(session.scope.user), plain(session.key))
    return table


def audit_table(audits: Iterable[Audit]) -> Table:
    """List the audit result of each branch."""
    table = Table("branch", "messages", "prompts", "records", "result")
    for audit in audits:
        problems = "; ".join(
            f"{_subject(found)}: {span.first}-{span.last} {found.problem}"
            for found in audit.problems
            for span in found.spans
        )
        changed = "; ".join(
            f"{'branch' if one.position is None else f'message {one.position}'}: {one.problem}"
            for one in audit.discrepancies
        )
        problems = "; ".join(text for text in (problems, changed) if text)
        table.add_row(
            plain(audit.branch.name),
            str(audit.branch.head),
            str(audit.num_assemblies),
            str(audit.num_records),
            plain(problems) or "balances",
        )
    return table


def destinations(records: Iterable[TruncationRecord]) -> str:
    """Count records by reason and destination; all summaries count as one."""
    counted = Counter(f"{r.reason} → {r.destination.partition(' ')[0]}" for r in records)
    return ", ".join(f"{num} {what}" for what, num in sorted(counted.items())) or "none"


def _subject(found: Imbalance) -> str:
    return "messages" if found.assembly_id is None else f"prompt {found.assembly_id}"
