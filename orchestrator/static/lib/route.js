// The address of a page is the part behind `#`, so that links can be shared and also work in a report on disk. Pure.

// "#/nodes/0xab?after=25" → {name: "nodes", id: "0xab", query: {after: "25"}}.
export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [name, id] = path.split("/").map(decoded);
  return {name: name || "overview", id: id || null, query: Object.fromEntries(new URLSearchParams(query))};
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// link("nodes", "0xab", {after: 25}) → "#/nodes/0xab?after=25"; empty parameters are left out.
export function link(name, id = null, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value != null && value !== "");
  const path = id == null ? name : `${name}/${encodeURIComponent(id)}`;
  return `#/${path}${kept.length ? `?${new URLSearchParams(kept)}` : ""}`;
}
