//! Splits a line into words.

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

/// Returns the words of a line. Quotes of either kind hold words with blanks together. A `#` at
/// the beginning of a word begins a comment.
pub fn split(line: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(blanks) = line[at..].find(|c: char| !c.is_whitespace()) {
        let start = at + blanks;
        let rest = &line[start..];
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
        if rest.starts_with('#') {
            break;
        }
        let (text, len, is_open) = match quote {
            Some(quote) => match rest[1..].find(quote) {
                Some(end) => (&rest[1..=end], end + 2, false),
                None => (&rest[1..], rest.len(), true),
            },
            None => {
                let len = rest.find(char::is_whitespace).unwrap_or(rest.len());
                (&rest[..len], len, false)
            }
        };
        words.push(Word { start, text: text.into(), is_quoted: quote.is_some(), is_open });
        at = start + len;
    }
    words
}

/// Returns bytes as a word that [`split`] reads as one word with these bytes.
pub fn quoted(bytes: &[u8]) -> String {
    let text = escape(bytes);
    let needs_quotes =
        text.is_empty() || text.contains(char::is_whitespace) || text.starts_with(['"', '\'', '#']);
    match (needs_quotes, text.contains('"'), text.contains('\'')) {
        (false, ..) => text,
        (true, false, _) => format!("\"{text}\""),
        (true, true, false) => format!("'{text}'"),
        (true, true, true) => format!("\"{}\"", text.replace('"', "\\x22")),
    }
}
