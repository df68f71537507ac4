// <run-chart>: lines or stacked bars over policy steps, drawn by uPlot, with its figures as a table for everyone.
// Its `spec`: {title, steps, series: [{label, values, tone, dots}], stacked, format, zero, axis}.
import {el, patch} from "./dom.js";
import {figure} from "./format.js";

const HEIGHT = 200, SMALL = 150, MOST_ROWS = 500;
const styled = (name, host) => getComputedStyle(host).getPropertyValue(name).trim();
const paint = (tone, host) => resolved(`var(--c-${tone})`, host);

// The colour that a CSS value comes to here and now: light-dark() is resolved only where it is used.
function resolved(value, host) {
  const probe = host.probe ??= host.appendChild(el("i", {class: "probe", "aria-hidden": "true"}));
  probe.style.color = value;
  return getComputedStyle(probe).color;
}

class RunChart extends HTMLElement {
  #spec = null;
  #plot = null;
  #drawn = "";

  get spec() { return this.#spec; }
  set spec(spec) {
    this.#spec = spec;
    if (this.isConnected) this.#renew();
  }

  connectedCallback() {
    this.figureBox = el("div", {class: "plot", role: "img"});
    this.legend = el("div", {class: "legend", "aria-hidden": "true"});
    this.figures = el("details", {class: "figures"});
    this.append(this.figureBox, this.legend, this.figures);
    this.onTheme = () => { this.#drawn = ""; this.#renew(); };
    addEventListener("themechange", this.onTheme);
    this.observer = new ResizeObserver(() => this.#plot?.setSize({width: this.#width(), height: this.#height()}));
    this.observer.observe(this);
    this.#renew();
  }

  disconnectedCallback() {
    removeEventListener("themechange", this.onTheme);
    this.observer.disconnect();
    this.#plot?.destroy();
    this.#plot = null;
    this.#drawn = "";
    this.replaceChildren();
    this.probe = null;
  }

  #width() { return Math.max(200, this.figureBox.clientWidth || this.clientWidth || 300); }
  #height() { return this.#spec.small ? SMALL : HEIGHT; }

  #renew() {
    if (!this.#spec) return;
    const {title, steps, series, format = figure} = this.#spec, content = JSON.stringify([steps, series, title]);
    if (content === this.#drawn) return;
    const shape = JSON.stringify(series.map(one => one.label));
    if (this.#plot && this.#drawn && this.shape === shape && !this.#spec.stacked) this.#plot.setData(dataOf(this.#spec));
    else this.#build();
    this.#drawn = content;
    this.shape = shape;
    this.figureBox.setAttribute("aria-label", described(this.#spec));
    this.#legend(null);
    const rows = steps.slice(-MOST_ROWS).map((step, i) => el("tr", {}, el("th", {scope: "row"}, step),
      ...series.map(one => el("td", {}, format(one.values[i + Math.max(0, steps.length - MOST_ROWS)])))));
    patch(this.figures, el("summary", {}, "Figures"), el("div", {class: "scroll", tabindex: 0, role: "region",
      "aria-label": `Figures: ${title}`}, el("table", {}, el("caption", {class: "hidden"}, title), el("thead", {},
      el("tr", {}, el("th", {scope: "col"}, this.#spec.axis ?? "step"),
        ...series.map(one => el("th", {scope: "col"}, one.label)))), el("tbody", {}, ...rows))));
  }

  #legend(place) {
    const {series, steps, format = figure, axis = "step"} = this.#spec;
    const at = place ?? steps.length - 1;
    patch(this.legend, ...series.map(one => el("span", {}, el("i", {class: `swatch ${one.tone}`}), one.label, " ",
      el("b", {}, format(place == null ? one.values.findLast(value => value != null) : one.values[at])))),
    el("span", {class: "dim"}, place == null ? "" : `${axis} ${steps[at]}`));
  }

  #build() {
    this.#plot?.destroy();
    this.#plot = null;
    if (!globalThis.uPlot || !this.#spec.steps.length) {
      patch(this.figureBox, el("p", {class: "empty"}, "Nothing to draw yet."));
      return;
    }
    this.figureBox.replaceChildren();
    this.#plot = new globalThis.uPlot(options(this.#spec, this, this.#width(), this.#height(),
      place => this.#legend(place)), dataOf(this.#spec), this.figureBox);
  }
}
customElements.define("run-chart", RunChart);

export const chart = spec => el("run-chart", {spec});

function described({title, steps, series, format = figure}) {
  const parts = series.map(one => {
    const known = one.values.filter(value => value != null);
    return known.length ? `${one.label}: ${format(known[0])} at first, ${format(known.at(-1))} now` : `${one.label}: none`;
  });
  return `${title}, ${steps.length} points. ${parts.join(". ")}.`;
}

// Stacked series are drawn as their sums, the largest first, so that each covers the upper part of the one before.
function dataOf({steps, series, stacked}) {
  if (!stacked) return [steps, ...series.map(one => one.values)];
  let below = steps.map(() => 0);
  const sums = series.map(one => below = below.map((sum, i) => sum + (one.values[i] ?? 0)));
  return [steps, ...sums.reverse()];
}

function options(spec, host, width, height, onCursor) {
  const {uPlot} = globalThis, {format = figure, stacked, zero = true} = spec;
  const dim = resolved("var(--dim)", host), line = resolved("var(--line)", host);
  const axis = {stroke: dim, grid: {stroke: line, width: 1}, ticks: {show: false}, font: `11px ${styled("font-family", host)}`};
  const drawn = stacked ? [...spec.series].reverse() : spec.series;
  return {
    width, height, legend: {show: false}, padding: [10, 8, 0, 0],
    cursor: {y: false, points: {size: 7}, drag: {x: false, y: false}, sync: {key: "steps"}},
    scales: {x: {time: false, range: (_, low, high) => low === high ? [low - 1, high + 1] : stacked
      ? [low - .6, high + .6] : [low, high]},
    y: {range: (_, low, high) => span(low, high, zero)}},
    axes: [{...axis, space: 48, size: 26, gap: 4, values: (_, ticks) => ticks.map(tick => Number.isInteger(tick) ? String(tick) : "")},
      {...axis, size: 52, values: (_, ticks) => ticks.map(tick => format(tick))}],
    series: [{}, ...drawn.map(one => ({label: one.label, spanGaps: true,
      ...(stacked ? {fill: paint(one.tone, host), width: 0, stroke: paint(one.tone, host), points: {show: false},
        paths: uPlot.paths.bars({size: [.72, 40]})}
        : {stroke: paint(one.tone, host), width: one.dots ? 0 : 2, points: one.dots
          ? {show: true, size: 7, fill: paint(one.tone, host), stroke: paint(one.tone, host)}
          : {show: spec.steps.length < 2}})}))],
    hooks: {setCursor: [plot => onCursor(plot.cursor.idx ?? null)]},
  };
}

function span(low, high, zero) {
  if (low == null) return [0, 1];
  const bottom = zero ? Math.min(0, low) : low, top = zero ? Math.max(0, high) : high, room = (top - bottom || 1) * .08;
  return [bottom < 0 || !zero ? bottom - room : 0, top + room];
}
