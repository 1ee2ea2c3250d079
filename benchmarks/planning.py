"""Plans of models: predicted speeds beside published and measured ones, and the time of a ranking.

Reads the measurements of the shared data folder (see benchmarks/README.md).

Usage: python benchmarks/planning.py [--data FOLDER] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from leasehold_testing.planning_data import (
    HARMONY_BEST,
    PTDP_CALIBRATING,
    PTDP_POINTS,
    RUBICK_HARDWARE,
    RUBICK_POINTS,
    harmony_best_s,
    harmony_model,
    harmony_rules,
    harmony_step_s,
    predicted_steps,
    ptdp_flops,
    ptdp_model,
    ptdp_step,
    rubick_errors,
    rubick_runs,
    sailor_choices,
    sailor_predictions,
    vtrain_losses,
    vtrain_steps,
)
from planner.plans.calibration import calibrate, uncalibrated
from planner.plans.hardware import read_hardware
from planner.plans.plan import enumerate_plans
from planner.plans.ranking import best_plan
from planner.plans.training import Training


def ptdp() -> list[dict[str, Any]]:
    """Return the rates of tables 1 and 2 of PTD-P, in TFLOP/s of each GPU."""
    hardware = read_hardware().find("a100-80")
    steps = [ptdp_step(row) for row in PTDP_POINTS]
    calibration = calibrate([steps[i] for i in PTDP_CALIBRATING], hardware)
    found = []
    for i, (row, step) in enumerate(zip(PTDP_POINTS, steps, strict=True)):
        step_s = predicted_steps([step], calibration, hardware)[0]
        model = step.training.model
        rate = ptdp_flops(model, step.training.batch) / step_s / step.plan.workers / 1e12
        days = 300e9 / (step.training.batch * model.sequence) * step_s / 86400
        found.append(
            {
                "parameters_billions": model.parameters / 1e9,
                "workers": step.plan.workers,
                "plan": str(step.plan),
                "published": row[-1],
                "predicted": rate,
                "error_percent": 100 * (rate / row[-1] - 1),
                "days_for_300_billion_tokens": days,
                "calibrated_on": i in PTDP_CALIBRATING,
            }
        )
    return found


def vtrain(folder: Path, seeds: int = 3) -> list[dict[str, Any]]:
    """Return the errors on vTrain, calibrated on random tenths."""
    steps = vtrain_steps(folder)
    hardware = read_hardware().find("a100-80")
    measured = np.array([one.step_s for one in steps])
    found = []
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(steps))
        tenth, others = order[: len(steps) // 10], order[len(steps) // 10 :]
        calibration = calibrate([steps[i] for i in tenth], hardware)
        predicted = predicted_steps(steps, calibration, hardware)
        errors = 100 * np.abs(predicted / measured - 1)[others]
        lost = np.array(vtrain_losses(steps, predicted, others.tolist()))
        found.append(
            {
                "seed": seed,
                "median_percent": float(np.median(errors)),
                "p90_percent": float(np.quantile(errors, 0.9)),
                "groups": len(lost),
                "fastest_percent": 100 * float((lost == 0).mean()),
                "within_5_percent": 100 * float((lost <= 0.05).mean()),
            }
        )
    return found


def sailor(folder: Path) -> list[dict[str, Any]]:
    """Return the errors on Sailor's plans, ours and the authors'."""
    predicted = sailor_predictions(folder)
    measured = np.array([one.measured_s for one, _ in predicted])
    ours = np.array([step_s for _, step_s in predicted])
    authors = np.array([one.authors_s for one, _ in predicted])
    mixed = np.array([one.is_mixed for one, _ in predicted])
    right = sailor_choices(predicted)
    found = []
    for name, rows in (("all", mixed | ~mixed), ("GH200", ~mixed), ("mixed RTX", mixed)):
        errors = {
            who: 100 * np.abs(step_s / measured - 1)[rows]
            for who, step_s in (("ours", ours), ("authors", authors))
        }
        found.append(
            {
                "plans": name,
                "count": int(rows.sum()),
                **{f"{who}_median": float(np.median(one)) for who, one in errors.items()},
                **{f"{who}_mean": float(one.mean()) for who, one in errors.items()},
                "fastest": f"{sum(right)} of {len(right)}" if name == "all" else "",
            }
        )
    return found


def rubick(folder: Path) -> list[dict[str, Any]]:
    """Return the mean errors by plan on Rubick's runs, ours and the authors'."""
    found = []
    for model in RUBICK_POINTS:
        errors = rubick_errors(folder, model)
        for plan, of_plan in errors.points.items():
            found.append(
                {
                    "model": model,
                    "plan": plan,
                    "runs": len(of_plan),
                    "ours_mean": float(errors.percent[of_plan].mean()),
                    "authors_mean": errors.authors[plan],
                }
            )
        by_plan: dict[tuple[str, str], list[float]] = {}
        for i in errors.others:
            run = errors.runs[i]
            name = "digits" if run.plan.isdigit() else run.plan
            nodes = "one node" if len(run.placement) == 1 else "several nodes"
            by_plan.setdefault((name, nodes), []).append(errors.percent[i])
        for (name, nodes), percents in by_plan.items():
            found.append(
                {
                    "model": model,
                    "plan": f"{name}, {nodes}",
                    "runs": len(percents),
                    "ours_mean": float(np.mean(percents)),
                    "authors_mean": None,
                }
            )
    return found


def uncalibrated_errors(folder: Path) -> list[dict[str, Any]]:
    """Return the errors with nothing calibrated on the source, as of `leasehold plan`."""
    a100 = read_hardware().find("a100-80")
    sources = {"vTrain, A100": (vtrain_steps(folder / "vtrain"), a100)}
    for model in RUBICK_POINTS:
        runs = rubick_runs(folder / "rubick", model, RUBICK_HARDWARE)
        sources[f"Rubick {model}, A800"] = ([run.step for run in runs], RUBICK_HARDWARE)
    logs = {
        name: np.log(
            predicted_steps(steps, uncalibrated(), hardware) / [one.step_s for one in steps]
        )
        for name, (steps, hardware) in sources.items()
    }
    layers = [pair for pair in sailor_predictions(folder / "sailor") if not pair[0].is_mixed]
    logs["Sailor, measured layers, GH200"] = np.log(
        [step_s / one.measured_s for one, step_s in layers]
    )
    return [
        {
            "source": name,
            "steps": len(of_source),
            "deviation_percent": 100 * float(np.sqrt(np.mean(of_source**2))),
            "median_percent": 100 * float(np.median(np.abs(np.expm1(of_source)))),
            "predicted_over_measured": float(np.exp(of_source.mean())),
        }
        for name, of_source in logs.items()
    ]


def harmony(folder: Path) -> list[dict[str, Any]]:
    """Return the best plans of Harmony's models, beside the authors' own predictions."""
    found = []
    for best in HARMONY_BEST:
        model, pipeline = harmony_model(folder, best.model), best.plan.pipeline
        same = harmony_step_s(model, best.plan)
        found.append(
            {
                "model": best.model,
                "packs": "pipeline" if pipeline else "data parallel",
                "published": best.predicted_s,
                "predicted": same,
                "error_percent": 100 * (same / best.predicted_s - 1),
                "found": harmony_best_s(model, pipeline=pipeline, rules=harmony_rules(best.model)),
                "found_by_all_rules": harmony_best_s(model, pipeline=pipeline),
            }
        )
    return found


def ranking(tries: int = 5) -> list[dict[str, Any]]:
    """Return the seconds in which plans of a model of 22 billion parameters are ranked."""
    training = Training(model=ptdp_model(48, 6144, 48), batch=1920)
    hardware = read_hardware().find("a100-80")
    count, plans = 0, 0
    counts = []
    while plans < 3600:
        count += 48
        counts.append(count)
        plans += len(
            enumerate_plans(training.model, workers=count, batch=1920, per_node=8, has_host=True)
        )
    times = []
    for _ in range(tries):
        begin = time.perf_counter()
        for one in counts:
            best_plan(training, "a100-80", hardware, one, calibration=uncalibrated())
        times.append(time.perf_counter() - begin)
    return [{"plans": plans, "seconds": min(times)}]


def main() -> int:
    """Print each table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(os.environ.get("LEASEHOLD_SHARED_DATA", "../shared/data")),
        help="folder of shared data",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    tables = {
        "PTD-P, tables 1 and 2: TFLOP/s": ptdp(),
        "vTrain": vtrain(arguments.data / "vtrain"),
        "Sailor: errors in percent": sailor(arguments.data / "sailor"),
        "Rubick: errors in percent": rubick(arguments.data / "rubick"),
        "Nothing calibrated": uncalibrated_errors(arguments.data),
        "Harmony: seconds of a step": harmony(arguments.data / "harmony"),
        "Ranking": ranking(),
    }
    if arguments.json:
        print(json.dumps(tables, indent=1))
        return 0
    for title, rows in tables.items():
        print(f"\n{title}")
        print("  ".join(rows[0]))
        for row in rows:
            print("  ".join(f"{x:.3g}" if isinstance(x, float) else str(x) for x in row.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
