// Where the page's data come from: the server's stream of events, or the file that the page was written with. Either gives documents
// of schema minfer.page/1.

const RETRY_MS = 2000;
const SILENCE_MS = 10000;
const KEY = "minfer-api-key";

export const hasKey = () => sessionStorage.getItem(KEY) !== null;

class WrongStatus extends Error {
  constructor(status) {
    super(`the server answers ${status}`);
    this.status = status;
  }
}

/** The page's `?model=` asks for the model of a server with several. */
function get(path, options) {
  const model = new URLSearchParams(location.search).get("model");
  if (model !== null) path += `${path.includes("?") ? "&" : "?"}model=${encodeURIComponent(model)}`;
  const key = sessionStorage.getItem(KEY);
  return fetch(path, { headers: key === null ? {} : { authorization: `Bearer ${key}` }, cache: "no-store", ...options });
}

/** What the server says at a path. */
export async function ask(path) {
  const response = await get(path);
  if (!response.ok) throw new WrongStatus(response.status);
  return response.json();
}

/** Calls `onData` with the newest document whenever some have come, until the server ends the stream. */
async function readEvents(abort, onData) {
  let silence = setTimeout(() => abort.abort(), SILENCE_MS);
  try {
    const response = await get("profile/events", { signal: abort.signal });
    if (!response.ok) throw new WrongStatus(response.status);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Error("the stream has ended");
      clearTimeout(silence);
      silence = setTimeout(() => abort.abort(), SILENCE_MS);
      const events = (text + value).split("\n\n");
      text = events.pop();
      const newest = events.filter((event) => event.startsWith("data: ")).pop();
      if (newest !== undefined) onData(JSON.parse(newest.slice("data: ".length)));
    }
  } finally {
    clearTimeout(silence);
  }
}

/**
 * The server's stream. It is open only while the page is seen and not paused. `onState` is told of "live", "paused", "locked" (an API
 * key is needed) and "gone", each with a text.
 */
export class LiveSource {
  constructor(onData, onState) {
    this.onData = onData;
    this.onState = onState;
    this.paused = false;
    this.abort = null;
    this.goneSince = null;
    this.retry = 0;
    document.addEventListener("visibilitychange", () => this.update());
    addEventListener("pagehide", () => this.close());
    addEventListener("pageshow", () => this.update());
    this.update();
  }

  setPaused(paused) {
    this.paused = paused;
    if (paused) this.onState("paused", "paused");
    this.update();
  }

  useKey(key) {
    sessionStorage.setItem(KEY, key);
    this.update();
  }

  close() {
    clearTimeout(this.retry);
    this.abort?.abort();
    this.abort = null;
  }

  async update() {
    this.close();
    if (this.paused || document.hidden) return;
    const abort = new AbortController();
    this.abort = abort;
    try {
      await readEvents(abort, (data) => {
        if (this.abort !== abort) return;
        this.goneSince = null;
        this.onData(data);
        this.onState("live", "live");
      });
    } catch (error) {
      if (this.abort === abort) this.fail(error);
    }
  }

  fail(error) {
    if (error.status === 401) return this.onState("locked", "API key needed");
    this.goneSince ??= new Date();
    const since = this.goneSince.toLocaleTimeString("en-GB");
    this.onState("gone", error.status === undefined ? `server gone since ${since}` : `${error.message} since ${since}`);
    this.retry = setTimeout(() => this.update(), RETRY_MS);
  }
}

/** The data that the page was written with; null: it is the server's. */
export function embeddedData() {
  const data = document.getElementById("data");
  return data === null ? null : JSON.parse(data.textContent);
}

const BATCH = ["prefill_requests", "decode_requests", "prefill_tokens", "decode_tokens", "padded_tokens", "prefix_hit_tokens", "preempted",
  "waiting", "constrained_rows", "forced_tokens", "prefill_budget", "draft_tokens", "accepted_tokens", "disk_tokens", "disk_written"];
const OP = ["calls", "us", "gbps", "roofline", "idle_us"];
const named = (names, values) => Object.fromEntries(values.map((value, i) => [names[i], value]));

/** The strip's steps with names instead of numbers. */
export function stepsOf({ steps, ops, host, request_ids: ids }) {
  return steps.map((step) => ({
    ...step,
    batch: named(BATCH, step.batch),
    kv: named(["used", "total"], step.kv),
    host_us: named(host, step.host_us),
    ops: step.ops.map(([op, ...figures]) => ({ op: ops[op], ...named(OP, figures) })),
    requests: step.requests.map((id) => ids[id]),
  }));
}
