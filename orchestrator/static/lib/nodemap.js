// <node-map>: every node as a square, coloured by its state, in the order of joining; a click opens the node.
// Its `spec`: {states: one letter for each, open: place → void}.
import {draw, el, patch} from "./dom.js";
import {count} from "./format.js";

export const STATES = [["h", "healthy", "good"], ["u", "unhealthy", "warn"], ["w", "waiting", "grey"], ["d", "dead", "bad"],
  ["e", "ejected", "violet"], ["l", "left", "faint"]];

class NodeMap extends HTMLElement {
  #spec = null;

  get spec() { return this.#spec; }
  set spec(spec) {
    this.#spec = spec;
    if (this.isConnected) this.#draw();
  }

  connectedCallback() {
    this.observer = new ResizeObserver(() => this.#draw());
    this.observer.observe(this);
    this.#draw();
  }

  disconnectedCallback() { this.observer.disconnect(); }

  #draw() {
    if (!this.#spec) return;
    const {states, open} = this.#spec, width = this.clientWidth || 300;
    const pitch = states.length > 4000 ? 6 : states.length > 400 ? 11 : 18, side = pitch - Math.max(2, pitch / 6);
    const across = Math.max(1, Math.floor(width / pitch)), high = Math.ceil(states.length / across) * pitch;
    const paths = STATES.map(([letter, name, tone]) => {
      let path = "";
      for (let place = 0; place < states.length; place++)
        if (states[place] === letter)
          path += `M${place % across * pitch} ${Math.floor(place / across) * pitch}h${side}v${side}h${-side}z`;
      return path && draw("path", {d: path, class: `fill ${tone}`}, draw("title", {}, name));
    });
    const told = STATES.map(([letter, name]) => [name, states.split(letter).length - 1]).filter(([, number]) => number);
    const click = event => {
      const box = event.currentTarget.getBoundingClientRect();
      const place = Math.floor((event.clientY - box.top) / pitch) * across + Math.floor((event.clientX - box.left) / pitch);
      if (place < states.length) open(place);
    };
    patch(this, draw("svg", {width: across * pitch, height: Math.max(high, 1), role: "img", onclick: click,
      "aria-label": `Nodes by state: ${told.map(([name, number]) => `${count(number)} ${name}`).join(", ") || "none"}`},
    ...paths.filter(Boolean)));
  }
}
customElements.define("node-map", NodeMap);

export const nodeMap = (states, open) => el("node-map", {spec: {states, open}});
