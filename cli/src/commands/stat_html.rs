//! `stat --html`: a page about a database, without scripts, for light and dark screens of any
//! width.

use crate::units::{count, size};
use quenchdb::{SpaceCell, TableReport, TableTypes};
use std::fmt::{self, Write as _};

/// Squares of the map.
pub const CELLS: usize = 2048;
/// Squares in a row.
const COLUMNS: usize = 64;
/// Length of the side of a square, and of its place, in pixels.
const SIDE: usize = 10;
const STEP: usize = 12;

/// A table with its number of rows.
pub struct TableFacts {
    pub name: String,
    pub rows: u64,
    pub report: TableReport,
    /// None for a table of bytes.
    pub types: Option<TableTypes>,
}

impl TableFacts {
    /// Returns what the table is.
    pub fn types_text(&self) -> String {
        self.types.as_ref().map_or_else(|| "bytes".into(), ToString::to_string)
    }
}

impl TableFacts {
    /// What the figures are.
    pub const TITLES: [&str; 6] = ["rows", "pages", "size", "depth", "fill", "large values"];

    /// Returns the figures with units, in the order of the titles.
    pub fn figures(&self) -> [String; 6] {
        let TableFacts { rows, report, .. } = self;
        [
            count(*rows),
            count(report.pages),
            size(report.bytes),
            report.depth.to_string(),
            format!("{:.0} %", report.leaf_fill * 100.0),
            count(report.large_values),
        ]
    }
}

/// A title with lines of a label and a value.
pub struct Section(pub &'static str, pub Vec<(String, String)>);

/// What a block is used for: a class of the style, its name, and how to count it.
type Use = (&'static str, &'static str, fn(&SpaceCell) -> u64);

const USES: [Use; 4] = [
    ("images", "pages", |cell| cell.images),
    ("other", "mapping and catalog", |cell| cell.other),
    ("held", "held for older checkpoints", |cell| cell.held),
    ("free", "free", |cell| cell.free),
];

const STYLE: &str = "\
:root{color-scheme:light dark;--text:#1b1f24;--soft:#59636e;--line:#d1d9e0;--back:#fff;--images:#2f6fb5;--other:#8250df;\
--held:#bf8700;--free:#e4e8ec}\
@media(prefers-color-scheme:dark){:root{--text:#e6edf3;--soft:#9198a1;--line:#3d444d;--back:#0d1117;--images:#58a6ff;\
--other:#a371f7;--held:#d29922;--free:#21262d}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--text);background:var(--back);max-width:60rem;margin:1rem auto;padding:0 1rem}\
h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin-top:2rem}\
dl{display:grid;grid-template-columns:minmax(8rem,40%) 1fr;gap:.2rem 1.5rem;margin:0}dt{color:var(--soft)}\
dd{margin:0;overflow-wrap:anywhere}svg{width:100%;height:auto}.wide{overflow-x:auto}\
table{border-collapse:collapse;width:100%}th,td{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}\
th:first-child,td:first-child{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:8rem}th{color:var(--soft);font-weight:normal}\
.images{fill:var(--images)}.other{fill:var(--other)}.held{fill:var(--held)}.free{fill:var(--free)}\
.key{display:flex;flex-wrap:wrap;gap:.3rem 1.5rem;list-style:none;padding:0}.key svg{width:.8rem;height:.8rem}";

/// Text as it is shown in HTML.
struct Escaped<'t>(&'t str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            c => f.write_char(c),
        })
    }
}

/// Returns the page. `map` is what each stretch of the file is used for, and the length of a block.
pub fn page(
    title: &str,
    sections: &[Section],
    tables: &[TableFacts],
    map: &(Vec<SpaceCell>, usize),
) -> String {
    let mut page = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n";
    let title = Escaped(title);
    let _ =
        writeln!(page, "<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>");
    add_map(&mut page, map);
    add_tables(&mut page, tables);
    for Section(title, lines) in sections.iter().filter(|section| !section.1.is_empty()) {
        let _ = writeln!(page, "<h2>{}</h2>\n<dl>", Escaped(title));
        for (label, value) in lines {
            let _ = writeln!(page, "<dt>{}</dt><dd>{}</dd>", Escaped(label), Escaped(value));
        }
        page += "</dl>\n";
    }
    page += "</body>\n</html>\n";
    page
}

fn add_map(page: &mut String, (cells, block_bytes): &(Vec<SpaceCell>, usize)) {
    let of_cell = cells.first().map_or(0, SpaceCell::blocks);
    let _ = writeln!(
        page,
        "<h2>The file of pages</h2>\n<p>Each square is {} of the file, from left to right and from top to bottom. Its color is \
         what most of it is used for.</p>",
        size(of_cell * *block_bytes as u64)
    );
    let rows = cells.len().div_ceil(COLUMNS);
    let (width, height) = (COLUMNS * STEP, rows * STEP);
    let _ = writeln!(
        page,
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"map of the file of pages\">"
    );
    for (number, cell) in cells.iter().enumerate() {
        let (x, y) = (number % COLUMNS * STEP, number / COLUMNS * STEP);
        let class = USES.iter().max_by_key(|(_, _, count)| count(cell)).map_or("free", |(class, ..)| class);
        let _ =
            write!(page, "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{SIDE}\" height=\"{SIDE}\"/>");
    }
    page.push_str("\n</svg>\n<ul class=\"key\">\n");
    for (class, name, blocks) in USES {
        let bytes = cells.iter().map(blocks).sum::<u64>() * *block_bytes as u64;
        let square =
            format!("<svg viewBox=\"0 0 1 1\"><rect class=\"{class}\" width=\"1\" height=\"1\"/></svg>");
        let _ = writeln!(page, "<li>{square} {name}: {}</li>", size(bytes));
    }
    page.push_str("</ul>\n");
}

fn add_tables(page: &mut String, tables: &[TableFacts]) {
    page.push_str("<h2>Tables</h2>\n<div class=\"wide\">\n<table>\n<tr>");
    for title in ["name"].into_iter().chain(TableFacts::TITLES).chain(["types"]) {
        let _ = write!(page, "<th>{title}</th>");
    }
    page.push_str("</tr>\n");
    for table in tables {
        let _ = write!(page, "<tr><td>{}</td>", Escaped(&table.name));
        for figure in table.figures() {
            let _ = write!(page, "<td>{figure}</td>");
        }
        let _ = write!(page, "<td>{}</td>", Escaped(&table.types_text()));
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n</div>\n");
}
