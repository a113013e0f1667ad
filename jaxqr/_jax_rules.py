"""Which rules JAX's own QR functions follow: JAX's, or this package's where `install` or `installed` says so.

The choice is a user context of JAX, and so a part of the key of every cache that `jax.jit` has: no function that was
traced under one choice is reused under the other.
"""

from __future__ import annotations

from typing import Any

import jax

replaced: Any = jax.make_user_context(False)
"""Whether JAX's QR functions are traced as this package's: the thread's value or, if it has none, the process's.

What this package leaves to JAX is traced ``with replaced(False)``: it would come back otherwise.
"""


def replace_everywhere(value: bool) -> None:
    """Sets the process's value."""
    # The contexts of JAX 0.10.0 have no set_global of their own.
    (replaced if hasattr(replaced, "set_global") else replaced._obj).set_global(value)
