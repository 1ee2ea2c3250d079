"""Figures as SVG: where points lie is computed by hand."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from simulator.report.drawing import draw_svg
from simulator.report.plots import KINDS, KINDS_OF_ONE, plot

NAMESPACE = {"s": "http://www.w3.org/2000/svg"}
BLUE = {"color": "#0072B2", "width": 2, "dash": "solid"}


def line(name, x, y, **style):
    return {"name": name, "x": x, "y": y, "line": {**BLUE, **style}}


def figure(*traces, x=None, y=None, **layout):
    axis = {"title": {"text": "axis"}}
    return {
        "data": list(traces),
        "layout": {"xaxis": axis | (x or {}), "yaxis": axis | (y or {}), **layout},
    }


def paths(svg, colour):
    root = ET.fromstring(svg)
    return [p.get("d") for p in root.findall("s:path", NAMESPACE) if p.get("stroke") == colour]


def texts(svg):
    return [t.text for t in ET.fromstring(svg).findall("s:text", NAMESPACE)]


def test_steps_hold_until_the_next_point():
    """480 px lie between x = 62 and 542, 200 px between y = 234 and 34: legend and margins."""
    svg = draw_svg(
        figure(line("a", [0, 5, 10], [0, 1, 0.5]), x={"range": [0, 10]}, y={"range": [0, 1]}),
        width=560,
        height=280,
    )
    path, legend = paths(svg, "#0072B2")
    assert path == "M62 234H302V34H542V134"
    assert legend.startswith("M62 14")


def test_a_logarithmic_axis_has_decades_at_equal_distances():
    svg = draw_svg(
        figure(
            line("a", [1, 10, 100], [0, 1, 1]),
            x={"type": "log", "range": [0, 2]},
            y={"range": [0, 1], "tickformat": ".0%"},
        ),
        width=560,
        height=280,
    )
    assert paths(svg, "#0072B2")[0] == "M62 234H302V34H542"
    shown = texts(svg)
    assert {"1", "2", "5", "10", "20", "50", "100"} <= set(shown)
    assert {"0%", "20%", "100%"} <= set(shown)


def test_areas_lie_upon_one_another():
    areas = [
        {**line(name, [0, 10], [value, value]), "stackgroup": "x", "fillcolor": colour}
        for name, value, colour in (("low", 0.25, "#111111"), ("high", 0.5, "#222222"))
    ]
    svg = draw_svg(figure(*areas, x={"range": [0, 10]}, y={"range": [0, 1]}), width=560, height=280)
    drawn = re.findall(r'<path d="(\S+ \S+)" fill="(#\d+)"/>', svg)
    # 0.25 is at y = 184 and 0.75 at y = 84; the upper area reaches down behind the lower one.
    assert drawn == [("M62 84H542V234H62Z", "#222222"), ("M62 184H542V234H62Z", "#111111")]


def test_unknown_points_and_those_off_a_logarithmic_axis_are_left_out():
    svg = draw_svg(figure(line("a", [0, None, 10, 100], [0, 0.5, 0.5, 1]), x={"type": "log"}))
    assert len(re.findall("[HV]", paths(svg, "#0072B2")[0])) == 2


def test_names_are_text_and_nothing_else():
    svg = draw_svg(figure(line("<b>&", [0, 1], [0, 1]), line("x" * 90, [0, 1], [1, 1])))
    assert "<b>&" in texts(svg)
    rows = {p.split()[1][:2] for p in paths(svg, "#0072B2") if p.endswith("h20")}
    assert len(rows) == 2  # the legend goes on in a second row


def test_nothing_to_draw_is_drawn_as_empty_axes():
    svg = draw_svg(figure(line("a", [], []), x={"type": "log"}))
    assert [d for d in paths(svg, "#0072B2") if not d.endswith("h20")] == []


@pytest.mark.parametrize("kind", [*KINDS, *KINDS_OF_ONE])
def test_every_figure_of_the_report_can_be_drawn(results, kind):
    made = results[:1] if kind in KINDS_OF_ONE else results
    svg = plot(made, kind).svg
    assert ET.fromstring(svg).get("width") == "720"
    assert svg == plot(made, kind).svg
    for trace in plot(made, kind).figure["data"]:
        assert trace["name"] in texts(svg)
    inside = [float(x) for d in paths(svg, "#0072B2") for x in re.findall(r"H([\d.]+)", d)]
    assert all(61 < x < 703 for x in inside)
