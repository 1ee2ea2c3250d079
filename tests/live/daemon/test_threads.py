import sys

from leasehold.daemon.process.threads import SWITCH_S, quick_switches


def test_threads_take_turns_often_while_the_daemon_runs_and_as_before_after_it():
    before = sys.getswitchinterval()
    with quick_switches():
        assert sys.getswitchinterval() == SWITCH_S
    assert sys.getswitchinterval() == before
