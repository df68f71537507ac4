// Says when to ask again: whenever the service tells of a change, else every few seconds.

const LEAST_MS = 1500, POLL_MS = 4000, HIDDEN_MS = 20_000, RETRY_MS = 15_000;

// Calls `renew` until the page is closed, never twice at a time.
export function follow(renew) {
  let busy = false, due = null, streaming = false, last = 0;

  async function run() {
    due = null;
    if (busy) return later(LEAST_MS);
    busy = true;
    last = Date.now();
    try {
      await renew();
    } finally {
      busy = false;
      later(document.hidden ? HIDDEN_MS : streaming ? RETRY_MS : POLL_MS);
    }
  }

  function later(wait) {
    clearTimeout(due);
    due = setTimeout(run, wait);
  }

  function listen() {
    if (!globalThis.EventSource) return;
    const events = new EventSource("v1/events");
    events.addEventListener("change", () => {
      streaming = true;
      if (!document.hidden) later(Math.max(0, last + LEAST_MS - Date.now()));
    });
    events.onerror = () => {
      streaming = false;
      if (events.readyState !== EventSource.CLOSED) return;  // The browser tries again by itself.
      events.close();
      setTimeout(listen, RETRY_MS);
    };
  }

  listen();
  document.addEventListener("visibilitychange", () => document.hidden || later(0));
  addEventListener("pagehide", () => clearTimeout(due));
  later(0);
}
