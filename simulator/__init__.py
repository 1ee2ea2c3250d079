"""The trace-driven simulator: the real engine and policies on a virtual clock."""

from importlib.util import find_spec

#: Of what the extra ``simulator`` brings, what nothing here runs without.
_NEEDED = ("numpy", "scipy", "numba", "orjson")

for _module in _NEEDED:
    if find_spec(_module) is None:
        raise ModuleNotFoundError(
            f"the simulator needs more than is installed here (there is no module '{_module}'); "
            "get it by: pip install 'leasehold-scheduler[simulator]'",
            name=_module,
        )
