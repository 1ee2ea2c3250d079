"""Figures of ``simulator.report.charts`` as SVG, for places without scripts: notebooks, papers.

The same figure has the same bytes. It supports the elements of those figures: lines and stacked
areas that are steps, linear and logarithmic axes, vertical lines, a legend.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_Points = list[tuple[float, float]]

_LEFT: Final = 62.0
_RIGHT: Final = 18.0
_TOP: Final = 14.0
_BOTTOM: Final = 46.0
_LEGEND_ROW: Final = 20.0
#: Generous mean width of a letter of the legend: SVG cannot measure text beforehand.
_LETTER: Final = 6.8
_SWATCH: Final = 26.0
_DASHES: Final = {"dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3"}
_STYLE: Final = "font-family:system-ui,-apple-system,'Segoe UI',Roboto,Arial,sans-serif"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """One axis: from values to pixels, and its ticks.

    Attributes:
        low: value at ``start``, or its logarithm.
        high: value at ``end``, or its logarithm.
        start: pixel.
        end: pixel.
        log: whether values are shown by their decimal logarithm.
        percent: whether ticks are written as percentages.
        title: beside the axis.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool
    percent: bool
    title: str

    def at(self, value: float) -> float:
        shown = math.log10(value) if self.log else value
        return self.start + (shown - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        return _decades(self.low, self.high) if self.log else _round_steps(self.low, self.high)

    def text(self, tick: float) -> str:
        return f"{tick:.0%}" if self.percent else f"{tick:,.10g}"


def draw_svg(figure: Mapping[str, Any], *, width: int = 720, height: int = 360) -> str:
    """Return a figure as an SVG document.

    Args:
        figure: ``data`` and ``layout`` as plotly.js takes them.
        width: in pixels.
        height: in pixels, the legend included.
    """
    traces, layout = _stacked(figure["data"]), figure["layout"]
    legend = _legend([trace for trace, _ in traces], width)
    top = _TOP + _LEGEND_ROW * len(legend)
    shapes = layout.get("shapes", ())
    x_values = [x for _, points in traces for x, _ in points] + [s["x0"] for s in shapes]
    y_values = [y for _, points in traces for _, y in points]
    x_axis = _axis(layout["xaxis"], x_values, start=_LEFT, end=width - _RIGHT)
    y_axis = _axis(layout["yaxis"], y_values, start=height - _BOTTOM, end=top)
    size = f'width="{width}" height="{height}" role="img" style="{_STYLE};font-size:12px"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size}>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        *_frame(x_axis, y_axis),
        *(_rule(shape, x_axis, y_axis) for shape in shapes),
        *(_mark(trace, points, x_axis, y_axis) for trace, points in traces),
        *(_entry(trace, x, _TOP + row * _LEGEND_ROW) for row, x, trace in _laid_out(legend)),
        "</svg>",
    ]
    return "".join(part for part in parts if part) + "\n"


def _stacked(data: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], _Points]]:
    """Return each trace with its points; areas are stacked, and the top one comes first."""
    lines: list[tuple[Mapping[str, Any], _Points]] = []
    below: dict[float, float] = {}
    for trace in data:
        points = [
            (float(x), float(y))
            for x, y in zip(trace["x"], trace["y"], strict=True)
            if x is not None and y is not None
        ]
        if "stackgroup" in trace:
            points = [(x, y + below.get(x, 0.0)) for x, y in points]
            below |= dict(points)
        lines.append((trace, points))
    return lines[::-1] if below else lines


def _axis(layout: Mapping[str, Any], values: Iterable[float], *, start: float, end: float) -> _Axis:
    log = layout.get("type") == "log"
    shown = [math.log10(v) for v in values if v > 0] if log else list(values)
    low, high = (min(shown), max(shown)) if shown else (0.0, 1.0)
    if "range" in layout:
        low, high = layout["range"]
    elif log:
        low, high = low - 0.03 * (high - low), high + 0.03 * (high - low)
    elif layout.get("rangemode") == "tozero":
        low, high = min(0.0, low), high * 1.02
    if high <= low:
        low, high = low - 0.5, low + 0.5
    return _Axis(
        low=float(low),
        high=float(high),
        start=start,
        end=end,
        log=log,
        percent="%" in layout.get("tickformat", ""),
        title=layout["title"]["text"],
    )


def _decades(low: float, high: float) -> list[float]:
    """Return powers of ten, and 2 and 5 times them if there are few."""
    digits = (1, 2, 5) if high - low < 3 else (1,)
    powers = range(math.floor(low), math.ceil(high) + 1)
    found = [digit * 10.0**power for power in powers for digit in digits]
    return [value for value in found if low <= math.log10(value) <= high]


def _round_steps(low: float, high: float) -> list[float]:
    """Return about six multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _frame(x_axis: _Axis, y_axis: _Axis) -> list[str]:
    """Return grid, ticks and titles."""
    left, right, bottom, top = x_axis.start, x_axis.end, y_axis.start, y_axis.end
    parts = []
    for tick in y_axis.ticks():
        y = _px(y_axis.at(tick))
        parts.append(f'<path d="M{_px(left)} {y}H{_px(right)}" stroke="#e3e3e3"/>')
        parts.append(_text(y_axis.text(tick), left - 8, y_axis.at(tick) + 4, anchor="end"))
    for tick in x_axis.ticks():
        x = _px(x_axis.at(tick))
        parts.append(f'<path d="M{x} {_px(bottom)}V{_px(top)}" stroke="#f0f0f0"/>')
        parts.append(_text(x_axis.text(tick), x_axis.at(tick), bottom + 17, anchor="middle"))
    parts.append(f'<path d="M{_px(left)} {_px(bottom)}H{_px(right)}" stroke="#999"/>')
    parts.append(_text(x_axis.title, (left + right) / 2, bottom + 37, anchor="middle"))
    middle = _px((top + bottom) / 2)
    title = html.escape(y_axis.title)
    parts.append(
        f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle" '
        f'fill="#333">{title}</text>'
    )
    return parts


def _rule(shape: Mapping[str, Any], x_axis: _Axis, y_axis: _Axis) -> str:
    line = shape["line"]
    x = _px(x_axis.at(shape["x0"]))
    return f'<path d="M{x} {_px(y_axis.start)}V{_px(y_axis.end)}" {_stroke(line)}/>'


def _mark(trace: Mapping[str, Any], points: _Points, x_axis: _Axis, y_axis: _Axis) -> str:
    """Return steps: each value holds until the next point."""
    seen = [(_px(x_axis.at(x)), _px(y_axis.at(y))) for x, y in points if x > 0 or not x_axis.log]
    if not seen:
        return ""
    path = f"M{seen[0][0]} {seen[0][1]}" + "".join(
        (f"H{x}" if x != before[0] else "") + (f"V{y}" if y != before[1] else "")
        for before, (x, y) in pairwise(seen)
    )
    if "stackgroup" not in trace:
        return f'<path d="{path}" fill="none" stroke-linejoin="round" {_stroke(trace["line"])}/>'
    floor = _px(y_axis.at(0.0))
    return f'<path d="{path}V{floor}H{seen[0][0]}Z" fill="{trace["fillcolor"]}"/>'


def _stroke(line: Mapping[str, Any]) -> str:
    dash = _DASHES.get(line.get("dash", "solid"))
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'stroke="{line["color"]}" stroke-width="{line["width"]}"{dashes}'


def _legend(
    traces: Sequence[Mapping[str, Any]], width: float
) -> list[list[tuple[float, Mapping[str, Any]]]]:
    """Return rows of traces with the start of each."""
    rows: list[list[tuple[float, Mapping[str, Any]]]] = []
    x = math.inf
    for trace in traces:
        needed = _SWATCH + _LETTER * len(trace["name"]) + 14
        if x + needed > width - _RIGHT:
            rows.append([])
            x = _LEFT
        rows[-1].append((x, trace))
        x += needed
    return rows


def _laid_out(
    rows: Sequence[Sequence[tuple[float, Mapping[str, Any]]]],
) -> list[tuple[int, float, Mapping[str, Any]]]:
    return [(number, x, trace) for number, row in enumerate(rows) for x, trace in row]


def _entry(trace: Mapping[str, Any], x: float, y: float) -> str:
    name = _text(trace["name"], x + _SWATCH, y + 4, anchor="start")
    if "fillcolor" in trace:
        swatch = (
            f'<rect x="{_px(x + 6)}" y="{_px(y - 5)}" width="12" height="10" '
            f'fill="{trace["fillcolor"]}"/>'
        )
    else:
        swatch = f'<path d="M{_px(x)} {_px(y)}h20" {_stroke(trace["line"])}/>'
    return swatch + name


def _text(text: str, x: float, y: float, *, anchor: str) -> str:
    return (
        f'<text x="{_px(x)}" y="{_px(y)}" text-anchor="{anchor}" fill="#333">'
        f"{html.escape(text)}</text>"
    )


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
