from scheduler.engine import kernels
from scheduler.engine.warm_up import warm_up


def test_every_kernel_is_compiled_by_the_warm_up():
    warm_up()
    compiled = {name: f for name, f in vars(kernels).items() if hasattr(f, "signatures")}
    assert compiled
    assert [name for name, f in compiled.items() if not f.signatures and name[0] != "_"] == []
