# SPDX-License-Identifier: MIT
"""A case: the same load on both paths, by turns; figures, ratios, and which way the bytes went."""

import dataclasses
import statistics
import time
from collections.abc import Callable

from apps.session import PATHS, Failure, progress

SETTLE_SECONDS = 3


@dataclasses.dataclass
class Case:
    """One row of the table."""
    name: str
    title: str
    settings: str  # what was chosen, alike for both paths, and why
    metric: str  # the figure that is compared first
    run: Callable  # (path, seconds) -> figures; 'payload_bytes': what the client has received
    aim: float | None = None  # times kernel TCP's, at least
    aim_p99: float | None = None
    lasting: bool = True  # connections last long enough to leave kernel TCP


@dataclasses.dataclass
class Length:
    """How long to measure."""
    rounds: int
    seconds: float
    warmup_seconds: float


def compare(session, case, length):
    """Measures a case; returns its entry of the report."""
    before = session.connections()["totals"]
    runs = {path: [] for path in PATHS}
    payload = 0
    for path in PATHS:
        progress(f"{case.name}: warm-up, {path}")
        first = case.run(path, length.warmup_seconds)
    payload += first.get("payload_bytes", 0)
    for turn in range(length.rounds):
        for path in PATHS:
            progress(f"{case.name}: pair {turn + 1} of {length.rounds}, {path}")
            runs[path].append(case.run(path, length.seconds))
    progress("")
    payload += sum(run.get("payload_bytes", 0) for run in runs["user"])
    entry = {"name": case.name, "title": case.title, "settings": case.settings,
             "metric": case.metric, "aim": case.aim, "aim_p99": case.aim_p99}
    for path in PATHS:
        keys = [key for key in runs[path][0] if key != "payload_bytes"]
        entry[path] = {key: round(statistics.median(r[key] for r in runs[path]), 1)
                       for key in keys}
        entry[path]["runs"] = [round(r[case.metric], 1) for r in runs[path]]
    pairs = list(zip(runs["tcp"], runs["user"]))
    entry["speedup"] = spread([user[case.metric] / tcp[case.metric] for tcp, user in pairs])
    for key in ("p50_us", "p99_us"):
        if key in pairs[0][0]:  # a latency: better is lower
            entry[f"speedup_{key[:3]}"] = spread([tcp[key] / user[key] for tcp, user in pairs])
    entry["proof"] = prove(case, before, settled(session), payload)
    return entry


def spread(ratios):
    return {"median": round(statistics.median(ratios), 3), "min": round(min(ratios), 3),
            "max": round(max(ratios), 3)}


def settled(session):
    """The counters, once both sides of the clients that have ended are in them."""
    until = time.monotonic() + SETTLE_SECONDS
    seen = session.connections()["totals"]
    while time.monotonic() < until:
        time.sleep(0.1)
        last, seen = seen, session.connections()["totals"]
        if last == seen:
            break
    return seen


def prove(case, before, after, payload):
    """
    That it was Tutti that carried the load. The counters are of sockets, hence of both ends of a
    connection. Those that were closed before both had cause to leave kernel TCP ("short") count
    for nothing; of a case where all are, only the bytes tell that Tutti was below.
    """
    def grown(key):
        return after[key] - before[key]
    reasons = {name: n for name in sorted(after["fallback_reasons"])
               if (n := after["fallback_reasons"][name] - before["fallback_reasons"].get(name, 0))}
    ring, shadow = grown("ring_tx_bytes"), grown("shadow_tx_bytes")
    asked = grown("connections") - reasons.get("short", 0)
    ring_share = ring / (ring + shadow) if ring + shadow else 0
    ok = ring + shadow >= payload and ring + shadow > 0
    if case.lasting:
        ok = ok and asked > 0 and grown("accelerated") >= 0.9 * asked and ring_share >= 0.9
    return {"sockets": grown("connections"), "accelerated": grown("accelerated"),
            "reasons": reasons, "ring_bytes": ring, "shadow_bytes": shadow,
            "ring_share": round(ring_share, 5), "payload_bytes": payload, "ok": ok}


def must_be(condition, what):
    if not condition:
        raise Failure(what)


# ---- the table ----

UNITS = {"requests_per_s": "requests/s", "connections_per_s": "connections/s",
         "transactions_per_s": "transactions/s", "bytes_per_s": "MB/s"}


def rate_text(entry, path):
    value = entry[path][entry["metric"]]
    return f"{value / 1e6 if entry['metric'] == 'bytes_per_s' else value:,.0f}"


def times(ratio):
    return f"{ratio['median']:.2f} ({ratio['min']:.2f} - {ratio['max']:.2f})"


def proof_text(proof):
    reasons = ", ".join(f"{n} {name}" for name, n in proof["reasons"].items())
    return (f"{proof['accelerated']:,} of {proof['sockets']:,} sockets accelerated"
            f"{f' ({reasons})' if reasons else ''}; {100 * proof['ring_share']:.1f} % of "
            f"{proof['ring_bytes'] + proof['shadow_bytes']:,} bytes by rings")


def print_entry(entry):
    print(f"{entry['title']}, {UNITS[entry['metric']]}")
    for path, name in zip(PATHS, ("kernel TCP", "Tutti")):
        latency = "".join(f"   {key[:3]} {entry[path][key]:9,.0f} us"
                          for key in ("p50_us", "p99_us") if key in entry[path])
        print(f"  {name:12}{rate_text(entry, path):>12}{latency}")
    aim = f", aim {entry['aim']:g}" if entry["aim"] else ""
    p99 = f"; p99 {times(entry['speedup_p99'])}" if "speedup_p99" in entry else ""
    aim_p99 = f", aim {entry['aim_p99']:g}" if entry["aim_p99"] else ""
    print(f"  times faster: {times(entry['speedup'])}{aim}{p99}{aim_p99}")
    print(f"  {proof_text(entry['proof'])}")
    print(flush=True)
