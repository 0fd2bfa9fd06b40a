//! The report of figures in `docs/report`: a table of all claims, and one compressed page with all
//! numbers. `scripts/report` takes both from a run of `quench bench figures`.

use super::{report, root};
use crate::support::skipped::skip;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns the page, unpacked; `None` if this machine has no `gzip`.
fn page() -> Option<String> {
    let output = match Command::new("gzip").arg("-dc").arg(root().join("docs/report/report.html.gz")).output()
    {
        Ok(output) => output,
        Err(error) => {
            skip(&format!("there is no gzip: {error}"));
            return None;
        }
    };
    assert!(output.status.success(), "gzip: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("UTF-8"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns figure, text, published, ours and verdict of a claim's row.
fn claim(row: &str) -> Option<[&str; 5]> {
    let cells: Vec<&str> = row.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
    let cells: [&str; 5] = cells.try_into().ok()?;
    let is_figure = cells[0].starts_with(|c: char| c.is_ascii_uppercase()) && cells[0].contains('-');
    is_figure.then_some(cells)
}

/// Returns the claims of a table.
fn claims(text: &str) -> Vec<[&str; 5]> {
    text.lines().filter_map(claim).collect()
}

/// Returns the claims that the page does not show with the same numbers.
fn missing<'t>(page: &str, claims: &[[&'t str; 5]]) -> Vec<&'t str> {
    let escaped = |text: &str| {
        let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        escaped.replace('"', "&quot;")
    };
    let is_shown = |[figure, text, published, ours, _]: &[&str; 5]| {
        let number = |number: &str| format!("</td><td class=\"number\">{}", escaped(number));
        let numbers = format!("{}{}</td>", number(published), number(ours));
        let (_, section) = page.split_once(&format!("id=\"{figure}\"")).unwrap_or_default();
        let section = section.split("</section>").next().unwrap_or_default();
        section.split(&format!("<td>{}", escaped(text))).skip(1).any(|rest| {
            // The place in the paper, and the reason for another number.
            let reason =
                rest.strip_prefix("<br>").and_then(|rest| rest.find("</td>").map(|end| &rest[end..]));
            reason.unwrap_or(rest).starts_with(&numbers)
        })
    };
    claims.iter().filter(|claim| !is_shown(claim)).map(|claim| claim[1]).collect()
}

#[test]
fn each_claim_of_the_report_is_on_its_page() {
    let Some(page) = page() else { return };
    let summary = read(&root().join("docs/report/README.md"));
    let claims = claims(&summary);
    assert!(claims.len() > 100, "{} claims", claims.len());
    report("the compressed page shows each claim: run scripts/report again", missing(&page, &claims));
    let [figure, text, published, _, verdict] = claims[0];
    assert_eq!(missing(&page, &[[figure, text, published, "0.123 x", verdict]]), [text]);
}

#[test]
fn readme_shows_what_the_report_says() {
    let Some(page) = page() else { return };
    let (readme, docs) = (read(&root().join("README.md")), root().join("docs/report"));
    let summary = read(&docs.join("README.md"));
    let all = claims(&summary);
    let quoted = claims(&readme);
    assert!(quoted.len() >= 5, "README quotes {} claims", quoted.len());
    report(
        "README quotes the report",
        quoted.iter().filter(|claim| !all.contains(claim)).map(|claim| claim[1]),
    );
    let background = "\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>";
    let pictures = fs::read_dir(docs.join("pictures")).expect("pictures");
    let pictures: Vec<_> = pictures.map(|entry| entry.expect("readable").path()).collect();
    assert!(!pictures.is_empty());
    for path in pictures {
        let drawn = read(&path).replacen(background, "", 1);
        assert!(page.contains(drawn.trim_end()), "{}: run scripts/report again", path.display());
        let name = path.file_name().expect("a file").to_string_lossy();
        assert!(readme.contains(&*name), "README does not show {name}: remove it");
    }
}
