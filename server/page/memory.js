// What holds the device's memory, and the KV cache.

import { bar, element, setColumns, show, showFacts, showRows } from "./dom.js";
import { bytes, count, percent, sum } from "./format.js";

setColumns("memory-parts", [["what", "name"], ["in use", "bars", 2], "at the most", "place"]);

/** Parts of less are added up. */
const LEAST_SHARE = 0.002;

function rows({ parts, total_bytes: total }) {
  const large = parts.filter((part) => part.most_bytes >= LEAST_SHARE * total);
  const small = parts.filter((part) => !large.includes(part) && part.most_bytes > 0);
  const rest = small.length === 0 ? [] : [{
    what: `${small.length} smaller parts`, bytes: sum(small.map((part) => part.bytes)), most_bytes: sum(small.map((part) => part.most_bytes)), place: "",
  }];
  return [...large, ...rest].map((part) => [
    part.what, bar(part.bytes / total, "decode"), bytes(part.bytes), bytes(part.most_bytes), part.place,
  ]);
}

/** `memory` of a report; `kv`: blocks {used, total}, and the most in use of the steps that are shown. */
export function showMemory(memory, kv) {
  const ledger = memory.end ?? memory.begin;
  const blocks = (number) => `${count(number)} of ${count(kv.total)}, ${percent(kv.total > 0 ? number / kv.total : 0)} %`;
  const facts = [["KV blocks in use", blocks(kv.used)], ["at the most, in steps shown", blocks(kv.most)]];
  if (ledger !== null) {
    facts.push(["device memory in use", `${bytes(ledger.used_bytes)} of ${bytes(ledger.total_bytes)}`],
               ["by others", bytes(ledger.used_before_bytes)], ["not explained", bytes(ledger.unexplained_bytes)]);
  }
  showFacts("memory-facts", facts);
  element("memory-parts").hidden = ledger === null;
  show("text", { memory_about: ledger === null ? "this device has no memory of its own" : memory.end === null ? "when the profile began" : "when the profile ended" });
  if (ledger !== null) showRows("memory-parts", rows(ledger));
}
