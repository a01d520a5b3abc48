"""Structured logs: one JSON object a line on a file or pipe, readable lines on a terminal."""

from __future__ import annotations

import logging
import sys

import structlog


class _StandardError:
    """Standard error as it is at the moment of writing: a program that redirects it, or a test
    that captures it, must not leave a logger with a closed file."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure(level: str, *, role: str, address: bytes) -> None:
    """Sets up structlog for this process; every line names the role and the operator."""
    number = getattr(logging, level.upper())
    # Libraries log through the standard module; only their warnings are of use to an operator.
    logging.basicConfig(stream=sys.stderr, level=max(number, logging.WARNING), format="%(message)s")
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer()
        if sys.stderr.isatty()
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(_StandardError()),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(role=role, operator="0x" + address.hex())


def get(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger for one module."""
    return structlog.get_logger(module=name)  # type: ignore[no-any-return]
