// Requests that have ended: where their time went, which steps served them, what they took of the device.

import { element, make, parts, show, tableRow } from "./dom.js";
import { count, digits, known, percent } from "./format.js";

const length = (request) => request.queue_us + request.prefill_us + request.decode_us;

function tokens(request) {
  const cached = request.cached_tokens > 0 ? ` (${count(request.cached_tokens)} cached)` : "";
  return `${count(request.prompt_tokens)}${cached}`;
}

/** Its output, and what of it draft tokens foretold. */
function output(request) {
  if (request.drafts === undefined) return count(request.output_tokens);
  const [, checked, right] = request.drafts;
  const gain = request.output_tokens / Math.max(1, request.output_tokens - right);
  return make("span", { title: `Of ${count(checked)} draft tokens ${count(right)} were right (${percent(right / checked)} %): ${digits(gain)} tokens a step` },
    `${count(request.output_tokens)} (${count(right)} of ${count(checked)} drafts)`);
}

function stepsButton(request, open) {
  if (request.first_step < 0) return "none";
  const button = make("button", { type: "button", className: "link", title: "Opens its first step, or the one nearest to it" },
    `${count(request.first_step)} – ${count(request.last_step)}`);
  button.addEventListener("click", () => open(request.first_step));
  button.dataset.key = request.id;
  return button;
}

function rowOf(request, longest, open) {
  return tableRow([
    request.id, digits(request.queue_us / 1e3), digits(request.prefill_us / 1e3), digits(request.decode_us / 1e3),
    parts([[request.queue_us / longest, "idle"], [request.prefill_us / longest, "prefill"], [request.decode_us / longest, "decode"]]),
    tokens(request), output(request), stepsButton(request, open),
    known(request.device_us, (us) => digits(us / 1e3)), known(request.device_share, (share) => `${percent(share)} %`), request.finish,
  ]);
}

let drawn = "";

/** Shows requests, the first of the list first; `about` says which they are. `open` is called with the number of a step. */
export function showRequests(requests, about, open) {
  show("text", { requests_about: about });
  element("requests-empty").hidden = requests.length > 0;
  element("requests").hidden = requests.length === 0;
  const key = `${requests.length} ${requests[0]?.id} ${requests[0]?.arrival_ns}`;
  if (key === drawn) return;
  drawn = key;
  const longest = Math.max(...requests.map(length));
  element("requests").tBodies[0].replaceChildren(...requests.map((request) => rowOf(request, longest, open)));
}

export const byLength = (a, b) => length(b) - length(a);
