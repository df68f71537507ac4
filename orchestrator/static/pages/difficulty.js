// How often the run's problems were solved, and which of them rest.
import {el} from "../lib/dom.js";
import {count, plural, share} from "../lib/format.js";
import {card, heading, lead, stepLink, table, tiles, words} from "../lib/parts.js";

export const difficultyPage = {
  title: () => "Difficulty",
  load: source => source.get("difficulty"),
  view: found => [
    heading("Difficulty"),
    lead("How often the run's models solved its problems, counted from accepted files that nothing can change any more. Where "
      + "the pool has a curriculum, problems that are solved nearly always or hardly ever are masked for a while."),
    tiles([["Files counted", count(found.files), {sub: found.unread ? `${count(found.unread)} not read yet` : null}],
      ["As of policy step", stepLink(found.step)]]),
    card("Environments", {wide: true}, table("Environments", [["Environment", {main: true}], ["Problems", {n: true}],
      ["Tried", {n: true}], ["Never solved", {n: true}], ["Always solved", {n: true}], ["Masked, too hard", {n: true}],
      ["Masked, too easy", {n: true}], ["Masked in all", {n: true}]],
    found.environments.map(one => [words(one.environment), one.problems == null ? "from any seed" : count(one.problems),
      count(one.tried), part(one.solved[0], one.tried), part(one.solved.at(-1), one.tried), part(one.hard, one.problems),
      part(one.easy, one.problems), part(masked(one), one.problems)]))),
    el("div", {class: "grid"}, ...found.environments.map(one => card(words(one.environment), {note: maskedNote(one)}, shares(one)))),
  ],
};

const masked = ({hard, easy}) => hard == null ? null : hard + easy;
// "12 (3%)"; a dash where nothing is known.
const part = (number, whole) => number == null ? "–" : whole ? `${count(number)} (${share(number / whole)})` : count(number);

function maskedNote(one) {
  if (one.hard == null) return "No curriculum: no problem is masked.";
  return `${plural(masked(one), "problem")} of ${count(one.problems)} (${share(masked(one) / one.problems)}) ${
    masked(one) === 1 ? "is masked" : "are masked"}: ${count(one.hard)} too hard, ${count(one.easy)} too easy.`;
}

// The kinds that are counted: never, ten tenths, always.
const kind = place => place === 0 ? "never" : place === 11 ? "always" : place === 1 ? "in under 10% of tries"
  : `in ${place - 1}0% to ${place}0%`;
const tone = place => place === 0 ? "red" : place === 11 ? "green" : "blue";

function shares({environment, solved, tried}) {
  if (!tried) return el("p", {class: "empty"}, "No problem was tried yet.");
  return el("ul", {class: "spans"}, ...solved.map((number, place) => el("li", {}, el("span", {}, kind(place)),
    el("span", {class: "dim"}, part(number, tried)), el("div", {class: "track", role: "img",
      "aria-label": `${environment}: ${count(number)} of ${plural(tried, "problem")} solved ${kind(place)}`},
    number ? el("i", {class: `swatch ${tone(place)}`, style: {width: `${100 * number / tried}%`}}) : null))));
}
