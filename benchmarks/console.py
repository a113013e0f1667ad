"""Tables and progress on the terminal."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.report import Table

try:
    import rich.progress as rich_progress
except ImportError:
    rich_progress = None


def progress(items: Iterable[Any], total: int, title: str) -> Iterator[Any]:
    """Passes items on; with a bar below what is printed meanwhile, if stdout is a terminal and rich is installed."""
    if rich_progress is None or not sys.stdout.isatty():
        yield from items
    else:
        yield from rich_progress.track(items, description=title, total=total)


def print_table(table: Table) -> None:
    """Prints rows of cells under their header; the first column is aligned left, the others right."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for first, *rest in table:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        print("  ".join(cells).rstrip())
