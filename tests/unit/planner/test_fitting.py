"""The time of a fit is bounded for any declarations, and fits are counted."""

import json

import numpy as np
import pytest

from planner.estimation import estimator as estimators
from planner.estimation import fitting
from planner.estimation.completion import fit_speed_model
from planner.estimation.estimator import MOST_REMEMBERED, Estimator
from planner.estimation.fitting import MOST_COLUMNS, MOST_ROWS, fit_known
from planner.estimation.measured import MeasuredFigure
from scheduler.domain.throughputs.ways import Source

TYPES = ("t4", "v100", "a100")


@pytest.fixture
def fits(monkeypatch):
    """Return the shapes of the matrices that were fitted."""
    shapes = []

    def counted(logs):
        shapes.append(logs.shape)
        return fit_speed_model(logs)

    monkeypatch.setattr(fitting, "fit_speed_model", counted)
    return shapes


def declared(*rates):
    """Return a row of figures on the types above; 0 if there is none."""
    return {
        name: MeasuredFigure(declared=rate) for name, rate in zip(TYPES, rates, strict=True) if rate
    }


def poisoned(jobs=12, types=64):
    """Return an estimator with declared figures on made-up worker types."""
    estimator = Estimator()
    for job in range(jobs):
        for k in range(types):
            estimator.declare(f"job-{job}", 1, f"made-up-{job}-{k}", 1.0 + k)
    return estimator


def test_a_fit_of_few_rows_and_columns_takes_them_all_as_they_are():
    rows = [
        declared(1.0, 2.0, 0.0),
        {},
        declared(3.0, 0.0, 9.0),
        {"t4": MeasuredFigure(declared=0.0)},
    ]
    found = fit_known(rows, TYPES, ("a100",))
    expected = fit_speed_model(np.log([[1.0, 2.0, np.nan], [3.0, np.nan, 9.0]]))
    assert list(found.columns) == list(TYPES)
    assert np.array_equal(found.model.mean, expected.mean)
    assert np.array_equal(found.model.covariance, expected.covariance)


def test_columns_of_the_cluster_come_first_then_those_of_most_rows(fits):
    names = [f"x{k}" for k in range(MOST_COLUMNS + 8)]
    rows = [
        {name: MeasuredFigure(declared=2.0) for name in names[2:]},
        {"x5": MeasuredFigure(declared=1.0)},
    ]
    found = fit_known(rows, names, {"x1", "x39"})
    assert list(found.columns) == ["x1", *names[2:32], "x39"]
    assert fits == [(2, MOST_COLUMNS)]


def test_measured_rows_come_first_then_those_of_most_figures_then_the_earliest(fits):
    plain = [declared(float(i + 1), 0.0, 0.0) for i in range(MOST_ROWS)]
    measured = {"v100": MeasuredFigure(log=1.0, weight=400.0)}
    rows = [*plain, measured, declared(5.0, 6.0, 7.0)]
    fit_known(rows, TYPES, ())
    found = fitting._rows(rows, TYPES)
    assert found == [*plain[: MOST_ROWS - 2], measured, rows[-1]]
    assert fits == [(MOST_ROWS, 3)]


def test_a_poisoned_state_costs_no_more_than_any_other_also_after_a_restart(fits):
    for estimator in (poisoned(), Estimator.restore(json.loads(json.dumps(poisoned().dump())))):
        estimator.serve(("v100",))
        estimator.declare("mine", 1, "v100", 8.0)
        fits.clear()
        assert estimator.estimate("mine", 2, "v100").steps_per_s == pytest.approx(14.4, rel=0.01)
        assert estimator.estimate("other", 1, "v100").source is Source.ASSUMED
        assert estimator.estimate("job-0", 1, "v100").source is Source.ESTIMATED
        assert estimator.estimate("job-11", 2, "made-up-11-60").source is Source.ESTIMATED
        assert fits == [(2, MOST_COLUMNS)]  # the columns are of v100 and of job-0


def test_figures_on_types_beyond_the_fit_count_as_they_are():
    estimator = poisoned()
    estimator.serve(("v100", "a100"))
    # Nothing of it is in the fit: it is as fast as on the others.
    assert estimator.estimate("job-11", 1, "v100").steps_per_s > 1.0
    assert estimator.estimate("job-11", 2, "made-up-11-60").steps_per_s == pytest.approx(
        61.0 * 1.8, rel=1e-6
    )


def test_a_cluster_of_which_nothing_is_known_is_no_fault(fits):
    estimator = poisoned()
    estimator.serve([f"y{k}" for k in range(MOST_COLUMNS)])
    assert estimator.estimate("job-3", 1, "y1").source is Source.ESTIMATED
    assert estimator.estimate("new", 1, "y1").steps_per_s == 1.0
    assert len(fits) == 1


def test_learning_without_questions_fits_nothing(fits):
    estimator = poisoned()
    estimator.observe("job-1", 1, "v100", 1000.0, 100.0)
    assert estimator.own("job-1", 1, "v100").source is Source.MEASURED
    assert estimator.own("job-1", 1, "a100") is None
    assert fits == []


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(estimators, "MOST_REMEMBERED", 4)


def known(estimator):
    return [(job_type, scale) for job_type, scale, *_ in estimator.known()]


def test_the_oldest_job_types_that_nobody_uses_are_forgotten(few):
    estimator = Estimator()
    for name in "abcdef":
        estimator.declare(name, 1, "v100", 2.0)
    estimator.declare("a", 1, "v100", 3.0)
    estimator.forget_oldest(["b"])
    assert known(estimator) == [(name, 1) for name in "bdef"]
    estimator.forget_oldest(iter(()))  # there are not too many
    assert len(known(estimator)) == 4


def test_measured_job_types_outlive_those_that_were_only_declared(few):
    estimator = Estimator()
    estimator.observe("a", 1, "v100", 1000.0, 100.0)
    for scale in (1, 2, 4, 8):
        estimator.declare("b", scale, "v100", 2.0)
    estimator.declare("c", 1, "made-up", 2.0)
    estimator.forget_oldest(())
    assert known(estimator) == [("a", 1), ("c", 1)]
    estimator.forget("c")
    assert estimator.worker_types == ("v100",)


def test_what_an_operator_declared_is_kept_also_after_a_restart(few):
    estimator = Estimator()
    for name in "ab":
        estimator.declare(name, 1, "v100", 2.0, keep=name == "a")
    estimator = Estimator.restore(json.loads(json.dumps(estimator.dump())))
    for name in "cdef":
        estimator.declare(name, 1, "v100", 2.0)
    estimator.forget_oldest(())
    assert known(estimator) == [(name, 1) for name in "adef"]
    estimator.forget("a")
    assert "kept" not in estimator.dump()


def test_thousands_of_job_types_are_remembered_and_no_more(fits):
    estimator = Estimator()
    for i in range(MOST_REMEMBERED + 100):
        estimator.declare(f"job-{i}", 1, "v100", 2.0)
        estimator.forget_oldest(())
    assert len(estimator.job_types) == MOST_REMEMBERED
    assert estimator.job_types[0] == "job-100"
    assert fits == []
