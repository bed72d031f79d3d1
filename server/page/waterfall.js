// A request that was opened: where its time went, and its longest gaps between tokens, as `minfer profile requests` tells them.

import { element, make, parts, setColumns, show, showRows } from "./dom.js";
import { count, digits, duration, percent } from "./format.js";
import { length } from "./requests.js";
import { ask } from "./source.js";

setColumns("waterfall", [["where its time went", "name"], "ms", "%", "steps", ["from its arrival to its end", "bars"]]);

/** Colours of parts; all others are waiting. */
const KINDS = {
  prefill: "prefill", "prefill.steps": "prefill", decode: "decode", "decode.alone": "decode", "decode.mixed": "mixed", "decode.recompute": "prefill",
};

function rowOf({ part, label, us, share, begin_us: begin, steps }, whole) {
  return [label.replace(/^- /, "\u00a0\u00a0"), digits(us / 1e3), percent(share), steps > 0 ? count(steps) : "–",
    parts(begin === undefined ? [] : [[begin / whole, "blank"], [us / whole, KINDS[part] ?? "idle"]])];
}

/** `stepButton` makes a button of a step's number, or a text. */
function gapOf(gap, stepButton) {
  return make("li", {}, stepButton(gap.step), `: ${duration(gap.us)} between two tokens; the step took ${duration(gap.step_us)}, ` +
    `prompt tokens: ${count(gap.prompt_tokens)}, decoding sequences: ${count(gap.sequences)}`, make("p", {}, `${gap.why}.`));
}

/** Of a file it is here, of a server that is asked; undefined: it is not kept any more. */
async function waterfallOf(request) {
  if (request.waterfall !== undefined) return request;
  const { slowest } = await ask(`profile/requests?id=${encodeURIComponent(request.id)}`);
  return slowest.find((each) => each.request.arrival_ns === request.arrival_ns);
}

export async function showRequest(request, stepButton) {
  const found = await waterfallOf(request).catch((error) => error);
  const steps = request.prefill_steps + request.decode_steps;
  const known = found?.known_steps ?? 0;
  show("text", {
    request_title: request.id,
    request_about: `${duration(length(request))}, ended by ${request.finish}, preemptions: ${count(request.preemptions)}`,
    request_note: found instanceof Error ? `The server does not say: ${found.message}.`
      : found === undefined ? "The server no longer has this request."
      : known < steps ? `${count(known)} of its ${count(steps)} steps are known.` : "",
  });
  element("request-steps").replaceChildren(...request.first_step < 0 ? ["No step served it."]
    : ["Served from ", stepButton(request.first_step), " to ", stepButton(request.last_step), "."]);
  showRows("waterfall", (found?.waterfall ?? []).map((part) => rowOf(part, length(request))));
  const gaps = found?.gaps ?? [];
  element("gaps").replaceChildren(...gaps.length > 0 ? gaps.map((gap) => gapOf(gap, stepButton)) : ["No gap is known."]);
  element("request").hidden = false;
  element("request").focus();
}
