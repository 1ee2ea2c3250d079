"""The trace-driven simulator: the real engine and policies on a virtual clock."""

from importlib.util import find_spec

#: Modules of the extra ``simulator`` without which nothing here runs.
_NEEDED = ("numpy", "scipy", "numba", "orjson")

for _module in _NEEDED:
    if find_spec(_module) is None:
        raise ModuleNotFoundError(
            f"the simulator needs more than is installed here (there is no module '{_module}'); "
            "get it by: pip install 'leasehold-scheduler[simulator]'",
            name=_module,
        )
