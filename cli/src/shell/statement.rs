//! The language of the shell: one statement a line, or several with `;` between them.

use super::words::{Word, split};
use crate::commands::range::Asked;
use crate::rows::Format;
use clap::ValueEnum;
use quenchdb::Isolation;

/// A command: its name, its arguments, and what it does.
pub struct Command {
    pub name: &'static str,
    pub arguments: &'static str,
    /// Empty for another name of the command before.
    pub what: &'static str,
}

const fn command(name: &'static str, arguments: &'static str, what: &'static str) -> Command {
    Command { name, arguments, what }
}

/// All commands, in the order of the help.
pub const COMMANDS: [Command; 22] = [
    command("get", "TABLE KEY", "print the value of a key"),
    command("put", "TABLE KEY VALUE", "write a row"),
    command("delete", "TABLE KEY", "delete a row"),
    command("scan", "TABLE [from KEY] [to KEY] [prefix KEY] [limit N] [reverse]", "print rows"),
    command("count", "TABLE [from KEY] [to KEY] [prefix KEY]", "count rows"),
    command("tables", "", "list the tables"),
    command("create", "TABLE", "create a table"),
    command("drop", "TABLE", "drop a table with all its rows"),
    command("rename", "TABLE NEW", "rename a table"),
    command("clear", "TABLE", "delete all rows of a table"),
    command("begin", "[snapshot|serializable|read-committed]", "begin a transaction"),
    command("commit", "", "commit the transaction, durably"),
    command("rollback", "", "abort the transaction"),
    command("checkpoint", "", "write a checkpoint"),
    command(".stat", "", "print what is known of the database"),
    command(".timer", "on|off", "print the time of each command"),
    command(".mode", "tsv|csv|json", "choose the format of rows"),
    command(".help", "[COMMAND]", "print this list, or one command"),
    command("help", "[COMMAND]", ""),
    command(".quit", "", "close the database and end; also quit, exit"),
    command("quit", "", ""),
    command("exit", "", ""),
];

/// A statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Statement {
    Get { table: String, key: Vec<u8> },
    Put { table: String, key: Vec<u8>, value: Vec<u8> },
    Delete { table: String, key: Vec<u8> },
    Scan { table: String, range: Asked, limit: usize, reverse: bool },
    Count { table: String, range: Asked },
    Tables,
    Create(String),
    Drop(String),
    Rename { table: String, new_name: String },
    Clear(String),
    Begin(Isolation),
    Commit,
    Rollback,
    Checkpoint,
    Stat,
    Timer(bool),
    Mode(Format),
    Help(Option<String>),
    Quit,
}

/// Returns the command of this name, in upper or lower case.
pub fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name.eq_ignore_ascii_case(name))
}

/// The words of a statement that are left.
struct Rest {
    command: &'static Command,
    words: std::vec::IntoIter<Word>,
}

impl Rest {
    fn usage(&self) -> String {
        format!("{} {}", self.command.name, self.command.arguments).trim_end().to_string()
    }

    fn word(&mut self, what: &str) -> Result<Word, String> {
        let usage = self.usage();
        self.words.next().ok_or_else(|| format!("{what} is missing: {usage}"))
    }

    fn bytes(&mut self, what: &str) -> Result<Vec<u8>, String> {
        self.word(what)?.bytes().map_err(|malformed| format!("{what}: {malformed}"))
    }

    fn table(&mut self) -> Result<String, String> {
        String::from_utf8(self.bytes("the table")?).map_err(|_| "the name of the table is not UTF-8".into())
    }

    fn range(
        &mut self,
        more: &mut dyn FnMut(&Word, &mut Rest) -> Result<bool, String>,
    ) -> Result<Asked, String> {
        let mut range = Asked::default();
        while let Some(word) = self.words.next() {
            let keyword = keyword(&word);
            let place = match &*keyword {
                "from" => &mut range.from,
                "to" => &mut range.to,
                "prefix" => &mut range.prefix,
                _ if more(&word, self)? => continue,
                _ => return Err(format!("`{}` is not expected: {}", word.text, self.usage())),
            };
            *place = Some(self.bytes(&format!("the key after `{keyword}`"))?);
        }
        if range.prefix.is_some() && (range.from.is_some() || range.to.is_some()) {
            return Err("`prefix` excludes `from` and `to`".into());
        }
        Ok(range)
    }

    /// Returns a choice.
    fn one_of<T: Copy>(&mut self, all: &[(&str, T)], default: Option<T>) -> Result<T, String> {
        let usage = self.usage();
        match (self.words.next(), default) {
            (None, Some(default)) => Ok(default),
            (Some(word), _) => {
                let found = all
                    .iter()
                    .find(|(name, _)| name.eq_ignore_ascii_case(&word.text))
                    .map(|(_, chosen)| *chosen);
                found.ok_or_else(|| format!("`{}` is not expected: {usage}", word.text))
            }
            (None, None) => Err(format!("a choice is missing: {usage}")),
        }
    }
}

fn scan(rest: &mut Rest) -> Result<Statement, String> {
    let table = rest.table()?;
    let (mut limit, mut reverse) = (usize::MAX, false);
    let range = rest.range(&mut |word, rest| {
        match &*keyword(word) {
            "reverse" => reverse = true,
            "limit" => {
                let number = rest.word("the number after `limit`")?.text;
                limit = number.parse().map_err(|_| format!("`{number}` is no number of rows"))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Statement::Scan { table, range, limit, reverse })
}

/// Returns a word as a keyword, in lower case; nothing if it was in quotes.
fn keyword(word: &Word) -> String {
    if word.is_quoted { String::new() } else { word.text.to_ascii_lowercase() }
}

/// Parses all statements of a line. An empty line, and a comment, has none.
///
/// # Errors
/// Says what is wrong with the line, and how the command is used.
pub fn parse(line: &str) -> Result<Vec<Statement>, String> {
    let statements = split(line);
    if statements.iter().flatten().any(|word| word.is_open) {
        return Err("the closing quote is missing".into());
    }
    statements.into_iter().filter(|words| !words.is_empty()).map(statement).collect()
}

/// Parses the words of a statement.
fn statement(words: Vec<Word>) -> Result<Statement, String> {
    let mut words = words.into_iter();
    let first = words.next().map_or(String::new(), |word| word.text);
    let Some(command) = find(&first) else {
        return Err(format!("`{first}` is no command; .help lists them"));
    };
    let rest = &mut Rest { command, words };
    let statement = match command.name {
        "get" => Statement::Get { table: rest.table()?, key: rest.bytes("the key")? },
        "put" => Statement::Put {
            table: rest.table()?,
            key: rest.bytes("the key")?,
            value: rest.bytes("the value")?,
        },
        "delete" => Statement::Delete { table: rest.table()?, key: rest.bytes("the key")? },
        "scan" => scan(rest)?,
        "count" => Statement::Count { table: rest.table()?, range: rest.range(&mut |_, _| Ok(false))? },
        "tables" => Statement::Tables,
        "create" => Statement::Create(rest.table()?),
        "drop" => Statement::Drop(rest.table()?),
        "rename" => Statement::Rename { table: rest.table()?, new_name: rest.table()? },
        "clear" => Statement::Clear(rest.table()?),
        "begin" => {
            let all = [
                ("snapshot", Isolation::Snapshot),
                ("serializable", Isolation::Serializable),
                ("read-committed", Isolation::ReadCommitted),
            ];
            Statement::Begin(rest.one_of(&all, Some(Isolation::default()))?)
        }
        "commit" => Statement::Commit,
        "rollback" => Statement::Rollback,
        "checkpoint" => Statement::Checkpoint,
        ".stat" => Statement::Stat,
        ".timer" => Statement::Timer(rest.one_of(&[("on", true), ("off", false)], None)?),
        ".mode" => {
            let word = rest.word("the format")?;
            match Format::from_str(&word.text, true) {
                Ok(format) => Statement::Mode(format),
                Err(_) => return Err(format!("`{}` is not expected: {}", word.text, rest.usage())),
            }
        }
        ".help" | "help" => Statement::Help(rest.words.next().map(|word| word.text)),
        _ => Statement::Quit,
    };
    match rest.words.next() {
        Some(word) => Err(format!("`{}` is not expected: {}", word.text, rest.usage())),
        None => Ok(statement),
    }
}
