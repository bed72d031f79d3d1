// Requests that have ended: where their time went, which steps served them, what they took of the device.

import { element, keepingFocus, make, parts, setColumns, show, tableRow } from "./dom.js";
import { count, digits, known, knownShare, percent } from "./format.js";

setColumns("requests", [
  ["request", "id"], "queue ms", "prefill ms", "decode ms", [make("span", { className: "unseen" }, "time"), "bars"], ["prompt", "wider"], "output",
  ["steps", "wider"], "device ms", "of device", "end",
]);

export const length = (request) => request.queue_us + request.prefill_us + request.decode_us;

function tokens(request) {
  const cached = request.cached_tokens > 0 ? ` (${count(request.cached_tokens)} cached)` : "";
  return `${count(request.prompt_tokens)}${cached}`;
}

/** Its output, and what of it draft tokens foretold. */
function output(request) {
  if (request.drafts === undefined) return count(request.output_tokens);
  const [, checked, right] = request.drafts;
  const gain = request.output_tokens / Math.max(1, request.output_tokens - right);
  return make("span", { title: `${count(right)} of ${count(checked)} draft tokens were right (${percent(right / checked)} %): ${digits(gain)} tokens a step` },
    `${count(request.output_tokens)} (${count(right)} of ${count(checked)} drafts)`);
}

/** The key of the button that opens a request. */
export const keyOf = (request) => `${request.id} ${request.arrival_ns}`;

function rowOf(request, longest, open) {
  const button = make("button", { type: "button", className: "link", title: request.id }, request.id);
  button.dataset.key = keyOf(request);
  const row = tableRow([
    button, digits(request.queue_us / 1e3), digits(request.prefill_us / 1e3), digits(request.decode_us / 1e3),
    parts([[request.queue_us / longest, "idle"], [request.prefill_us / longest, "prefill"], [request.decode_us / longest, "decode"]]),
    tokens(request), output(request), request.first_step < 0 ? "none" : `${count(request.first_step)} – ${count(request.last_step)}`,
    known(request.device_us, (us) => digits(us / 1e3)), knownShare(request.device_share), request.finish,
  ]);
  row.addEventListener("click", () => open(request));
  return row;
}

let drawn = "";

/** Shows requests, the first of the list first; `about` says which they are. `open` is called with one that is clicked. */
export function showRequests(requests, about, open) {
  show("text", { requests_about: about });
  element("requests-empty").hidden = requests.length > 0;
  element("requests").hidden = requests.length === 0;
  const key = `${requests.length} ${requests[0]?.id} ${requests[0]?.arrival_ns}`;
  if (key === drawn) return;
  drawn = key;
  const longest = Math.max(...requests.map(length));
  const body = element("requests").tBodies[0];
  keepingFocus(body, () => body.replaceChildren(...requests.map((request) => rowOf(request, longest, open))));
}

export const byLength = (a, b) => length(b) - length(a);
