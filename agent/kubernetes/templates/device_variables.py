"""Variables by which a container would choose its own accelerators. Pure.

Runtimes of accelerators read them when they make a container, before anything of the job runs, and
show it what they name. Which devices a pod sees is the lease's business alone.
"""

from __future__ import annotations

import posixpath
from typing import Final

#: What NVIDIA's runtime takes for "no device"; images of CUDA bring ``all``.
NONE: Final = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
#: Those that a program's own libraries read: they can only leave out what the container has.
_NARROWING: Final = frozenset(
    {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}
    | {"ASCEND_RT_VISIBLE_DEVICES", "TPU_VISIBLE_DEVICES"}
)
_CHOOSING: Final = frozenset(
    {"NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES", "NVIDIA_IMEX_CHANNELS"}
    | {"AWS_NEURON_VISIBLE_DEVICES", "ASCEND_RUNTIME_OPTIONS"}
)
_VENDORS: Final = ("NVIDIA", "AMD", "GPU", "INTEL", "HABANA", "ASCEND", "CAMBRICON", "MTHREADS")
_SWARM: Final = "DOCKER_RESOURCE_"
#: Those that bring in more of the node beside the devices: parts of the driver, network cards.
_WIDENING: Final = frozenset(
    {"NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_GDS", "NVIDIA_MOFED", "NVIDIA_GDRCOPY"}
    | {"NVIDIA_NVSWITCH", "NVIDIA_FABRIC_STATE"}
)
#: NVIDIA's runtime takes names of mounts beneath it for names of devices.
_DEVICE_MOUNTS: Final = ("/var/run/nvidia-container-devices", "/run/nvidia-container-devices")


def chooses_devices(name: str) -> bool:
    """Tell whether a variable says which accelerators a container sees; of any vendor."""
    if name in _NARROWING:
        return False
    chosen = name.endswith("_VISIBLE_DEVICES") or name.startswith(_SWARM)
    return chosen or name in _CHOOSING


def widens_access(name: str) -> bool:
    """Tell whether a variable brings more of the node into a container, though no accelerator."""
    return name in _WIDENING


def could_choose(prefix: str) -> bool:
    """Tell whether names that begin so may be such variables, whatever comes behind."""
    known = (*_CHOOSING, *_WIDENING, *(f"{vendor}_VISIBLE_DEVICES" for vendor in _VENDORS))
    if any(name.startswith(prefix) for name in known):
        return True
    return prefix.startswith(_SWARM) or _SWARM.startswith(prefix)


def mounts_devices(path: str) -> bool:
    """Tell whether a mount there is taken for the name of a device."""
    plain = posixpath.normpath("/" + path.lstrip("/"))
    return any(plain == top or plain.startswith(top + "/") for top in _DEVICE_MOUNTS)
