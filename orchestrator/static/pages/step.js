// One policy step: its weights, the time line of its making and use, what training measured, its files.
import {el} from "../lib/dom.js";
import {clock, count, duration, figure} from "../lib/format.js";
import {card, facts, heading, lead, table, tiles, transaction, whole} from "../lib/parts.js";
import {link} from "../lib/route.js";
import {filesTable} from "./files.js";
import {refusedFiles} from "./overview.js";

export const stepPage = {
  title: ({id}) => `Policy step ${id}`,
  async load(source, {id}) {
    const [step, files] = await Promise.all([source.get(`policy-steps/${id}`),
      source.get("submissions", {step: id, limit: 10})]);
    return {step, files};
  },
  view({step, files}, {overview, now}) {
    const near = [step.step > 0 && el("a", {href: link("steps", step.step - 1)}, "Previous"),
      step.step < (overview?.step ?? 0) && el("a", {href: link("steps", step.step + 1)}, "Next")];
    return [
      heading(`Policy step ${step.step}`, el("nav", {class: "choices", "aria-label": "Neighbouring steps"}, ...near)),
      lead(`Published ${clock(step.time)} in block ${count(step.block)}.`),
      tiles([["Reward", figure(step.reward)], ["Held out", figure(step.heldout)],
        ["Files accepted", count(step.files.accepted ?? 0)], ["Not accepted", count(refusedFiles(step.files))],
        ["Awaiting a verdict", count(step.files.pending ?? 0)], ["Tokens accepted", count(step.tokens)]]),
      el("div", {class: "grid"},
        card("Time line", {note: "From the step's publication; the training that made it lies before."}, timeline(step)),
        card("Weights", {}, facts([["Manifest", step.manifest && whole(step.manifest)],
          ["Transaction", transaction(step.tx, overview?.chain)],
          ["Files it was made from", step.report && count(step.report.consumed.length)]])),
        evaluation(step), measured(step),
        card("Files generated with it", {wide: true,
          action: el("a", {href: link("files", null, {step: step.step})}, "All of them")}, filesTable(files.rows, now))),
    ];
  },
};

function timeline({time, submitted, accepted, report}) {
  const train = report?.timings.train, spans = [
    train != null && ["Training that made it", time - train, time, "amber"],
    submitted && ["First file in the making", time, submitted[0], "blue"],
    submitted && ["Files submitted", submitted[0], submitted[1], "violet"],
    accepted && ["Files accepted", accepted[0], accepted[1], "green"]].filter(Boolean);
  if (!spans.length) return el("p", {class: "empty"}, "Nothing was made from this step yet.");
  const low = Math.min(...spans.map(one => one[1])), high = Math.max(...spans.map(one => one[2])), whole = high - low || 1;
  return el("ol", {class: "spans"}, ...spans.map(([what, from, until, tone]) => el("li", {},
    el("span", {}, what), el("span", {class: "dim"}, duration(until - from)),
    el("div", {class: "track"}, el("i", {class: `swatch ${tone}`, style: {marginLeft: `${(from - low) / whole * 100}%`,
      width: `${Math.max(.6, (until - from) / whole * 100)}%`}})))));
}

function evaluation({report}) {
  const sets = report?.evaluation?.evaluation.results ?? [];
  if (!sets.length) return null;
  return card("Held-out sets", {wide: true, note: "Average: mean task reward over all tries, with its standard error. "
    + "pass@k: the chance that one of k tries is right. Signed by the pool's owner."},
  table("Held-out sets", [["Set", {main: true}], ["Problems × tries", {n: true}], ["Average", {n: true}], ["Solved"],
    ["Tokens", {n: true}]], sets.map(one => [one.name, `${one.problems} × ${one.samples}`,
    `${figure(one.average)} ± ${figure(one.error)}`,
    Object.entries(one.passed).map(([k, value]) => `pass@${k} ${figure(value)}`).join(" · "), figure(one.length)])));
}

function measured({report}) {
  if (!report) return card("Training", {}, el("p", {class: "empty"}, "The trainer has not reported on this step."));
  const rows = [...Object.entries(report.metrics), ...Object.entries(report.timings).map(([name, value]) =>
    [`${name} (seconds)`, value])];
  return card("As the trainer reported it", {wide: true}, facts(rows.map(([name, value]) => [name, figure(value)])));
}
