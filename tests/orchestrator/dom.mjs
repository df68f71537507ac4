// Runs the page's script over a document of a few lines and prints what it shows as HTML, so that tests need no browser.
// stdin: {script, run, calls: expressions in the script's scope}; stdout: {title, name, page, values}.
import { readFileSync } from "node:fs";

const NAMES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escape = text => text.replace(/[&<>"]/g, found => NAMES[found]);

class Element {
  attributes = [];
  children = [];
  constructor(tag) { this.tag = tag; }
  setAttribute(name, value) { this.attributes.push([name, String(value)]); }
  append(...children) { this.children.push(...children.map(one => one instanceof Element ? one : String(one))); }
  replaceChildren(...children) { this.children = []; this.append(...children); }
  get textContent() { return this.children.join(""); }
  set textContent(text) { this.replaceChildren(text); }
  toString() {
    const attributes = this.attributes.map(([name, value]) => ` ${name}="${escape(value)}"`).join("");
    const children = this.children.map(one => one instanceof Element ? String(one) : escape(one)).join("");
    return `<${this.tag}${attributes}>${children}</${this.tag}>`;
  }
}

const places = {};
const document = {
  getElementById(id) {
    places[id] ??= Object.assign(new Element("div"), { parentNode: {} });
    return places[id];
  },
  createElement: tag => new Element(tag),
  createElementNS: (_namespace, tag) => new Element(tag),
  querySelectorAll: () => [],
};
const { script, run, calls } = JSON.parse(readFileSync(0, "utf8"));
document.getElementById("run").textContent = run;
const call = new Function("document", "addEventListener", `"use strict"; ${script}; return text => eval(text);`);
const inScope = call(document, () => undefined);
const shown = Object.entries(places).filter(([id, place]) => id !== "run" && !place.parentNode.hidden);
const values = calls.map(text => [inScope(text)].flat().join(""));
const page = shown.map(([, place]) => String(place)).join("\n");
process.stdout.write(JSON.stringify({ title: document.title, page, values }));
