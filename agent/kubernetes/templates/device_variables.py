"""Variables by which a container would choose its own accelerators. Pure.

Runtimes of accelerators read these variables when they create a container, before the job runs, and
show it the named devices. Only the lease decides which devices a pod sees.
"""

from __future__ import annotations

import posixpath
from typing import Final

#: NVIDIA's value for "no device"; images of CUDA set ``all``.
NONE: Final = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
#: Variables that a program's own libraries read: they can only hide devices of the container.
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
#: Variables that expose more of the node beside the devices: parts of the driver, network cards.
_WIDENING: Final = frozenset(
    {"NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_GDS", "NVIDIA_MOFED", "NVIDIA_GDRCOPY"}
    | {"NVIDIA_NVSWITCH", "NVIDIA_FABRIC_STATE"}
)
#: NVIDIA's runtime takes names of mounts below these paths for names of devices.
_DEVICE_MOUNTS: Final = ("/var/run/nvidia-container-devices", "/run/nvidia-container-devices")


def chooses_devices(name: str) -> bool:
    """Return whether a variable chooses the accelerators of a container; of any vendor."""
    if name in _NARROWING:
        return False
    chosen = name.endswith("_VISIBLE_DEVICES") or name.startswith(_SWARM)
    return chosen or name in _CHOOSING


def widens_access(name: str) -> bool:
    """Return whether a variable exposes more of the node to a container, but no accelerator."""
    return name in _WIDENING


def could_choose(prefix: str) -> bool:
    """Return whether a name with this prefix may be such a variable."""
    known = (*_CHOOSING, *_WIDENING, *(f"{vendor}_VISIBLE_DEVICES" for vendor in _VENDORS))
    if any(name.startswith(prefix) for name in known):
        return True
    return prefix.startswith(_SWARM) or _SWARM.startswith(prefix)


def mounts_devices(path: str) -> bool:
    """Return whether a mount at this path counts as the name of a device."""
    plain = posixpath.normpath("/" + path.lstrip("/"))
    return any(plain == top or plain.startswith(top + "/") for top in _DEVICE_MOUNTS)
