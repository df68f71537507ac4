// Measurements against their thresholds, as bars.
import {el} from "../lib/dom.js";
import {figure} from "../lib/format.js";

// A finding's figures: those with a threshold (`NAME_reject`) as [name, value, threshold], and the others. Pure.
export function figuresOf(figures) {
  const judged = [], others = [];
  for (const [name, value] of Object.entries(figures)) {
    if (`${name}_reject` in figures) judged.push([name, value, figures[`${name}_reject`]]);
    else if (!(name.endsWith("_reject") && name.slice(0, -7) in figures)) others.push([name.replaceAll("_", " "), value]);
  }
  return {judged, others};
}

export const meters = judged => judged.length ? el("ul", {class: "meters"}, ...judged.map(([name, value, threshold]) => {
  const part = typeof value === "number" && threshold > 0 ? Math.max(0, value / threshold) : 1;
  const tone = part >= 1 ? "red" : part >= .5 ? "amber" : "green", plain = name.replaceAll("_", " ");
  return el("li", {}, el("span", {}, plain), el("span", {class: "dim"}, `${figure(value)} of ${figure(threshold)}`),
    el("div", {class: "track", role: "img", "aria-label": `${plain}: ${figure(value)}, threshold ${figure(threshold)}`},
      el("i", {class: `swatch ${tone}`, style: {width: `${Math.min(100, part * 100)}%`}})));
})) : null;
