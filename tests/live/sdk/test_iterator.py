"""The iterator by itself: its begin, its items, its checkpoints."""

from __future__ import annotations

import itertools
import queue
import signal
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from leasehold import LeaseIterator, StaleLeaseError
from leasehold.checkpoints import OWNER_FILE, Checkpoints, ForeignCheckpointsError
from leasehold.gang import clear_older
from leasehold.surroundings import Surroundings


class _State:
    """Counts how often each step was done."""

    def __init__(self):
        self.seen = []

    def save(self, folder):
        (folder / "seen").write_text(",".join(map(str, self.seen)))

    def load(self, folder):
        text = (folder / "seen").read_text()
        self.seen = [int(x) for x in text.split(",") if x]


def _run(data, state, folder, *, stop_at=None, **more):
    steps = LeaseIterator(data, checkpoint_dir=folder, save=state.save, load=state.load, **more)
    for item in steps:
        state.seen.append(item)
        if steps.step + 1 == stop_at:
            break
    return steps


@pytest.mark.parametrize(
    "data",
    [
        [0, 1, 2, 3, 4],
        type("Loader", (), {"__iter__": lambda _: iter(range(5))})(),
        lambda step: (i % 5 for i in itertools.count(step)),
    ],
    ids=["sequence", "iterable", "function"],
)
def test_an_interrupted_job_goes_on_after_its_last_checkpoint(tmp_path, data):
    first = _State()
    _run(data, first, tmp_path, total_steps=13, stop_at=9, checkpoint_every_s=0.0)
    second = _State()
    steps = _run(data, second, tmp_path, total_steps=13)
    assert second.seen == [i % 5 for i in range(13)]
    assert steps.finished
    assert not steps.left_early
    assert _run(data, second, tmp_path, total_steps=13).step == 13
    assert len(second.seen) == 13


class _Growing:
    """Items of 1.6 steps each; the rest is its state."""

    def __init__(self):
        self.done = 0.0

    def __call__(self, step):
        assert step == int(self.done)
        while True:
            yield step

    def whole_steps(self):
        before, self.done = int(self.done), self.done + 1.6
        return int(self.done) - before


def test_items_that_are_worth_several_steps_are_counted_so_and_end_with_the_job(tmp_path):
    data, counted = _Growing(), []

    def save(folder):
        (folder / "done").write_text(str(data.done))

    def load(folder):
        data.done = float((folder / "done").read_text())

    keeping = {"total_steps": 10, "checkpoint_dir": tmp_path, "save": save, "load": load}
    steps = LeaseIterator(data, checkpoint_every_s=0.0, **keeping)
    for _ in steps:
        counted.append(steps.step)
        if len(counted) == 4:
            break
    data = _Growing()
    steps = LeaseIterator(data, **keeping)
    counted += [steps.step for _ in steps]
    assert counted == [0, 1, 3, 4, 4, 6, 8, 9]  # the fourth was not done, and is done again
    assert (steps.step, data.done) == (10, pytest.approx(7 * 1.6))
    assert Checkpoints(folder=tmp_path).newest() == 10


def test_one_epoch_is_the_default():
    assert list(LeaseIterator("abc")) == ["a", "b", "c"]


def test_without_a_number_of_steps_the_message_says_so():
    with pytest.raises(ValueError, match="total_steps"):
        LeaseIterator(iter([1]))


def test_data_that_ends_too_early_is_named():
    with pytest.raises(ValueError, match="data ended"):
        list(LeaseIterator(lambda step: iter([1, 2]), total_steps=3))
    with pytest.raises(ValueError, match="data ended"):
        list(LeaseIterator(type("E", (), {"__iter__": lambda _: iter(())})(), total_steps=1))


def test_a_place_for_checkpoints_is_asked_for():
    assert list(LeaseIterator([1], save=print)) == [1]
    with pytest.raises(ValueError, match="checkpoint_dir"):
        LeaseIterator([1], save=print, surroundings=Surroundings(endpoint="/none"))
    with pytest.raises(ValueError, match="checkpoint_dir"):
        LeaseIterator([1], surroundings=Surroundings(endpoint="/none", world_size=2))


def test_a_name_that_the_package_does_not_have_is_refused():
    import leasehold

    with pytest.raises(AttributeError, match="nothing"):
        _ = leasehold.nothing


def test_a_checkpoint_that_was_cut_off_is_never_found(tmp_path):
    checkpoints = Checkpoints(folder=tmp_path, token=3)
    checkpoints.claim()
    checkpoints.save(5, lambda folder: (folder / "x").write_text("5"))

    def die(folder):
        (folder / "x").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(9, die)
    later = Checkpoints(folder=tmp_path, token=4)
    later.claim()
    assert later.newest() == 5
    assert (later.at(5) / "x").read_text() == "5"
    assert not list(tmp_path.glob(".half-*"))


@pytest.mark.parametrize("leased", [False, True])
def test_a_job_continues_from_an_older_checkpoint_if_the_newest_cannot_be_read(tmp_path, leased):
    told = Surroundings(token=7, job_id="me", total_steps=6) if leased else Surroundings()
    told = {"surroundings": told, "keep": 1 if leased else 2}
    _run(range(6), _State(), tmp_path, stop_at=4, surroundings=Surroundings(), checkpoint_every_s=0)
    newest = Checkpoints(folder=tmp_path).steps()[0]
    (Checkpoints(folder=tmp_path).at(newest) / "seen").write_text("1,{")
    state = _State()
    with pytest.warns(RuntimeWarning, match=f"the checkpoint after {newest} steps cannot be read"):
        steps = _run(range(6), state, tmp_path, **told)
    assert steps.finished
    assert state.seen == list(range(6))
    (aside,) = tmp_path.glob("unreadable-*")
    assert (aside / "seen").read_text() == "1,{"
    assert Checkpoints(folder=tmp_path).newest() == 6


def test_if_no_checkpoint_can_be_read_the_job_fails_and_loses_none(tmp_path):
    _run(range(6), _State(), tmp_path, stop_at=4, checkpoint_every_s=0)
    before = sorted(tmp_path.iterdir())

    def load(folder):
        raise KeyError(folder.name)

    steps = LeaseIterator(range(6), checkpoint_dir=tmp_path, save=lambda f: None, load=load)
    with pytest.raises(KeyError, match=Checkpoints(folder=tmp_path).at(3).name):
        next(iter(steps))
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "error",
    [
        type("OutOfMemoryError", (RuntimeError,), {})(),
        MemoryError(),
        OSError(116, "Stale file handle"),
        RuntimeError("CUDA error: device-side assert triggered"),
        StaleLeaseError("a later attempt"),
    ],
)
def test_other_troubles_make_no_checkpoint_unreadable(tmp_path, error):
    _run(range(6), _State(), tmp_path, stop_at=4, checkpoint_every_s=0)
    loaded = []

    def load(folder):
        loaded.append(folder.name)
        raise error

    steps = LeaseIterator(range(6), checkpoint_dir=tmp_path, save=lambda f: None, load=load)
    with pytest.raises(type(error)):
        next(iter(steps))
    assert len(loaded) == 1
    assert not list(tmp_path.glob("unreadable-*"))


def test_only_the_newest_checkpoints_are_kept(tmp_path):
    checkpoints = Checkpoints(folder=tmp_path, keep=2)
    for step in (1, 5, 30):
        checkpoints.save(step, lambda folder: None)
    assert sorted(p.name for p in tmp_path.glob("step-*")) == [
        "step-000000000005",
        "step-000000000030",
    ]


def test_files_of_the_user_are_neither_read_nor_removed(tmp_path):
    names = ["step-5", "step-0000000000050", ".half-a", ".half-", ".token-mine", "gang-photos"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("x")
    (tmp_path / "gang-0").mkdir()
    (tmp_path / "gang-0" / "vote-1-0").write_text("{}")
    (tmp_path / "gang-0" / "mine").write_text("x")
    checkpoints = Checkpoints(folder=tmp_path, token=3, keep=1)
    checkpoints.claim()
    clear_older(tmp_path, 3)
    for step in (1, 2):
        checkpoints.save(step, lambda folder: None)
    assert all((tmp_path / name / "mine").exists() for name in (*names, "gang-0"))
    assert not (tmp_path / "gang-0" / "vote-1-0").exists()
    assert not checkpoints.at(1).exists()


def test_an_attempt_that_was_overtaken_writes_no_more(tmp_path):
    older, newer = Checkpoints(folder=tmp_path, token=1), Checkpoints(folder=tmp_path, token=2)
    older.claim()
    older.save(1, lambda folder: None)
    newer.claim()
    with pytest.raises(StaleLeaseError, match="token 2"):
        older.save(2, lambda folder: None)
    with pytest.raises(StaleLeaseError):
        older.claim()
    assert newer.newest() == 1


def of(job_id, folder, token, **values):
    return Checkpoints(folder=folder, token=token, job_id=job_id, **values)


def test_the_checkpoints_of_another_job_are_refused(tmp_path):
    mine, foreign = of("train-a", tmp_path, 1), of("train-b", tmp_path, 2)
    mine.claim()
    mine.save(7, lambda folder: None)
    for refused in (foreign.claim, foreign.check_owner):
        with pytest.raises(ForeignCheckpointsError, match="checkpoints of job 'train-a'") as said:
            refused()
    assert "LEASEHOLD_TAKE_CHECKPOINTS_OF=train-a" in str(said.value)
    later = of("train-a", tmp_path, 3)
    later.claim()
    assert later.newest() == 7
    assert not list(tmp_path.glob(f"{OWNER_FILE}-*"))


@pytest.mark.parametrize("attempt", range(20))
def test_of_jobs_that_claim_a_folder_at_once_one_has_it(tmp_path, attempt):
    together = threading.Barrier(8)
    refused = []

    def claim(n):
        together.wait()
        try:
            of(f"train-{n}", tmp_path, n).claim()
        except (ForeignCheckpointsError, StaleLeaseError):
            refused.append(n)

    threads = [threading.Thread(target=claim, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    owner = (tmp_path / OWNER_FILE).read_text()
    assert {f"train-{n}" for n in range(1, 9)} - {f"train-{n}" for n in refused} == {owner}


def test_a_job_may_take_over_the_checkpoints_of_one_that_it_names(tmp_path):
    of("train-a", tmp_path, 1).claim()
    heir = of("train-b", tmp_path, 2, adopts="train-a")
    heir.claim()
    of("train-b", tmp_path, 3).claim()
    with pytest.raises(ForeignCheckpointsError, match="train-b"):
        of("train-a", tmp_path, 4).claim()


def test_a_folder_of_the_release_before_is_taken_for_the_jobs_own(tmp_path):
    Checkpoints(folder=tmp_path, token=1).claim()
    of("train-a", tmp_path, 2).claim()
    assert (tmp_path / OWNER_FILE).read_text() == "train-a"


def test_an_iterator_loads_no_foreign_checkpoint(tmp_path):
    of("train-a", tmp_path, 1).save(3, lambda folder: None)
    of("train-a", tmp_path, 1).claim()
    told = Surroundings.read({"LEASEHOLD_JOB_ID": "train-b", "LEASEHOLD_FENCING_TOKEN": "2"})
    loaded = []
    for save in (None, lambda folder: None):
        steps = LeaseIterator(
            range(5), checkpoint_dir=tmp_path, save=save, load=loaded.append, surroundings=told
        )
        with pytest.raises(ForeignCheckpointsError):
            list(steps)
    assert not loaded


def test_outside_a_lease_signals_are_left_alone():
    before = signal.getsignal(signal.SIGTERM)
    for _ in LeaseIterator(range(2)):
        assert signal.getsignal(signal.SIGTERM) is before


def test_a_step_under_a_lease_takes_few_calls_and_none_of_the_system(host):
    told = Surroundings.read(host.environment(host.lease(1)))
    steps = LeaseIterator(range(10), total_steps=1000, report_every_s=1e6, surroundings=told)
    rest = iter(steps)
    next(rest)  # the connection is made
    calls = Counter()

    def count(frame, event, called):
        if event in {"call", "c_call"}:
            calls[called.__qualname__ if event == "c_call" else frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for _ in itertools.islice(rest, 500):
            pass
    finally:
        sys.setprofile(before)
    rest.close()
    assert calls.total() / 500 <= 15
    often = {name for name, times in calls.items() if times >= 100}
    assert not {name for name in often if "socket" in name or "write" in name or "read" in name}


class _Together:
    """Two processes, as threads, that write each checkpoint together."""

    def __init__(self, folder):
        self.folder, self.ends = folder, threading.Barrier(2, timeout=30)
        self.answers = queue.SimpleQueue()  # of rank 0, for rank 1
        self.wrote = [[], []]

    def run(self, rank, **more):
        state = _State()

        def agree(answer):
            if rank == 0:
                self.answers.put(answer)
                return answer
            return self.answers.get(timeout=30)

        def save(folder):
            self.wrote[rank].append(len(state.seen))
            (folder / f"seen-{rank}").write_text(",".join(map(str, state.seen)))
            self.ends.wait()

        told = Surroundings(rank=rank, world_size=2)
        steps = LeaseIterator(
            range(9),
            checkpoint_dir=self.folder,
            save=save,
            load=lambda folder: state.seen.extend(
                int(item) for item in (folder / f"seen-{rank}").read_text().split(",")
            ),
            agree=agree,
            surroundings=told,
            **more,
        )
        for item in steps:
            state.seen.append(item)
        return state.seen


def test_processes_that_agree_write_each_checkpoint_together(tmp_path):
    together = _Together(tmp_path)
    with ThreadPoolExecutor(2) as pool:

        def run(steps, every_s):  # seconds between checkpoints, by rank
            runs = [
                pool.submit(together.run, rank, total_steps=steps, checkpoint_every_s=every_s[rank])
                for rank in range(2)
            ]
            return [one.result(60) for one in runs]

        assert run(5, (None, None)) == [list(range(5))] * 2
        assert together.wrote == [[5], [5]]
        # Rank 0 finds that one is due after each step, and rank 1 never does: rank 0 decides.
        assert run(9, (0.0, 1e9)) == [list(range(9))] * 2
    assert together.wrote[0] == together.wrote[1]
    assert together.wrote[0][0:2] == [5, 6]
    assert together.wrote[0][-1] == 9
    checkpoints = Checkpoints(folder=tmp_path)
    assert checkpoints.steps() == [9, 8]
    assert {p.name for p in checkpoints.at(9).iterdir()} >= {"seen-0", "seen-1"}
    assert not list(tmp_path.glob(".half-*"))


def test_the_others_hear_it_if_rank_0_cannot_begin_a_checkpoint(tmp_path, monkeypatch):
    def overtaken(*_, **__):
        raise StaleLeaseError

    monkeypatch.setattr(Checkpoints, "save", overtaken)
    together = _Together(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(together.run, rank, total_steps=3, checkpoint_every_s=None)
            for rank in range(2)
        ]
        with pytest.raises(StaleLeaseError):
            runs[0].result(60)
        with pytest.raises(RuntimeError, match="rank 0 could not begin a checkpoint"):
            runs[1].result(60)
    assert together.wrote == [[], []]
