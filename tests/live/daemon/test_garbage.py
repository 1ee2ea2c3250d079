import gc

from leasehold.daemon.process.garbage import THRESHOLDS, rare_collections


def test_collections_are_rare_while_the_daemon_runs_and_as_before_after_it():
    before = gc.get_threshold()
    with rare_collections():
        assert gc.get_threshold() == THRESHOLDS
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
