"""Plots as inline SVG, without libraries: curves, stacked bars, a time line. Pure; all text is escaped."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 900.0, 48.0, 14.0, 12.0, 28.0


@dataclass(frozen=True)
class Series:
    """Points (x, y) of one curve; `kind` is its CSS class; without `joined` only dots are drawn."""

    label: str
    kind: str
    points: Sequence[tuple[float, float]]
    joined: bool = True


@dataclass(frozen=True)
class Bar:
    """A piece of a row of the time line, from `start` to `end` seconds."""

    row: int
    kind: str
    start: float
    end: float
    title: str


def curves(series: Sequence[Series], last: float, low: float = 0.0, high: float = 1.0, height: float = 280.0) -> str:
    """Curves over 0 … `last`; the y axis covers `low` … `high` and whatever lies outside."""
    values = [y for one in series for _, y in one.points]
    low, high = min([low, *values]), max([high, *values])
    x, y = _scale(0.0, max(last, 1.0), LEFT, WIDTH - RIGHT), _scale(low, high, height - BOTTOM, TOP)
    parts = [_grid(y, low, high), _ticks(x, last, height)]
    for one in series:
        if one.joined and len(one.points) > 1:
            path = " ".join(f"{x(px):.1f},{y(py):.1f}" for px, py in one.points)
            parts.append(f'<polyline class="line {escape(one.kind)}" points="{path}"/>')
        for px, py in one.points:
            title = escape(f"{one.label}, step {px:g}: {py:.3f}")
            size = 2.5 if one.joined else 5
            parts.append(
                f'<circle class="dot {escape(one.kind)}" cx="{x(px):.1f}" cy="{y(py):.1f}" r="{size}">'
                f"<title>{title}</title></circle>"
            )
    return _svg(parts, height) + _legend([(one.label, one.kind) for one in series])


def stacks(columns: Sequence[tuple[str, dict[str, int]]], kinds: dict[str, str], height: float = 200.0) -> str:
    """One stacked bar per column (label, count by name); `kinds`: name → CSS class, lowest first."""
    most = max([sum(counts.values()) for _, counts in columns] or [1]) or 1
    y = _scale(0, most, height - BOTTOM, TOP)
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(columns))
    parts = [_grid(y, 0, most, whole=True)]
    stride = max(1, len(columns) // 15)
    for index, (label, counts) in enumerate(columns):
        base, left = 0, LEFT + index * slot
        for name, kind in kinds.items():
            count = counts.get(name, 0)
            if count:
                title = escape(f"step {label}: {count} {name}")
                parts.append(
                    f'<rect class="fill {escape(kind)}" x="{left + slot * 0.12:.1f}" y="{y(base + count):.1f}" '
                    f'width="{slot * 0.76:.1f}" height="{y(base) - y(base + count):.1f}"><title>{title}</title></rect>'
                )
                base += count
        if index % stride == 0:
            parts.append(_text(left + slot / 2, height - 8, label, "middle"))
    return _svg(parts, height) + _legend(list(kinds.items()))


def timeline(rows: Sequence[str], bars: Sequence[Bar], kinds: dict[str, str]) -> str:
    """Rows of bars over seconds; `kinds`: legend label → CSS class."""
    step, end = 16.0, max([bar.end for bar in bars] or [1.0])
    height = TOP + step * max(1, len(rows)) + BOTTOM
    x = _scale(0, max(end, 1.0), LEFT, WIDTH - RIGHT)
    parts = []
    for tick in _round_ticks(end):
        parts.append(
            f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP:.1f}" y2="{height - BOTTOM:.1f}"/>'
        )
        parts.append(_text(x(tick), height - 8, f"{tick:g} s", "middle"))
    for index, label in enumerate(rows):
        parts.append(_text(LEFT - 8, TOP + step * index + 11, label, "end"))
    order = list(kinds.values())
    for bar in bars:
        lane = order.index(bar.kind) if bar.kind in order else 0
        tall = (step - 2) / max(1, len(order))
        top = TOP + step * bar.row + lane * tall
        width = max(1.5, x(bar.end) - x(bar.start))
        parts.append(
            f'<rect class="fill {escape(bar.kind)}" x="{x(bar.start):.1f}" y="{top:.1f}" width="{width:.1f}" '
            f'height="{tall:.1f}"><title>{escape(bar.title)}</title></rect>'
        )
    return _svg(parts, height) + _legend(list(kinds.items()))


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    span = (high - low) or 1.0
    return lambda value: start + (value - low) * (end - start) / span


def _grid(y: Callable[[float], float], low: float, high: float, whole: bool = False) -> str:
    parts = []
    for index in range(5):
        value = low + (high - low) * index / 4
        if whole and value != int(value):
            continue
        at = y(value)
        parts.append(f'<line class="grid" x1="{LEFT:.1f}" x2="{WIDTH - RIGHT:.1f}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(_text(LEFT - 8, at + 4, f"{value:.0f}" if whole else f"{value:.2f}", "end"))
    return "".join(parts)


def _ticks(x: Callable[[float], float], last: float, height: float) -> str:
    return "".join(_text(x(tick), height - 8, f"{tick:g}", "middle") for tick in _round_ticks(last, whole=True))


def _round_ticks(end: float, whole: bool = False) -> list[float]:
    """About eight round numbers from 0 to `end`."""
    size = max(end, 1.0) / 8
    unit = 10.0 ** max(0 if whole else -1, len(str(int(size))) - 1)
    stride = next(unit * k for k in (1, 2, 5, 10, 20) if unit * k >= size or k == 20)
    return [stride * index for index in range(int(end / stride) + 1)]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    items = "".join(f'<span><i class="{escape(kind)}"></i>{escape(label)}</span>' for label, kind in entries)
    return f'<div class="legend">{items}</div>'


def _svg(parts: Sequence[str], height: float) -> str:
    return f'<svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img">{"".join(parts)}</svg>'
