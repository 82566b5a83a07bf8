"""How a layer takes its part of a state_dict: a step before torch's, and one after it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Loading(NamedTuple):
    """One call of load_state_dict, as a layer sees it."""

    state: dict[str, Any]  # the whole state_dict
    prefix: str  # the beginning of the names of this layer
    assign: bool  # the layer takes the tensors of the state, not copies
    missing_keys: list[str]


class StateError(RuntimeError):
    """load_state_dict reports its text beside other errors of the state; the layer stays."""


class LoadsState:
    """A base class of layers whose state has another form than their Parameters and buffers."""

    def _before_load(self, loading: Loading) -> Any:
        """Puts what torch loads into the state. Its result is given to _after_load."""

    def _after_load(self, loading: Loading, result: Any) -> None:
        """Ends the load, after torch has filled Parameters and buffers."""

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        assign = local_metadata.get("assign_to_params_buffers", False)
        loading = Loading(state_dict, prefix, assign, missing_keys)
        try:
            result = self._before_load(loading)
        except StateError as error:
            error_msgs.append(str(error))
            return
        base: Any = super()
        base._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        self._after_load(loading, result)
