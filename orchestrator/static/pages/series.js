// The charts of a run from the columns of its history: specs for <run-chart>. Pure.
import {compact, figure, share} from "../lib/format.js";

export const LINE_TONES = ["blue", "green", "amber", "violet", "red", "grey"];
export const STATUS_TONES = [["accepted", "green"], ["pending", "grey"], ["rejected", "red"], ["malformed", "amber"],
  ["unavailable", "violet"], ["void", "blue"], ["canary", "violet"], ["late", "faint"]];

const empty = ({steps}) => steps.map(() => null);
const column = (history, name) => history.columns[name] ?? empty(history);

// Without the steps before the first and after the last known value, so that no axis runs to what was never reached.
function trimmed(spec) {
  const known = place => spec.series.some(one => one.values[place] != null);
  const first = spec.steps.findIndex((_, place) => known(place)), last = spec.steps.findLastIndex((_, place) => known(place));
  const cut = list => first < 0 ? [] : list.slice(first, last + 1);
  return {...spec, steps: cut(spec.steps), series: spec.series.map(one => ({...one, values: cut(one.values)}))};
}

export function rewardChart(history) {
  const sets = Object.keys(history.columns).filter(name => name.startsWith("heldout/"));
  return trimmed({title: "Task reward by policy step", steps: history.steps, series: [
    {label: "trained on", tone: "blue", values: column(history, "reward")},
    ...sets.map((name, i) => ({label: `held out: ${name.slice(8)}`, tone: LINE_TONES[1 + i % 5], dots: true,
      values: column(history, name)}))]});
}

export function throughputChart(history) {
  const times = column(history, "time"), made = column(history, "tokens");
  const rates = times.map((time, i) => times[i + 1] > time && made[i] != null ? made[i] / (times[i + 1] - time) : null);
  return trimmed({title: "Accepted tokens per second", small: true, steps: history.steps, format: compact,
    series: [{label: "tokens per second", tone: "green", values: rates}]});
}

export function filesChart(history) {
  const seen = STATUS_TONES.filter(([status]) => history.columns[`files/${status}`]);
  return trimmed({title: "Files by policy step", small: true, stacked: true, steps: history.steps, format: compact,
    series: seen.map(([status, tone]) => ({label: status, tone, values: column(history, `files/${status}`)}))});
}

// [title, format, [metric, what it is], …]
const TRAINING = [["Entropy (nats)", figure, ["metric/entropy", "entropy"]],
  ["Loss", figure, ["metric/loss", "loss"]],
  ["Gradient norm", figure, ["metric/grad_norm", "before clipping"]],
  ["Clipped tokens", share, ["metric/clip_low", "lower bound"], ["metric/clip_high", "upper bound"]],
  ["Mismatch and movement (KL)", figure, ["metric/mismatch", "workers to trainer"], ["metric/kl", "within the step"]],
  ["Length (tokens)", figure, ["metric/output_length_mean", "mean output"], ["metric/length_error", "off the target"]],
  ["Groups without signal", share, ["metric/dropped_share", "dropped"]],
  ["Staleness (policy steps)", figure, ["metric/staleness_mean", "mean over files"]],
  ["Trainer's time", share, ["metric/idle_share", "waiting"], ["metric/mfu", "model FLOPs utilisation"]],
  ["Waiting (seconds) for", figure, ["metric/idle_seconds/starting", "a first file"],
    ["metric/idle_seconds/generating", "files"], ["metric/idle_seconds/judging", "verdicts"],
    ["metric/idle_seconds/confirming", "blocks"], ["metric/idle_seconds/fetching", "the bucket"]],
  ["Trained tokens per second", compact, ["metric/tokens_per_second", "trained"]]];

export function trainingCharts(history) {
  const known = new Set(TRAINING.flatMap(([, , ...metrics]) => metrics.map(([name]) => name)));
  const chosen = TRAINING.map(([title, format, ...metrics]) =>
    [title, format, metrics.filter(([name]) => history.columns[name])]).filter(([, , metrics]) => metrics.length);
  const others = Object.keys(history.columns).filter(name => name.startsWith("metric/") && !known.has(name)
    && name !== "metric/reward" && history.columns[name].filter(value => value != null).length > 1);
  const all = [...chosen, ...others.map(name => [name.slice(7), figure, [[name, name.slice(7)]]])];
  return all.map(([title, format, metrics]) => trimmed({title, format, small: true, steps: history.steps,
    series: metrics.map(([name, label], i) => ({label, tone: LINE_TONES[i], values: column(history, name)}))}));
}
