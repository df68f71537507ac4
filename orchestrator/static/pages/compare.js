// Runs side by side: this one, and the records or histories of others, read from files on this computer.
import {el} from "../lib/dom.js";
import {chart} from "../lib/charts.js";
import {count, figure} from "../lib/format.js";
import {card, heading, lead, table, words} from "../lib/parts.js";
import {historyOf} from "./history.js";
import {LINE_TONES} from "./series.js";

const MOST_BYTES = 64 << 20;
const others = [];
let problem = "";

export const comparePage = {
  title: () => "Compare",
  async load(source) {
    const [overview, history] = await Promise.all([source.get("overview"), source.get("history")]);
    return [{name: `${overview.name} (this run)`, history}];
  },
  view(own, {renew}) {
    const runs = [...own, ...others];
    return [
      heading("Compare runs"),
      lead("Add the ", el("code", {}, "record.json"), " that a run leaves, or a history saved below. Files stay on this computer."),
      el("p", {class: "pick"}, el("label", {for: "runs"}, "Add runs "), el("input", {id: "runs", type: "file", multiple: true,
        accept: ".json,application/json", onchange: event => add(event.target.files).then(renew)}),
      el("button", {type: "button", onclick: () => save(own[0])}, "Save this run's history"),
      others.length ? el("button", {type: "button", onclick: () => { others.length = 0; renew(); }}, "Remove the others") : null),
      problem ? el("p", {class: "banner warn", role: "alert"}, problem) : null,
      el("div", {class: "grid"}, card("Held-out reward by policy step", {wide: true}, chart(curvesOf(runs, heldout,
        "Held-out reward by policy step"))), card("Reward trained on, by policy step", {wide: true},
        chart(curvesOf(runs, run => run.columns.reward, "Reward trained on, by policy step"))),
      card("In figures", {wide: true}, table("Runs", [["Run", {main: true}], ["Steps", {n: true}], ["First held out", {n: true}],
        ["Last held out", {n: true}], ["Last trained on", {n: true}], ["Tokens accepted", {n: true}], ["Hours", {n: true}]],
      runs.map(({name, history}) => [words(name), count(history.steps.at(-1)), figure(first(heldout(history))),
        figure(lastOf(heldout(history))), figure(lastOf(history.columns.reward)),
        count((history.columns.tokens ?? []).reduce((sum, value) => sum + (value ?? 0), 0)), hours(history)])))),
    ];
  },
};

const first = values => values?.find(value => value != null) ?? null;
const lastOf = values => values?.findLast(value => value != null) ?? null;
const heldout = history => history.columns[Object.keys(history.columns).find(name => name.startsWith("heldout/"))];
const hours = ({columns: {time}}) => figure((lastOf(time) - first(time)) / 3600);

function curvesOf(runs, values, title) {
  const steps = [...new Set(runs.flatMap(one => one.history.steps))].sort((a, b) => a - b);
  return {title, steps, series: runs.map(({name, history}, i) => {
    const known = new Map(history.steps.map((step, place) => [step, values(history)?.[place] ?? null]));
    return {label: name.slice(0, 60), tone: LINE_TONES[i % LINE_TONES.length], values: steps.map(step => known.get(step) ?? null)};
  })};
}

async function add(files) {
  problem = "";
  for (const file of files) {
    try {
      if (file.size > MOST_BYTES) throw new Error("it is too large");
      others.push({name: file.name, ...historyOf(JSON.parse(await file.text()))});
    } catch (error) {
      problem = `${file.name} is neither a run's record nor a saved history: ${error.message}`;
    }
  }
}

function save({name, history}) {
  const url = URL.createObjectURL(new Blob([JSON.stringify({name, history})], {type: "application/json"}));
  el("a", {href: url, download: "history.json"}).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
