//! Splits a line into statements and words.

use crate::rows::escape::{Malformed, escape, unescape};

/// A word of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Word {
    /// Byte of the line at which the word begins.
    pub start: usize,
    /// The text without its quotes, with its escapes.
    pub text: String,
    /// Whether it was in quotes. Such a word is no keyword.
    pub is_quoted: bool,
    /// Whether its closing quote is missing.
    pub is_open: bool,
}

impl Word {
    /// Returns the bytes that the word stands for.
    ///
    /// # Errors
    /// A malformed escape.
    pub fn bytes(&self) -> Result<Vec<u8>, Malformed> {
        unescape(self.text.as_bytes())
    }
}

/// Returns the statements of a line, each as its words; the last may be empty. A `;` ends a
/// statement. Quotes of either kind hold a word with blanks or `;` together. A `#` at the beginning
/// of a word begins a comment.
pub fn split(line: &str) -> Vec<Vec<Word>> {
    let mut statements = vec![Vec::new()];
    let mut at = 0;
    while let Some(blanks) = line[at..].find(|c: char| !c.is_whitespace()) {
        let start = at + blanks;
        let rest = &line[start..];
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
        if rest.starts_with('#') {
            break;
        }
        if rest.starts_with(';') {
            statements.push(Vec::new());
            at = start + 1;
            continue;
        }
        let (text, len, is_open) = match quote {
            Some(quote) => match rest[1..].find(quote) {
                Some(end) => (&rest[1..=end], end + 2, false),
                None => (&rest[1..], rest.len(), true),
            },
            None => {
                let len = rest.find(|c: char| c.is_whitespace() || c == ';').unwrap_or(rest.len());
                (&rest[..len], len, false)
            }
        };
        let word = Word { start, text: text.into(), is_quoted: quote.is_some(), is_open };
        statements.last_mut().expect("the first is there").push(word);
        at = start + len;
    }
    statements
}

/// Returns bytes as a word that [`split`] reads as one word with these bytes.
pub fn quoted(bytes: &[u8]) -> String {
    let text = escape(bytes);
    let needs_quotes = text.is_empty()
        || text.contains(|c: char| c.is_whitespace() || c == ';')
        || text.starts_with(['"', '\'', '#']);
    match (needs_quotes, text.contains('"'), text.contains('\'')) {
        (false, ..) => text,
        (true, false, _) => format!("\"{text}\""),
        (true, true, false) => format!("'{text}'"),
        (true, true, true) => format!("\"{}\"", text.replace('"', "\\x22")),
    }
}
