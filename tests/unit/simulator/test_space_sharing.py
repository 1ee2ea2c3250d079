"""Pairs of a throughput table form in the replay of a configuration as in an ideal replay."""

import pytest

from leasehold import read_service
from simulator.api import simulate
from traces.tables.throughputs import THROUGHPUT_COLUMNS

#: Each of two jobs keeps three quarters of its speed.
TABLE = f"""{",".join(THROUGHPUT_COLUMNS)}
a,1,v100,1,,,
b,1,v100,2,,,
a,1,v100,0.75,b,1,1.5
"""
TRACE = """job_id,job_type,total_steps,arrival_s
one,a,600,0
two,b,1200,0
"""
CONFIG = """[policy]
name = "max_min_fairness"
space_sharing = {sharing}
[throughputs]
path = "{folder}/table.csv"
[engine]
round_length_s = 60
"""


@pytest.fixture
def replay(tmp_path):
    """Replay two jobs on one worker."""
    (tmp_path / "table.csv").write_text(TABLE)
    (tmp_path / "trace.csv").write_text(TRACE)

    def run(**how):
        return simulate(
            tmp_path / "trace.csv", throughputs=tmp_path / "table.csv", cluster="v100:1", **how
        )

    def configured(*, sharing):
        path = tmp_path / "leasehold.toml"
        path.write_text(CONFIG.format(sharing=str(sharing).lower(), folder=tmp_path))
        return run(service=read_service(path))

    return run, configured


def shares(result):
    """Return (job, whether it shared its workers) of each lease in order of start."""
    leases = result.leases
    return list(zip(leases["job_id"], leases["shared"], strict=True))


def test_two_jobs_share_a_worker_if_the_configuration_says_so(replay):
    ideal, configured = replay
    together = configured(sharing=True)
    assert shares(together) == [("one", True), ("two", True)]
    assert list(together.jobs["end_s"]) == pytest.approx([800.0, 800.0], rel=0.02)
    packed = ideal(policy="max_min_fairness", space_sharing=True, round_length_s=60.0)
    assert shares(packed) == shares(together)
    in_turn = configured(sharing=False)
    assert not any(shared for _, shared in shares(in_turn))
    assert max(in_turn.jobs["end_s"]) == pytest.approx(1200.0, rel=0.02)
