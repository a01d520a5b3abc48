"""`python -m node` is `verdraft`. Loads the rest within reach of a Ctrl-C."""

from __future__ import annotations

import sys


def main() -> int:
    """`cli.main`; 130 where it is interrupted, at whatever moment."""
    try:
        from node import cli

        return cli.main()
    except KeyboardInterrupt:
        print("verdraft: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
