"""What both uses of the page have in common: helpers of their tests, and checks of the views against a report."""

import time

from decimal import ROUND_HALF_UP, Decimal

from chromium import Page


def eventually(check, *arguments, timeout_s: float = 60.0, **options) -> None:
    """Repeats a check until it holds. Raises what it raised last if that takes longer than the time."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            return check(*arguments, **options)
        except AssertionError:
            if time.monotonic() > end:
                raise
        time.sleep(0.2)


def expect(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def expect_equal(found, expected, name: str) -> None:
    expect(found == expected, f"{name}: found {found!r}, expected {expected!r}")


def digits(number: float) -> str:
    """A number as digits() of page.js writes it: rounds what is printed of it, halves up."""
    decimals = 0 if number >= 100 else 1 if number >= 10 else 2
    text = f"{Decimal(repr(number)).quantize(Decimal(10) ** -decimals, ROUND_HALF_UP):,}"
    return text.rstrip("0").rstrip(".") if decimals else text


def percent(share: float) -> str:
    """As percent() of page.js: rounds the exact value, halves up."""
    return str(Decimal(100 * share).quantize(Decimal("0.1"), ROUND_HALF_UP))


def figure(page: Page, name: str) -> str:
    return page.evaluate(f"document.querySelector('[data-figure={name}]').textContent")


def rows(page: Page, table: str) -> list[list[str]]:
    """The texts of a table's cells but for its bars."""
    return page.evaluate(f"[...document.getElementById('{table}').tBodies[0].rows].map(row => "
                         "[...row.cells].filter(cell => cell.className !== 'bar').map(cell => cell.textContent))")


def check_no_errors(page: Page, allowed: str | None = None) -> None:
    errors = [error for error in page.errors if allowed is None or allowed not in error]
    expect_equal(errors, [], "errors of the page")


def check_layout(page: Page) -> None:
    expect(page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than its window")
    clipped = page.evaluate("[...document.querySelectorAll('th, td, dd, dt')].filter(cell => !cell.closest('#tree, #requests')).filter(cell => cell.scrollWidth > cell.clientWidth + 1)"
                            ".map(cell => cell.textContent)")
    expect_equal(clipped, [], "cells whose text does not fit")
    shift = page.evaluate("new Promise(resolve => new PerformanceObserver(list => resolve(list.getEntries().reduce("
                          "(sum, entry) => sum + entry.value, 0))).observe({type: 'layout-shift', buffered: true}) ||"
                          " setTimeout(() => resolve(0), 500))")
    expect(shift < 0.1, f"cumulative layout shift {shift:.3f}, expected below 0.1")


def check_names(page: Page, images: int) -> None:
    """Everything that is no text has a name for those who do not see it."""
    nodes = page.command("Accessibility.getFullAXTree")["nodes"]
    named = {"image", "button", "table", "textbox", "link", "status"}
    for node in nodes:
        role = node.get("role", {}).get("value")
        if role in named - {"table", "status"} and not node.get("ignored"):
            expect(bool(node.get("name", {}).get("value")), f"a {role} without a name")
    expect(sum(node.get("role", {}).get("value") == "image" for node in nodes) >= images, "the charts are no images")


def known(number: float | None, text) -> str:
    return "–" if number is None else text(number)


def visible_nodes(nodes: list[dict]) -> list[dict]:
    """Those of a view that are shown at first: ops are closed."""
    return [each for node in nodes for each in [node, *(visible_nodes(node["children"]) if node["level"] != "op" else [])]]


def check_tree(page: Page, view: dict) -> None:
    expect_equal(rows(page, "tree"), [[
        node["name"], known(node["time_share"], lambda share: f"{percent(share)} %"), known(node["us"], lambda us: digits(us / 1e3)),
        known(node["calls"], lambda calls: f"{calls:,}"), known(node["call_us"], digits), known(node["gbps"], digits),
        known(node["roofline"], lambda share: f"{percent(share)} %")] for node in visible_nodes(view["rows"])], "top-down")


def check_folding(page: Page) -> None:
    """A phase closes and opens by keyboard, and keeps the focus."""
    before = len(rows(page, "tree"))
    page.evaluate("document.querySelector('#tree button').focus()")
    page.press("Enter")
    expect(len(rows(page, "tree")) < before, "a closed phase hides nothing")
    expect_equal(page.evaluate("document.activeElement.getAttribute('aria-expanded')"), "false", "the focused row")
    page.press("Enter")
    expect_equal(len(rows(page, "tree")), before, "rows once it is open again")


def check_flame(page: Page, view: dict) -> None:
    """Wide enough nodes are there; a click zooms, arrow keys move, Escape goes back."""
    widths = ("Object.fromEntries([...document.getElementById('flame').children].map(each => "
              "[each.dataset.key, each.getBoundingClientRect().width]))")
    first = page.evaluate(widths)
    whole = first["/"]
    total = sum(row["us"] for row in view["rows"])
    for row in view["rows"]:
        if row["us"] / total > 0.01:
            expect(abs(first[f"/{row['name']}/"] / whole - row["us"] / total) < 0.01, f"the width of {row['name']}")
    largest = max(view["rows"], key=lambda row: row["us"])
    inner = max(largest["children"], key=lambda node: node["us"])
    path = f"/{largest['name']}/{inner['name']}/"
    page.evaluate(f"[...document.getElementById('flame').children].find(each => each.dataset.key === '{path}').click()")
    expect(abs(page.evaluate(widths)[path] - whole) < 1, f"{path} does not fill the width once it is zoomed")
    page.evaluate(f"[...document.getElementById('flame').children].find(each => each.dataset.key === '{path}').focus()")
    page.press("ArrowUp")
    expect_equal(page.evaluate("document.activeElement.dataset.key"), f"/{largest['name']}/", "the piece above")
    page.press("Escape")
    expect_equal(page.evaluate(widths).keys(), first.keys(), "pieces once the zoom is undone")


def check_findings(page: Page, diagnosis: dict) -> None:
    of = {"wall time": "of the wall time", "throughput": "of the time per token", "latency": "of the latency"}
    def gain(each):
        low, high = percent(each["gain_from"]), percent(each["gain_to"])
        return high if low == high else f"{low} to {high}"
    expected = [f"{number}. {each['finding']} gains {gain(each)} % {of[each['gain_of']]}"
                f"{', estimated' if each['estimated'] else ''}" for number, each in enumerate(diagnosis["findings"], 1)]
    expect_equal(page.evaluate("[...document.querySelectorAll('#findings h3')].map(each => each.textContent)"), expected, "findings")
    measured = [f"Measured: {trial['text']}." for each in diagnosis["findings"] for trial in each["measured"]]
    expect_equal(page.evaluate("[...document.querySelectorAll('#findings p')].map(each => each.textContent)"
                               ".filter(text => text.startsWith('Measured'))"), measured, "what was tried")
    verdict = page.evaluate("document.getElementById('verdict').textContent")
    expect_equal(verdict, diagnosis["verdict"], "the verdict")
    expect(verdict.endswith(diagnosis["next_limit"]) and verdict.startswith("Slowed by") != diagnosis["healthy"], verdict)


def check_roofline(page: Page, report: dict) -> None:
    ops = [op for op in report["ops"] if op["flops"] > 0 and op["bytes"] > 0 and op["us"] > 0]
    expect_equal(rows(page, "roofline-table"), [[
        op["op"], digits(op["flops"] / op["bytes"]), "–", digits(op["flops"] / op["us"] * 1e-3),
        "–" if op["bound"] == "unknown" else f"{percent(op['roofline'])} %", op["bound"]] for op in ops], "roofline")
    about = page.evaluate("document.querySelector('[data-text=roofline_about]').textContent")
    expect(about.startswith("estimated"), about)


def check_ranks(page: Page, ranks: dict | None) -> None:
    """Of several ranks their rows, of one nothing."""
    expect_equal(page.evaluate("document.getElementById('ranks-section').checkVisibility()"), ranks is not None, "ranks are shown")
    if ranks is None:
        return

    def quantiles(values: dict | None) -> list[str]:
        return [known((values or {}).get(name), digits) for name in ("p50", "p99")]

    expect_equal(rows(page, "ranks"), [[
        str(rank["rank"]), digits(rank["computed_us"]), digits(rank["waited_us"]), digits(rank["exchange_us"] - rank["waited_us"]),
        *quantiles(rank["host_us"]), *quantiles(rank["idle_us"]), digits(rank["begin_after_us"]), digits(rank["end_after_us"])]
        for rank in ranks["ranks"]], "ranks")
    about = page.evaluate("document.querySelector('[data-text=ranks_about]').textContent")
    expect(f"computed {digits(ranks['skew_us'])} µs longer" in about, about)
    widths = page.evaluate("[...document.querySelectorAll('#ranks .parts')].map(bar => [...bar.children].map(part => [part.className, parseFloat(part.style.width)]))")
    most = max(rank["computed_us"] + rank["exchange_us"] for rank in ranks["ranks"])
    for rank, bar in zip(ranks["ranks"], widths):
        expected = {"decode": rank["computed_us"], "idle": rank["waited_us"], "host": rank["exchange_us"] - rank["waited_us"]}
        for kind, width in bar:
            expect(abs(width - 100 * expected[kind] / most) < 0.1, f"the bar of rank {rank['rank']}: {bar}")


def check_rank_counters(page: Page, ranks: list[dict]) -> None:
    """Of ranks whose hardware counters were read their rows, and why there are none of the others."""
    shown = page.evaluate("document.getElementById('rank-measured').checkVisibility()")
    expect_equal(shown, len(ranks) > 0, "counters of ranks are shown")

    def share(part: float | None) -> str:
        return known(part, lambda value: f"{percent(value)} %")

    def row(rank: dict) -> list[str]:
        if rank["steps"] == 0:
            return [str(rank["rank"]), "–", "–", "–", "–", "–", "–", share(rank["sm_active"]), share(rank["tensor_active"])]
        read, received, sent, written = (known(rank[name], lambda sum: digits(1e-6 * sum / rank["steps"])) for name in (
            "read_bytes", "nvlink_received_bytes", "nvlink_sent_bytes", "written_bytes"))
        return [str(rank["rank"]), read, share(rank["read_bytes"] / rank["counted_read_bytes"]),
                digits(rank["read_bytes"] / rank["steps_us"] * 1e-3), written, received, sent,
                share(rank["sm_active"]), share(rank["tensor_active"])]

    if not shown:
        return
    expect_equal(rows(page, "rank-counters"), [row(rank) for rank in ranks], "counters of ranks")
    errors = page.evaluate("document.querySelector('[data-text=rank_counters_errors]').textContent")
    expect_equal(errors, "; ".join(rank["error"] for rank in ranks if rank["error"]), "ranks without counters")


def check_counters(page: Page, counters: dict | None) -> None:
    """How many samples each op had; of one without any that it was not sampled."""
    if counters is None or not counters["work"]:
        return
    expected = [[op["op"], "not sampled" if op["samples"] == 0 and op["dram_read_bytes"] is None else known(op["samples"], lambda n: f"{n:,}"),
                 known(op["read_gbps"], digits)] for op in counters["work"][0]["ops"]]
    expect_equal([row[:3] for row in rows(page, "counters")], expected, "samples of ops")
    unknown = [row for row, op in zip(rows(page, "counters"), counters["work"][0]["ops"]) if op["dram_read_bytes"] is None]
    expect_equal([row[3] for row in unknown], ["–"] * len(unknown), "what was not sampled is no zero")


def check_views(page: Page, report: dict, view: dict) -> None:
    check_counters(page, report["counters"])
    check_findings(page, report["findings"])
    check_tree(page, view)
    check_roofline(page, report)
    check_ranks(page, report["ranks"])
    check_rank_counters(page, report["rank_counters"])


def check_step_by_keyboard(page: Page) -> int:
    """Arrow keys and Enter open a step; Escape closes it. The number of the step."""
    page.evaluate("document.getElementById('strip').focus()")
    page.press("End")
    page.press("ArrowLeft")
    number = int(page.evaluate("document.getElementById('strip').getAttribute('aria-valuenow')"))
    page.press("Enter")
    page.wait_for("document.activeElement.id === 'step'")
    expect_equal(page.evaluate("document.querySelector('[data-text=step_title]').textContent"), f"Step {number:,}", "the step that is open")
    expect(len(rows(page, "step-ops")) > 3, "a step without ops")
    return number


def check_request(page: Page, request: dict, told: dict) -> None:
    """A request of the list opens by keyboard and shows what is told of it; Escape closes it and goes back to its button."""
    key = f"{request['id']} {request['arrival_ns']}"
    find = f"[...document.querySelectorAll('#requests [data-key]')].find(each => each.dataset.key === {key!r})"
    page.evaluate(f"{find}.focus()")
    page.press("Enter")
    page.wait_for("document.activeElement.id === 'request'")
    expect_equal(page.evaluate("document.querySelector('[data-text=request_title]').textContent"), request["id"], "the request that is open")
    expect_equal(rows(page, "waterfall"), [[
        part["label"].replace("- ", "\u00a0\u00a0"), digits(part["us"] / 1e3), percent(part["share"]), f"{part['steps']:,}" if part["steps"] else "–"]
        for part in told["waterfall"]], "the waterfall")
    bars = page.evaluate("[...document.querySelectorAll('#waterfall .parts')].map(bar => [...bar.children].map(part => parseFloat(part.style.width)))")
    for part, widths in zip(told["waterfall"], bars, strict=True):
        in_line = "begin_us" in part and part["us"] > 0
        expect(len(widths) == (0 if not in_line else 2 if part["begin_us"] > 0 else 1), f"the bar of {part}: {widths}")
        expect(not in_line or abs(widths[-1] - 100 * part["share"]) < 0.1, f"the bar of {part}: {widths}")
        expect(sum(widths) < 100.1, f"the bar of {part} ends behind the request: {widths}")
    gaps = page.evaluate("[...document.querySelectorAll('#gaps li')].map(each => each.textContent)")
    for gap, text in zip(told["gaps"], gaps, strict=True):
        expect(text.startswith(f"step {gap['step']:,}: ") and text.endswith(f"{gap['why']}."), f"{gap}: found {text}")
    steps = request["prefill_steps"] + request["decode_steps"]
    note = page.evaluate("document.querySelector('[data-text=request_note]').textContent")
    expect((note == "") == (told["known_steps"] >= steps), note)
    page.press("Escape")
    expect(page.evaluate("document.getElementById('request').hidden"), "Escape does not close the request")
    expect_equal(page.evaluate("document.activeElement.dataset.key"), key, "what has the focus once the request is closed")


def expect_within(page: Page, width: int) -> None:
    wide = page.evaluate("[...document.querySelectorAll('body *')].filter(each => !each.closest('.scroll, #flame, .unseen') && "
                         "each.getBoundingClientRect().right > innerWidth + 1).map(each => each.id || each.tagName)")
    expect_equal(wide, [], f"elements that reach beyond a window of {width} pixels")
    expect(page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"the page is wider than {width} pixels")


def check_width(page: Page, width: int) -> None:
    """No scrolling of the page to the side, once what is drawn to size has been drawn anew."""
    page.resize(width)
    page.wait_for(f"innerWidth === {width}")
    eventually(expect_within, page, width)
