// What training did, step by step, as the trainer reported it.
import {el} from "../lib/dom.js";
import {chart} from "../lib/charts.js";
import {card, heading, lead} from "../lib/parts.js";
import {rewardChart, trainingCharts} from "./series.js";

export const trainingPage = {
  title: () => "Training",
  load: source => source.get("history"),
  view(history) {
    const charts = trainingCharts(history);
    return [
      heading("Training"),
      lead("As the trainer reports it, signed by the pool's owner. Point at a chart to read all of them at one step."),
      el("div", {class: "grid thirds"},
        card("Reward", {wide: true}, chart(rewardChart(history))),
        ...charts.map(spec => card(spec.title, {}, chart(spec)))),
      charts.length ? null : el("p", {class: "empty"}, "No step has been reported yet."),
    ];
  },
};
