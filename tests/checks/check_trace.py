#!/usr/bin/env python3
"""Checks that a trace in Chrome's JSON format is one that its readers take as it was meant. Prints each fault, the first 20 of a
kind, and exits 1 if there is one.

  tests/checks/check_trace.py TRACE.json[.gz] ...

  JSON      the file is valid JSON with a list of events, each of a known kind with the keys of that kind
  times     numbers without a fraction of a nanosecond; none is negative, nor is a duration
  tracks    every process and thread that has an event has one name
  order     the slices of a track ascend; each lies within the one around it, or behind it
  flows     every flow begins once and ends once, not before it began, each in a slice of its track
  counters  the values are numbers, their times ascend
"""
import bisect
import collections
import gzip
import json
import math
import sys

MOST_SHOWN = 20
KEYS = {"X": {"name", "cat", "ts", "dur", "args"}, "M": {"name", "args"}, "C": {"name", "ts", "args"},
        "s": {"name", "cat", "id", "ts"}, "f": {"name", "cat", "id", "ts", "bp"}}


class Faults:
    def __init__(self):
        self.by_kind = collections.defaultdict(list)

    def add(self, kind, text):
        self.by_kind[kind].append(text)

    def lines(self):
        for kind, texts in self.by_kind.items():
            for text in texts[:MOST_SHOWN]:
                yield f"{kind}: {text}"
            if len(texts) > MOST_SHOWN:
                yield f"{kind}: and {len(texts) - MOST_SHOWN} more"


def no_constant(text):
    raise ValueError(f"{text} is no JSON")


def load(path):
    with (gzip.open if str(path).endswith(".gz") else open)(path, "rb") as file:
        return json.loads(file.read().decode("utf-8"), parse_constant=no_constant)


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def nanoseconds(event, key, faults):
    """The time as a whole number of nanoseconds; None: it is none."""
    value = event[key]
    if not is_number(value):
        faults.add("times", f"{key} {value!r} of {event['name']!r} is no number")
        return None
    result = round(value * 1000)
    if abs(value * 1000 - result) > 1e-3:
        faults.add("times", f"{key} {value!r} of {event['name']!r} has a fraction of a nanosecond")
    if result < 0:
        faults.add("times", f"{key} {value!r} of {event['name']!r} is negative")
    return result


def check_slices(track, slices, faults):
    """`slices`: (begin, end, name) in the order of the file."""
    stack = []
    last_begin = 0
    for begin, end, name in slices:
        if begin < last_begin:
            faults.add("order", f"{track}: {name!r} at {begin} ns stands behind one that begins at {last_begin} ns")
        last_begin = begin
        while stack and stack[-1][1] <= begin:
            stack.pop()
        if stack and end > stack[-1][1]:
            faults.add("order", f"{track}: {name!r} from {begin} to {end} ns overlaps {stack[-1][2]!r} "
                                f"from {stack[-1][0]} to {stack[-1][1]} ns")
        else:
            stack.append((begin, end, name))


def is_in_slice(slices, begins, time):
    """Whether one of the slices, which ascend, holds the time. Nested ones: the outermost begins at or before all of its own."""
    place = bisect.bisect_right(begins, time)
    for begin, end, _ in reversed(slices[max(0, place - 64):place]):
        if begin <= time and (time < end or begin == end == time):
            return True
    return False


def check_flows(flows, slices, faults):
    begins = {track: [entry[0] for entry in entries] for track, entries in slices.items()}
    for key, ends in flows.items():
        starts, finishes = ends["s"], ends["f"]
        if len(starts) != 1 or len(finishes) != 1:
            faults.add("flows", f"{key} begins {len(starts)} times and ends {len(finishes)} times")
            continue
        if finishes[0][1] < starts[0][1]:
            faults.add("flows", f"{key} ends at {finishes[0][1]} ns, before it begins at {starts[0][1]} ns")
        for track, time in (starts[0], finishes[0]):
            if not is_in_slice(slices.get(track, []), begins.get(track, []), time):
                faults.add("flows", f"{key} is in no slice of {track} at {time} ns")


def check_counters(counters, faults):
    for key, points in counters.items():
        last = 0
        for time, args in points:
            if time < last:
                faults.add("counters", f"{key}: {time} ns stands behind {last} ns")
            last = time
            if not args or not all(is_number(value) for value in args.values()):
                faults.add("counters", f"{key} at {time} ns: {args!r} are no numbers")


def check_names(used, names, faults):
    for track in sorted(used):
        for what, key in (("process_name", track[0]), ("thread_name", track)):
            if what == "thread_name" and track[1] == 0:
                continue  # of a counter, which belongs to the process
            given = names[what].get(key, [])
            if len(given) != 1 or not isinstance(given[0], str) or not given[0]:
                faults.add("tracks", f"{key} has the {what}s {given!r}")


def check(trace):
    faults = Faults()
    events = trace.get("traceEvents") if isinstance(trace, dict) else None
    if not isinstance(events, list):
        faults.add("JSON", "there is no list traceEvents")
        return faults, {}
    slices, counters = collections.defaultdict(list), collections.defaultdict(list)
    flows = collections.defaultdict(lambda: {"s": [], "f": []})
    names = {"process_name": collections.defaultdict(list), "thread_name": collections.defaultdict(list)}
    used = set()
    kinds = collections.Counter()
    for number, event in enumerate(events):
        kind = event.get("ph") if isinstance(event, dict) else None
        lacking = KEYS.get(kind, set()) - set(event if isinstance(event, dict) else ())
        if kind not in KEYS or lacking or not isinstance(event.get("pid"), int) or not isinstance(event.get("tid"), int):
            faults.add("JSON", f"event {number} of kind {kind!r} lacks {sorted(lacking)}: {str(event)[:200]}")
            continue
        kinds[kind] += 1
        track = (event["pid"], event["tid"])
        if kind == "M":
            if event["name"] in names:
                key = track[0] if event["name"] == "process_name" else track
                names[event["name"]][key].append(event["args"].get("name"))
            continue
        used.add(track)
        time = nanoseconds(event, "ts", faults)
        if time is None:
            continue
        if kind == "X":
            duration = nanoseconds(event, "dur", faults)
            slices[track].append((time, time + (duration or 0), event["name"]))
        elif kind == "C":
            counters[(event["pid"], event["name"])].append((time, event["args"]))
        else:
            flows[(event["cat"], event["id"])][kind].append((track, time))
    for track, entries in slices.items():
        check_slices(track, entries, faults)
    check_flows(flows, slices, faults)
    check_counters(counters, faults)
    check_names(used, names, faults)
    return faults, kinds


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    result = 0
    for path in sys.argv[1:]:
        try:
            faults, kinds = check(load(path))
        except (OSError, ValueError, EOFError) as error:
            print(f"{path}: {error}")
            result = 1
            continue
        for line in faults.lines():
            print(f"{path}: {line}")
            result = 1
        if not faults.by_kind:
            print(f"{path}: holds: {kinds['X']} slices, {kinds['s']} flows, {kinds['C']} points of counters")
    return result


if __name__ == "__main__":
    sys.exit(main())
