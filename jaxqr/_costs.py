"""The constants of the cost model in ``_kernels.py``: nanoseconds, unless they are shares.

``latency`` is the time of a thread block that is alone on its multiprocessor, ``issue`` that of its instructions, which
is what counts where several share one. ``..._column`` is for each column of a panel, ``..._element`` for each element
that a lane holds of one. The values are on an H200 and serve every device, since only the comparison of plans matters.
"""

from __future__ import annotations

from typing import NamedTuple


class Narrow(NamedTuple):
    """Of whole matrices of up to four columns. ``latency_warp`` is for each warp that shares a matrix, and column."""

    launch: float
    latency: float
    latency_column: float
    latency_warp: float
    issue: float
    issue_column: float
    issue_element: float


class Tiny(NamedTuple):
    """Of whole matrices by parts of a warp, a warp, or a few. ``exposed`` is the share of the chain of reflectors that
    the instructions of other matrices do not hide."""

    launch: float
    latency: float
    latency_column: float
    latency_element: float
    issue_column: float
    issue_element: float
    issue_load: float
    exposed: float


class Cta(NamedTuple):
    """Of a panel by one thread block.

    In each column's step the other warps are in the way of the one that makes the reflector (``crowd`` and
    ``crowd_base``), and apply it (``step`` and ``step_base``), by their number and elements. ``t_...`` comes on top of
    the same where the panel gets T.
    """

    latency: float
    latency_column: float
    latency_element: float
    crowd: float
    crowd_base: float
    issue: float
    issue_load: float
    issue_element: float
    step: float
    step_base: float
    t_latency: float
    t_latency_column: float
    t_crowd: float
    t_issue_column: float
    t_step: float


class Cluster(NamedTuple):
    """Of a panel by a cluster of thread blocks.

    Attributes:
      latency_width: for each column and column of the panel.
      exchange, exchange_of_16: between the blocks, for each column: by their number up to 8, and for 16.
      issue_share, issue_share_element: of the latency, that each further block on a multiprocessor adds at least.
    """

    latency: float
    latency_column: float
    latency_element: float
    latency_width: float
    exchange: float
    exchange_of_16: float
    issue_share: float
    issue_share_element: float


class Chain(NamedTuple):
    """Of a thread block that takes 64 rows a turn and shares its multiprocessor with none."""

    latency: float
    latency_turn: float


class Turns(NamedTuple):
    """Of a thread block that takes 64 rows a turn."""

    latency: float
    latency_turn: float
    issue: float
    issue_turn: float


class Reflectors(NamedTuple):
    """Of the kernel that makes T and halves of V: up to 32 columns, and wider. ``exchange`` is that of 2, 4, 8 and 16
    thread blocks that share the rows."""

    narrow: Turns
    wide: Turns
    exchange: tuple[float, ...]


class Update(NamedTuple):
    """Of the fused update by up to 32 reflectors, and by more; by warpgroups ``..._copies`` where tensor copies bring
    the columns, as quads of them are aligned, and ``..._elements`` where they come one element at a time. ``two`` is
    the update by two blocks of reflectors at once, ``coupling`` what couples them. ``exchange`` is that of 2, 4 and 8
    thread blocks that share the rows, ``two_exchange`` of 2 and 4."""

    narrow: Chain
    wide: Chain
    narrow_copies: Turns
    wide_copies: Turns
    narrow_elements: Turns
    wide_elements: Turns
    two: Chain
    coupling: Turns
    exchange: tuple[float, ...]
    two_exchange: tuple[float, ...]


class Lift(NamedTuple):
    """Of the kernel that makes a tall panel's reflectors from those of its blocks. ``..._side`` is for each of 32 or 64
    columns, ``issue_element`` for each element of these; ``issue_share`` is what of the instructions is latency."""

    latency: float
    latency_side: float
    issue_share: float
    issue: float
    issue_side: float
    issue_element: float


class Costs(NamedTuple):
    """All of them."""

    narrow: Narrow
    tiny: Tiny
    cta: Cta
    cluster: Cluster
    reflectors: Reflectors
    update: Update
    lift: Lift


# `python -m benchmarks fit` rewrites what follows, which is from: single launches on an H200, by hand
COSTS = Costs(
    narrow=Narrow(
        launch=2600.0,
        latency=300.0,
        latency_column=200.0,
        latency_warp=10.0,
        issue=30.0,
        issue_column=50.0,
        issue_element=7.0,
    ),
    tiny=Tiny(
        launch=2600.0,
        latency=80.0,
        latency_column=52.0,
        latency_element=2.5,
        issue_column=29.0,
        issue_element=2.03,
        issue_load=10.3,
        exposed=0.3,
    ),
    cta=Cta(
        latency=2600.0,
        latency_column=146.0,
        latency_element=5.2,
        crowd=0.063,
        crowd_base=84.0,
        issue=330.0,
        issue_load=5.0,
        issue_element=1.14,
        step=0.42,
        step_base=5.0,
        t_latency=530.0,
        t_latency_column=13.0,
        t_crowd=0.04,
        t_issue_column=41.0,
        t_step=0.131,
    ),
    cluster=Cluster(
        latency=4000.0,
        latency_column=348.0,
        latency_element=2.85,
        latency_width=1.64,
        exchange=8.6,
        exchange_of_16=127.0,
        issue_share=0.27,
        issue_share_element=0.00235,
    ),
    reflectors=Reflectors(
        narrow=Turns(
            latency=3300.0,
            latency_turn=450.0,
            issue=1000.0,
            issue_turn=600.0,
        ),
        wide=Turns(
            latency=6000.0,
            latency_turn=900.0,
            issue=3500.0,
            issue_turn=1100.0,
        ),
        exchange=(1300.0, 1700.0, 2200.0, 3000.0),
    ),
    update=Update(
        narrow=Chain(
            latency=4000.0,
            latency_turn=1900.0,
        ),
        wide=Chain(
            latency=4000.0,
            latency_turn=2550.0,
        ),
        narrow_copies=Turns(
            latency=5500.0,
            latency_turn=1000.0,
            issue=2500.0,
            issue_turn=1300.0,
        ),
        wide_copies=Turns(
            latency=6500.0,
            latency_turn=1125.0,
            issue=3800.0,
            issue_turn=1200.0,
        ),
        narrow_elements=Turns(
            latency=2500.0,
            latency_turn=1900.0,
            issue=500.0,
            issue_turn=2000.0,
        ),
        wide_elements=Turns(
            latency=4000.0,
            latency_turn=2100.0,
            issue=1700.0,
            issue_turn=2200.0,
        ),
        two=Chain(
            latency=6000.0,
            latency_turn=1650.0,
        ),
        coupling=Turns(
            latency=11000.0,
            latency_turn=400.0,
            issue=10000.0,
            issue_turn=400.0,
        ),
        exchange=(1000.0, 1900.0, 2500.0),
        two_exchange=(2500.0, 4500.0),
    ),
    lift=Lift(
        latency=3000.0,
        latency_side=90.0,
        issue_share=1.25,
        issue=700.0,
        issue_side=4.0,
        issue_element=0.93,
    ),
)
