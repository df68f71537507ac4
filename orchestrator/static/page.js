// Shows the run that is embedded in the page (a report), or else the service's, again and again.
const SECTIONS = {tiles, rewards, evaluations, training, waits, outcomes, timeline: steps, cheaters, nodes, submissions,
  slashes, validators, disputes, ledger, escrow};
let shown = null;

function show(record, summary) {
  shown = [record, summary];
  const seconds = summary ? ` · ${summary.seconds} s` : "";
  const trouble = record.chain_error ? ` · ${record.chain_error}` : "";
  $("name").textContent = summary ? `${record.name}: run with seed ${summary.seed}` : record.name;
  document.title = summary ? $("name").textContent : `${record.name} · muster`;
  $("subtitle").textContent =
    `pool ${record.pool} · ${record.task} · ${record.model}${seconds} · block ${record.head}${trouble}`;
  for (const [id, section] of Object.entries(SECTIONS)) {
    const place = $(id), content = section(record, summary, place.clientWidth || 900);
    if (id !== "tiles") place.parentNode.hidden = content === null;
    place.replaceChildren(...[content ?? []].flat());
  }
}

function setStatus(text, tone, title = "") {
  const live = $("live");
  live.title = title;
  if (live.textContent === text) return;  // Screen readers announce whatever is written here.
  live.className = `pill ${tone}`;
  live.textContent = text;
}

async function poll() {
  try {
    const answer = await fetch("v1/dashboard", {cache: "no-store"});
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    show(await answer.json(), null);
    setStatus("live", "good");
  } catch (error) {
    setStatus("offline", "bad", String(error));
  }
  setTimeout(poll, document.hidden ? 5000 : 1500);
}

function start() {
  for (const place of document.querySelectorAll(".scroll"))  // A keyboard must be able to scroll them.
    fill(place, {tabindex: 0, role: "region", "aria-label": place.parentNode.firstElementChild.textContent}, []);
  addEventListener("resize", () => shown && show(...shown));
  const run = JSON.parse($("run").textContent);
  if (run) {
    show(run.record, run.summary);
    setStatus("report", "");
  } else {
    setStatus("connecting", "");
    poll();
  }
}
start();
