// Elements and their renewal. Strings become text nodes or attributes only: nothing here parses markup.

const handlers = new WeakMap();

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) on(node, name, value);
    else if (name === "style") Object.assign(node.style, value);
    else if (name === "spec") node.spec = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter(child => child != null && child !== false));
  return node;
}

function on(node, name, listener) {
  const known = handlers.get(node) ?? {};
  if (!known[name]) node.addEventListener(name.slice(2), event => handlers.get(node)[name](event));
  handlers.set(node, {...known, [name]: listener});
}

// el("a", {href, class, onclick, style: {…}, spec: data of one of our own elements}, …children); null is nothing.
export const el = (tag, properties = {}, ...children) => fill(document.createElement(tag), properties, children);
// The parser knows the namespace of SVG, so that the page needs no address, not even that one.
export const draw = (tag, properties = {}, ...children) =>
  fill(document.createElementNS(document.getElementById("svg").namespaceURI, tag), properties, children);

// Makes the children of `parent` those given, keeping every element that is still there: focus, scroll positions, open
// details and charts survive.
export function patch(parent, ...children) {
  const wanted = children.flat(Infinity).filter(child => child != null && child !== false)
    .map(child => child instanceof Node ? child : document.createTextNode(String(child)));
  const old = [...parent.childNodes];
  wanted.forEach((next, place) => {
    const now = old[place];
    if (!now) parent.append(next);
    else if (alike(now, next)) renew(now, next);
    else now.replaceWith(next);
  });
  for (const rest of old.slice(wanted.length)) rest.remove();
}

const alike = (now, next) => now.nodeName === next.nodeName && now.dataset?.key === next.dataset?.key;

function renew(now, next) {
  if (now.nodeType === Node.TEXT_NODE) {
    if (now.data !== next.data) now.data = next.data;
    return;
  }
  renewAttributes(now, next);
  for (const [name, listener] of Object.entries(handlers.get(next) ?? {})) on(now, name, listener);
  if (next.spec !== undefined) now.spec = next.spec;
  else patch(now, ...next.childNodes);
}

function renewAttributes(now, next) {
  for (const {name} of [...now.attributes])
    if (!next.hasAttribute(name) && name !== "open" && name !== "style") now.removeAttribute(name);
  for (const {name, value} of [...next.attributes])
    if (name !== "style" && name !== "value" && now.getAttribute(name) !== value) now.setAttribute(name, value);
  if (now.style && now.style.cssText !== next.style.cssText) now.style.cssText = next.style.cssText;
}
