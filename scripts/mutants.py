#!/usr/bin/env python3
"""Builds a random sample of the mutants of cargo-mutants into one program, and tests with one mutant switched on at a time.

A build takes minutes, so one build serves all mutants. `cargo mutants --list` names the mutants (.cargo/mutants.toml selects files).
Works in a copy of the tree, and changes it.

    git clone . /tmp/mutants && scripts/mutants.py /tmp/mutants --seed 1 --count 60 --minutes 60

Left out, and counted: deleted match arms and fields, mutants in constant expressions or of an `impl Trait`, mutants that do not compile.
Needs cargo-mutants, and `pip install tree-sitter tree-sitter-rust` to find the operands of an operator.
"""
import argparse, collections, json, os, random, re, subprocess, sys, time

import tree_sitter, tree_sitter_rust

SWITCH = """//! Which mutant is switched on; written by scripts/mutants.py.
#![allow(missing_docs)]
pub fn on(number: u32) -> bool {
    static ON: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    number == *ON.get_or_init(|| std::env::var("QUENCH_MUTANT").ok().and_then(|n| n.parse().ok()).unwrap_or(0))
}
"""
# Quick tests first: most mutants fail one of them. Name, program, arguments, number of crashes.
TESTS = [
    ("log and recovery", "quenchdb", ["log::", "recovery::"], 0),
    ("300 crashes", "engine", ["crash::"], 300),
    ("2,000 crashes", "engine", ["crash::"], 2000),
    ("dependencies", "engine", ["dependencies::"], 0),
    ("commit", "quenchdb", ["commit::"], 0),
    ("full disk", "engine", ["full_disk::"], 0),
]
PROGRAMS = ["--lib", "--test", "engine"]
# A test fails if it takes this many times as long as without a mutant, plus this many seconds.
PATIENCE = (5, 10)


def position(lines, place):
    before = sum(len(line.encode()) for line in lines[: place["line"] - 1])
    return before + len(lines[place["line"] - 1][: place["column"] - 1].encode())


def edit(mutant, number, text, tree):
    """(from, to, replacement) in bytes, or None."""
    lines = text.decode().splitlines(keepends=True)
    start, end = position(lines, mutant["span"]["start"]), position(lines, mutant["span"]["end"])
    on, new = f"crate::base::mutant::on({number})", mutant["replacement"]
    if mutant["genre"] == "FnValue":
        if "impl " in ((mutant["function"] or {}).get("return_type") or ""):
            return None
        return start, start, f"if {on} {{ return {new}; }} "
    if mutant["genre"] == "MatchArmGuard":
        guard = text[start:end].decode()
        return start, end, f"({on} || {guard})" if new == "true" else f"(!{on} && ({guard}))"
    node = tree.root_node.descendant_for_byte_range(start, end).parent
    old = text[node.start_byte : node.end_byte].decode() if node else ""
    if mutant["genre"] == "UnaryOperator" and node.type == "unary_expression":
        return node.start_byte, node.end_byte, f"(if {on} {{ {old[1:]} }} else {{ {old} }})"
    if mutant["genre"] != "BinaryOperator" or node.type not in ("binary_expression", "compound_assignment_expr"):
        return None
    at = start - node.start_byte
    mutated = old.encode()[:at].decode() + new + old.encode()[end - node.start_byte :].decode()
    both = f"if {on} {{ {mutated} }} else {{ {old} }}"
    return node.start_byte, node.end_byte, f"({both})" if node.type == "binary_expression" else both


def apply(tree_root, sample, originals):
    """Writes the files with the mutants of `sample`; returns those that found a place, and the lines each begins at."""
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))
    placed = []
    for file in sorted({m["file"] for m in sample.values()} | set(originals)):
        path = os.path.join(tree_root, file)
        text = originals.setdefault(file, open(path, "rb").read())
        parsed, edits = parser.parse(text), []
        for number, mutant in sample.items():
            if mutant["file"] != file:
                continue
            change = edit(mutant, number, text, parsed)
            clear = change and all(change[1] < other[0] or change[0] > other[1] for other in edits)
            if clear:
                edits.append(change)
                placed.append(number)
        for start, end, new in sorted(edits, reverse=True):
            # On as many lines as before, so that an error's line is that of the mutant.
            new = new.replace("\n", " ") if "//" not in new else new
            text = text[:start] + new.encode() + text[end:]
        open(path, "wb").write(text)
    return placed


def build(tree_root, targets):
    command = ["cargo", "test", "-p", "quenchdb", "--no-run", "--message-format=json"] + targets
    done = subprocess.run(command, cwd=tree_root, capture_output=True, text=True)
    programs, culprits = {}, set()
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable"):
            programs[message["target"]["name"]] = message["executable"]
        elif message["reason"] == "compiler-message" and message["message"]["level"] == "error":
            errors = json.dumps(message)
            culprits |= {int(n) for n in re.findall(r"mutant::on\((\d+)\)", errors)}
    return done.returncode == 0, programs, culprits, done.stderr


def passes(program, arguments, crashes, number, patience):
    environment = dict(os.environ, QUENCH_MUTANT=str(number), QUENCH_CRASHES=str(crashes))
    try:
        done = subprocess.run([program] + arguments, env=environment, timeout=patience, capture_output=True, cwd="engine")
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("tree")
    ask.add_argument("--seed", type=int, default=1)
    ask.add_argument("--count", type=int, default=60)
    ask.add_argument("--minutes", type=float, default=60)
    asked = ask.parse_args()
    os.chdir(asked.tree)
    listed = json.loads(subprocess.check_output(["cargo", "mutants", "--list", "--json", "-p", "quenchdb"]))
    random.seed(asked.seed)
    sample = dict(enumerate(random.sample(listed, asked.count), start=1))
    open("engine/src/base/mutant.rs", "w").write(SWITCH)
    with open("engine/src/base/mod.rs", "a") as module:
        module.write("\npub(crate) mod mutant;\n")
    originals = {}
    for attempt in range(6):
        placed = apply(".", sample, originals)
        sample = {number: mutant for number, mutant in sample.items() if number in placed}
        compiles, programs, culprits, errors = build(".", PROGRAMS)
        print(f"{len(sample)} of {asked.count} switched on, of {len(listed)} listed; compiles: {compiles}", flush=True)
        if compiles:
            break
        if not culprits:
            sys.exit(errors)
        sample = {number: mutant for number, mutant in sample.items() if number not in culprits}
    tests = []
    for name, program, arguments, crashes in TESTS:
        begun = time.time()
        if not passes(programs[program], arguments, crashes, 0, 600):
            sys.exit(f"{name}: fails without a mutant")
        took = time.time() - begun
        tests.append((name, programs[program], arguments, crashes, PATIENCE[0] * took + PATIENCE[1]))
        print(f"{name}: passes without a mutant, {took:.1f} s", flush=True)
    end, outcomes = time.time() + 60 * asked.minutes, collections.Counter()
    for number, mutant in sample.items():
        if time.time() > end:
            break
        caught = (name for name, *how, patience in tests if not passes(*how, number, patience))
        catcher = next(caught, None)
        outcomes[catcher or "survived"] += 1
        print(f"{f'caught by {catcher}' if catcher else 'SURVIVED'}: {mutant['name']}", flush=True)
    print(f"{outcomes.total()} of {len(sample)}: {dict(outcomes.most_common())}")


main()
