"""The sharding rules of the products of sub-byte operands for DTensor.

The bytes of int4 operands are sharded as the operands of scaled_mm (ops/sharding.py), along K too.
_binary_mm has an argument k, the K of the whole operands, so they are not sharded along K.
"""

from __future__ import annotations

import functools
from typing import Any

from tcgemm.operands.integers.operators import BINARY, INT4
from tcgemm.ops._torch_private import register_sharding
from tcgemm.ops.epilogue import Epilogue
from tcgemm.ops.sharding import Rule, rules_of


def _binary(*args: Any, **kwargs: Any) -> list[Rule]:
    """The rules without the last one, which shards K."""
    return rules_of(BINARY, *args, **kwargs)[:-1]


for _op in INT4:
    _fields = (*Epilogue._fields, "types")
    register_sharding(_op.default, functools.partial(rules_of, _op), _fields)
register_sharding(BINARY.default, _binary, ("k", "operation"))
