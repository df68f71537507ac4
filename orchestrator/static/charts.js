// Charts as SVG, one unit to a pixel: curves, stacked bars, a time line. They take plain data and return nodes.
const LEFT = 44, RIGHT = 12, TOP = 12, BOTTOM = 26;

const scale = (low, high, from, to) => value => from + (value - low) * (to - from) / (high - low || 1);
const label = (x, y, anchor, text) => draw("text", {x, y, "text-anchor": anchor}, text);
const titled = (tag, attributes, title) => draw(tag, attributes, draw("title", {}, title));

function chart(width, height, name, parts) {
  return draw("svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": name}, ...parts);
}

// entries: [label, CSS class of its colour].
const legend = entries =>
  el("div", {class: "legend"}, ...entries.map(([name, kind]) => el("span", {}, el("i", {class: kind}), name)));

// At most about `count` round numbers from 0 to `end`.
function roundTicks(end, smallest = 1, count = 8) {
  const size = Math.max(end, 1) / count, unit = Math.max(smallest, 10 ** Math.floor(Math.log10(size)));
  const stride = [1, 2, 5, 10].map(k => k * unit).find(step => step >= size) ?? 10 * unit;
  return Array.from({length: Math.floor(end / stride) + 1}, (_, i) => stride * i);
}

// Three significant figures of the chart's span, so that small values differ.
const tick = (value, span) => span < 0.1 && value ? value.toExponential(0)
  : value.toFixed(span < 20 ? 2 : 0);

function horizontals(y, low, high, width, whole) {
  const values = whole ? roundTicks(high, 1, 4) : [0, 1, 2, 3, 4].map(i => low + (high - low) * i / 4);
  return values.flatMap(value => [
    draw("line", {class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value)}),
    label(LEFT - 8, y(value) + 4, "end", whole ? value : tick(value, high - low))]);
}

// series: {label, kind: CSS class, points: [x, y], joined: a line, not only dots}; x runs from 0 to `last`, y over 0 to
// `top` and whatever lies outside.
function curves(name, series, last, width, height = 260, top = 1) {
  const values = series.flatMap(one => one.points.map(point => point[1]));
  const low = Math.min(0, least(values)), high = Math.max(top, most(values)) || 1;
  const x = scale(0, Math.max(last, 1), LEFT, width - RIGHT), y = scale(low, high, height - BOTTOM, TOP);
  const parts = [...horizontals(y, low, high, width),
    ...roundTicks(last).map(tick => label(x(tick), height - 8, "middle", tick))];
  for (const {label: what, kind, points, joined} of series) {
    const path = points.map(([px, py]) => `${x(px)},${y(py)}`).join(" ");
    if (joined && points.length > 1) parts.push(draw("polyline", {class: `line ${kind}`, points: path}));
    for (const [px, py] of points)
      parts.push(titled("circle", {class: `fill ${kind}`, cx: x(px), cy: y(py), r: joined ? 2.5 : 5},
        `${what}, step ${px}: ${figure(py)}`));
  }
  return [chart(width, height, name, parts), legend(series.map(one => [one.label, one.kind]))];
}

// columns: [label, Map of counts by name]; kinds: [name, CSS class], the lowest first.
function stacks(name, columns, kinds, width, height = 200) {
  const top = Math.max(1, most(columns.map(([, counts]) => [...counts.values()].reduce((sum, count) => sum + count, 0))));
  const y = scale(0, top, height - BOTTOM, TOP), slot = (width - LEFT - RIGHT) / Math.max(1, columns.length);
  const parts = horizontals(y, 0, top, width, true), stride = Math.ceil(columns.length / 15);
  columns.forEach(([step, counts], index) => {
    let base = 0;
    const x = LEFT + index * slot;
    for (const [what, kind] of kinds) {
      const count = counts.get(what) ?? 0;
      if (count)
        parts.push(titled("rect", {class: `fill ${kind}`, x: x + slot * .12, y: y(base + count), width: slot * .76,
          height: y(base) - y(base + count)}, `step ${step}: ${count} ${what}`));
      base += count;
    }
    if (index % stride === 0) parts.push(label(x + slot / 2, height - 8, "middle", step));
  });
  return [chart(width, height, name, parts), legend(kinds)];
}

// rows: labels; bars: {row, kind: CSS class, start, end: seconds, title}; kinds: [label, CSS class], a lane each.
function timeline(name, rows, bars, kinds, width) {
  const step = 16, height = TOP + step * Math.max(1, rows.length) + BOTTOM, tall = (step - 2) / Math.max(1, kinds.length);
  const end = Math.max(1, most(bars.map(bar => bar.end))), x = scale(0, end, LEFT, width - RIGHT);
  const parts = roundTicks(end, .1).flatMap(tick => [
    draw("line", {class: "grid", x1: x(tick), x2: x(tick), y1: TOP, y2: height - BOTTOM}),
    label(x(tick), height - 8, "middle", `${+tick.toFixed(1)} s`)]);
  rows.forEach((text, row) => parts.push(label(LEFT - 8, TOP + step * row + 11, "end", text)));
  for (const {row, kind, start, end: until, title} of bars) {
    const lane = kinds.findIndex(([, colour]) => colour === kind);
    parts.push(titled("rect", {class: `fill ${kind}`, x: x(start), y: TOP + step * row + Math.max(0, lane) * tall,
      width: Math.max(1.5, x(until) - x(start)), height: tall}, title));
  }
  return [chart(width, height, name, parts), legend(kinds)];
}
