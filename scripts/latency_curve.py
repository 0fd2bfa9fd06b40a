#!/usr/bin/env python3
"""Draws docs/latency.svg: the latency of durable commits by number of threads, beside a raw durable write.

Runs `quench bench put` and `quench bench device` for each number of threads, on the disk under the current directory.
Needs a release build (`cargo build --release`) and a quiet machine; takes about two minutes.
"""

import argparse
import json
import math
import subprocess

THREADS = [1, 2, 4, 8, 16, 32, 64]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 380, 70, 190, 40, 50


def bench(program, *arguments):
    """Returns the JSON report of one run of `quench bench`."""
    output = subprocess.run([program, "bench", *arguments, "--json"], check=True, capture_output=True, text=True)
    return json.loads(output.stdout.strip().splitlines()[-1])


def measure(program, seconds):
    """Returns the series to draw: a name, a colour, and microseconds for each number of threads."""
    raw, median, p99, rate = [], [], [], []
    for threads in THREADS:
        device = bench(program, "device", "--threads", str(threads))
        writes = [w for w in device["writes"] if w["bytes"] == 4096 and w["writers"] == threads]
        raw.append(writes[0]["p50_us"])
        put = bench(program, "put", "--threads", str(threads), "--seconds", str(seconds), "--commit", "blocking")
        median.append(put["commit_latency_us"]["p50"])
        p99.append(put["commit_latency_us"]["p99"])
        rate.append(put["throughput_tps"])
        print(f"{threads} threads: raw {raw[-1]:.0f} us, commit {median[-1]:.0f} us, p99 {p99[-1]:.0f} us, "
              f"{rate[-1]:.0f} commits/s", flush=True)
    series = [("raw durable write, p50", "#888888", raw), ("commit, p50", "#1f77b4", median),
              ("commit, p99", "#d62728", p99)]
    return series, rate


def draw(series, rate):
    """Returns the picture as SVG, with logarithmic axes."""
    values = [value for _, _, line in series for value in line]
    low = 10 ** math.floor(math.log10(min(values)))
    high = 10 ** math.ceil(math.log10(max(values)))

    def x(i):
        return LEFT + (WIDTH - LEFT - RIGHT) * i / (len(THREADS) - 1)

    def y(value):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log(value / low) / math.log(high / low)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="20" font-size="14">Latency of a durable commit, microseconds</text>']
    decade = low
    while decade <= high:
        for step in range(1, 10):
            value = decade * step
            if value > high:
                break
            shade = "#cccccc" if step == 1 else "#eeeeee"
            out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
                       f'stroke="{shade}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(decade) + 4:.1f}" text-anchor="end">{decade:,.0f}</text>')
        decade *= 10
    for i, threads in enumerate(THREADS):
        out.append(f'<text x="{x(i):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{threads}</text>')
        out.append(f'<text x="{x(i):.1f}" y="{HEIGHT - BOTTOM + 34}" text-anchor="middle" fill="#777777">'
                   f'{rate[i] / 1000:,.0f} K/s</text>')
    out.append(f'<text x="{WIDTH - RIGHT + 12}" y="{HEIGHT - BOTTOM + 18}">threads</text>')
    out.append(f'<text x="{WIDTH - RIGHT + 12}" y="{HEIGHT - BOTTOM + 34}" fill="#777777">commits</text>')
    ends = sorted(((y(line[-1]), name, colour) for name, colour, line in series))
    placed = -100.0
    for at, name, colour in ends:
        placed = max(at, placed + 15)
        out.append(f'<text x="{WIDTH - RIGHT + 12}" y="{placed + 4:.1f}" fill="{colour}">{name}</text>')
    for _, colour, line in series:
        points = " ".join(f"{x(i):.1f},{y(value):.1f}" for i, value in enumerate(line))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.extend(f'<circle cx="{x(i):.1f}" cy="{y(v):.1f}" r="3" fill="{colour}"/>' for i, v in enumerate(line))
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="target/release/quench")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--output", default="docs/latency.svg")
    arguments = parser.parse_args()
    series, rate = measure(arguments.program, arguments.seconds)
    with open(arguments.output, "w", encoding="utf-8") as file:
        file.write(draw(series, rate))


if __name__ == "__main__":
    main()
