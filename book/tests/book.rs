//! Builds the guide as a book, and checks every link and anchor of its pages.

use mdbook_driver::MDBook;
use mdbook_driver::config::{Config, HtmlConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// What a page refers to, and what others can refer to.
struct Page {
    links: Vec<String>,
    ids: BTreeSet<String>,
}

/// Returns the values of an attribute. mdBook writes them in double quotes.
fn attributes(html: &str, name: &str) -> Vec<String> {
    let start = format!(" {name}=\"");
    let values = html.split(&start).skip(1).filter_map(|rest| rest.split_once('"'));
    values.map(|(value, _)| value.replace("&amp;", "&")).collect()
}

/// Collects all files below `folder`.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Returns all files of a built book by their paths. Other files than pages have no links.
fn pages(book: &Path) -> BTreeMap<PathBuf, Page> {
    let mut found = Vec::new();
    files(book, &mut found);
    let page = |path: PathBuf| {
        let is_page = path.extension().is_some_and(|extension| extension == "html");
        let html = if is_page { fs::read_to_string(&path).expect("UTF-8") } else { String::new() };
        let links = ["href", "src"].iter().flat_map(|name| attributes(&html, name)).collect();
        let ids = attributes(&html, "id").into_iter().collect();
        (path.strip_prefix(book).expect("in the book").to_path_buf(), Page { links, ids })
    };
    found.into_iter().map(page).collect()
}

/// Returns the file of the book that a link on `page` leads to; `None` if the link leaves the book.
fn resolve(page: &Path, link: &str) -> Option<PathBuf> {
    if link.is_empty() {
        return Some(page.to_path_buf());
    }
    let mut path = page.parent()?.to_path_buf();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => path.pop().then_some(())?,
            Component::Normal(part) => path.push(part),
            Component::CurDir => (),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// Returns the links within the book that lead nowhere. Links to other sites are not checked.
fn dead_links(pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
    let mut dead = Vec::new();
    for (path, page) in pages {
        for link in page.links.iter().filter(|link| !link.contains(':')) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = resolve(path, file).and_then(|file| pages.get(&file));
            if target.is_none_or(|target| !anchor.is_empty() && !target.ids.contains(anchor)) {
                dead.push(format!("{}: {link}", path.display()));
            }
        }
    }
    dead
}

#[test]
fn links_of_the_built_book_lead_to_pages_and_anchors() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("in the workspace").join("docs");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut config = Config::from_disk(docs.join("book.toml")).expect("book.toml is valid");
    // mdBook would continue with its defaults.
    config.get::<HtmlConfig>("output.html").expect("[output.html] has only keys that mdBook knows");
    config.build.build_dir = folder.path().join("book");
    // The command of book.toml would wait for the cargo that runs this test.
    config.set("preprocessor.files.command", env!("CARGO_BIN_EXE_quench-book")).expect("a table");
    MDBook::load_with_config(docs, config).and_then(|book| book.build()).expect("the book builds");

    let pages = pages(&folder.path().join("book"));
    let dead = dead_links(&pages);
    assert!(dead.is_empty(), "links that lead nowhere in the book:\n{}", dead.join("\n"));
    let leads_to = |page: &str, link: &str| pages[Path::new(page)].links.iter().any(|known| known == link);
    assert!(leads_to("cookbook.html", "files/engine/examples/bank.rs.html"));
    assert!(leads_to("files.html", "files/docs/internals/recovery.html"));
    assert!(leads_to("files/docs/internals/reliability.html", "../../../durability.html"));
}

#[test]
fn dead_links_are_found() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("writable");
    fs::create_dir(folder.path().join("sub")).expect("writable");
    write("sub/b.html", r#"<h1 id="head"><a href="../a.html">a</a></h1>"#);
    write(
        "a.html",
        r##"<a href="sub/b.html#head"><img src="x.svg"><a href="https://example.com/#x"><a href="#no">"##,
    );
    write("c.html", r#"<a href="../c.html"><a href="sub"><a href="sub/b.html#tail"><a href="/a.html">"#);
    let expected = [
        "a.html: #no",
        "a.html: x.svg",
        "c.html: ../c.html",
        "c.html: sub",
        "c.html: sub/b.html#tail",
        "c.html: /a.html",
    ];
    assert_eq!(dead_links(&pages(folder.path())), expected);
}
