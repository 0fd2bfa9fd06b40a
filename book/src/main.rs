//! A preprocessor of mdBook: files outside of the guide that its pages link to become pages, too.
//!
//! On a code host, a relative link from a page to a source leads to that source. A built book has
//! only its own pages, so there each linked file gets one, under `files/`. `docs/book.toml` names
//! this program; mdBook passes the book as JSON.

use anyhow::{Context, Result, bail};
use mdbook_preprocessor::book::{Book, BookItem, Chapter, SectionNumber};
use mdbook_preprocessor::parse_input;
use pulldown_cmark::{Event, LinkType, Options, Parser, Tag};
use std::collections::BTreeSet;
use std::fs;
use std::io::{stdin, stdout};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

const FILES: &str = "files";

fn main() -> Result<()> {
    // `supports RENDERER` asks by the exit code whether a renderer can use this program.
    if std::env::args().nth(1).is_some_and(|argument| argument == "supports") {
        return Ok(());
    }
    let (context, mut book) = parse_input(stdin())?;
    // mdBook starts preprocessors in the folder of book.toml.
    let docs = std::env::current_dir().context("read the current directory")?;
    let root = docs.parent().context("the folder of book.toml is in the repository")?;
    let docs = docs.strip_prefix(root)?;
    Repository { root: root.to_path_buf(), guide: docs.join(&context.config.book.src) }
        .add_files(&mut book)?;
    Ok(serde_json::to_writer(stdout(), &book)?)
}

/// A link of a page: its place in the text, and its target.
struct Link {
    place: Range<usize>,
    target: String,
}

struct Repository {
    root: PathBuf,
    /// The folder of the book's pages, below the root.
    guide: PathBuf,
}

impl Repository {
    /// Adds a page for each file that pages of the guide link to, and makes links lead there.
    fn add_files(&self, book: &mut Book) -> Result<()> {
        let mut files = BTreeSet::new();
        for chapter in book.chapters() {
            let Some(page) = &chapter.path else { continue };
            let source = self.guide.join(page);
            for Link { target, .. } in links(&chapter.content) {
                let (file, _) = self.resolve(&source, &target)?;
                if !file.starts_with(&self.guide) && self.root.join(&file).is_file() {
                    files.insert(file);
                }
            }
        }
        let mut failed = None;
        book.for_each_chapter_mut(|chapter| {
            let Some(page) = &chapter.path else { return };
            match self.rewrite(&self.guide.join(page), &chapter.content, &files) {
                Ok(text) => chapter.content = text,
                Err(error) => failed = Some(error),
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let number = 1 + book.chapters().filter(|chapter| chapter.number.is_some()).count();
        book.push_item(self.appendix(u32::try_from(number)?, &files)?);
        Ok(())
    }

    /// Returns a chapter with a page for each file. Numbered pages fold in the table of contents.
    fn appendix(&self, number: u32, files: &BTreeSet<PathBuf>) -> Result<Chapter> {
        let name = "Files of the repository";
        let mut list = format!("# {name}\n\nPages of the guide link to these files.\n");
        let mut pages = Vec::new();
        for (file, subnumber) in files.iter().zip(1..) {
            let page = self.page_of(file);
            let shown = file.display().to_string();
            list.push_str(&format!("\n- [`{shown}`]({})", page.display()));
            let text = fs::read_to_string(self.root.join(file)).with_context(|| format!("read {shown}"))?;
            let text = match file.extension().and_then(|extension| extension.to_str()) {
                Some("md") => self.rewrite(file, &text, files)?,
                extension => listing(&shown, extension.unwrap_or("text"), &text),
            };
            let mut chapter = Chapter::new(&shown, text, page, vec![name.into()]);
            chapter.number = Some(SectionNumber::new([number, subnumber]));
            pages.push(BookItem::Chapter(chapter));
        }
        let mut chapter = Chapter::new(name, list, format!("{FILES}.md"), Vec::new());
        chapter.number = Some(SectionNumber::new([number]));
        chapter.sub_items = pages;
        Ok(chapter)
    }

    /// Returns the text of the document `source` with links that work in the book. A link to what
    /// the book lacks, such as a folder, becomes its text.
    fn rewrite(&self, source: &Path, text: &str, files: &BTreeSet<PathBuf>) -> Result<String> {
        let own_page = self.page_of(source);
        let up = "../".repeat(own_page.components().count() - 1);
        let (mut rewritten, mut copied) = (String::new(), 0);
        for Link { place, target } in links(text) {
            let (file, anchor) = self.resolve(source, &target)?;
            if file.starts_with(&self.guide) && source.starts_with(&self.guide) {
                continue;
            }
            let link = &text[place.clone()];
            let at = link.rfind(&format!("]({target}")).context("an inline link has its target")?;
            rewritten.push_str(&text[copied..place.start]);
            if file.starts_with(&self.guide) || files.contains(&file) {
                let page = self.page_of(&file);
                rewritten.push_str(&format!("{}]({up}{}{anchor})", &link[..at], page.display()));
            } else {
                rewritten.push_str(&link[1..at]);
            }
            copied = place.end;
        }
        rewritten.push_str(&text[copied..]);
        Ok(rewritten)
    }

    /// Returns the page of a file, below the source folder of the book.
    fn page_of(&self, file: &Path) -> PathBuf {
        if let Ok(page) = file.strip_prefix(&self.guide) {
            return page.to_path_buf();
        }
        let page = Path::new(FILES).join(file);
        if file.extension().is_some_and(|extension| extension == "md") {
            return page;
        }
        PathBuf::from(format!("{}.md", page.display()))
    }

    /// Returns the file below the root, and the anchor with its `#`, that a link in `source` names.
    fn resolve(&self, source: &Path, target: &str) -> Result<(PathBuf, String)> {
        let (file, anchor) = target.split_at(target.find('#').unwrap_or(target.len()));
        let mut path = if file.is_empty() { source.to_path_buf() } else { source.with_file_name("") };
        for part in Path::new(file).components() {
            match part {
                Component::ParentDir => drop(path.pop()),
                part => path.push(part),
            }
        }
        if !self.root.join(&path).exists() {
            bail!("{}: the link {target} leads to no file; correct or remove it", source.display());
        }
        Ok((path, anchor.to_string()))
    }
}

/// Returns the relative links of a document, in order. Links of other sites have a colon.
fn links(text: &str) -> Vec<Link> {
    let events = Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter();
    let links = events.filter_map(|(event, place)| match event {
        Event::Start(Tag::Link { link_type: LinkType::Inline, dest_url, .. }) => {
            Some(Link { place, target: dest_url.to_string() })
        }
        _ => None,
    });
    links.filter(|link| !link.target.contains(':')).collect()
}

/// Returns a page that shows a file which is no document.
fn listing(name: &str, extension: &str, text: &str) -> String {
    let language = if extension == "rs" { "rust" } else { extension };
    format!("# `{name}`\n\n~~~~~~~~{language}\n{text}\n~~~~~~~~\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str) -> Result<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in the workspace");
        let repository = Repository { root: root.to_path_buf(), guide: PathBuf::from("docs/guide") };
        let files = BTreeSet::from([PathBuf::from("deny.toml"), PathBuf::from("docs/glossary.md")]);
        repository.rewrite(Path::new("docs/guide/limits.md"), text, &files)
    }

    #[test]
    fn links_out_of_the_guide_lead_to_pages_of_the_book() {
        for (written, expected) in [
            ("a [`b`](../../deny.toml) c", "a [`b`](files/deny.toml.md) c"),
            ("[b](../glossary.md#words), [c](faq.md#d)", "[b](files/docs/glossary.md#words), [c](faq.md#d)"),
            ("see [the\nengine](../../engine).", "see the\nengine."),
            ("[a](https://example.com) `[b](c)`", "[a](https://example.com) `[b](c)`"),
            ("| [a](#b) | [c](../../deny.toml) |", "| [a](#b) | [c](files/deny.toml.md) |"),
        ] {
            assert_eq!(rewritten(written).expect("the files exist"), expected);
        }
    }

    #[test]
    fn a_link_to_a_missing_file_is_an_error() {
        let error = rewritten("[a](../../nothing.rs)").expect_err("no such file").to_string();
        assert!(error.contains("docs/guide/limits.md") && error.contains("../../nothing.rs"), "{error}");
    }
}
