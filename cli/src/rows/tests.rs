//! Tests of the formats of rows.

use super::read::{Found, Layout, RowReader};
use super::write::RowWriter;
use super::*;

const FORMATS: [Format; 3] = [Format::Tsv, Format::Csv, Format::Json];

/// Keys with their values.
type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Keys and values that a format may confuse with its own signs.
fn awkward() -> Rows {
    let all: Vec<u8> = (0..=255).collect();
    let texts: [&[u8]; 18] = [
        b"a",
        b"\\x",
        b"\\x41",
        b"\\",
        b"\\t",
        b"\"",
        b"\"\"",
        b"a,b",
        b"a\tb",
        b"a\r\nb",
        b"\n",
        b"\r",
        b" ",
        b"key",
        b"\xff",
        "grün 🦊".as_bytes(),
        "\u{feff}a\u{202e}b\u{7f}".as_bytes(),
        b"{\"key\":1}",
    ];
    let mut rows: Vec<_> = texts.iter().map(|text| (text.to_vec(), text.repeat(2))).collect();
    rows.push((all.clone(), all.into_iter().rev().collect()));
    rows.push((b"empty".to_vec(), Vec::new()));
    rows
}

fn write(format: Format, has_tables: bool, tables: &[(&str, Rows)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = RowWriter::new(&mut out, format, has_tables).expect("memory");
    for (name, rows) in tables {
        writer.rows(name, rows.iter().cloned().map(Ok)).expect("memory");
    }
    writer.flush().expect("memory");
    drop(writer);
    out
}

fn reader(text: &[u8], format: Format, has_tables: bool, names: Names) -> anyhow::Result<RowReader> {
    let layout = Layout { format, has_tables, has_header: true, names };
    RowReader::new("it".into(), Box::new(std::io::Cursor::new(text.to_vec())), layout)
}

/// Returns the rows, or the lines that are none, of a text.
fn read(text: &[u8], format: Format, has_tables: bool) -> Vec<Result<Row, (u64, String)>> {
    let mut reader = reader(text, format, has_tables, Names::default()).expect("it can be read");
    let mut all = Vec::new();
    loop {
        let mut row = Row::default();
        match reader.next(&mut row).expect("it can be read") {
            Found::End => return all,
            Found::Bad(what) => all.push(Err((reader.lines().0, what))),
            Found::Row => all.push(Ok(row)),
        }
    }
}

#[test]
fn every_format_reads_what_it_writes() {
    for format in FORMATS {
        let text = write(format, false, &[("t", awkward())]);
        let rows = read(&text, format, false).into_iter().map(|row| row.expect("a row"));
        let rows: Vec<_> = rows.map(|row| (row.key, row.value)).collect();
        assert_eq!(rows, awkward(), "{format:?}: {}", String::from_utf8_lossy(&text));
        std::str::from_utf8(&text).expect("text");
    }
}

#[test]
fn every_format_reads_all_tables_and_empty_ones() {
    for format in FORMATS {
        let tables = [("a\tb,\"c", awkward()), ("empty", vec![]), ("grün", awkward())];
        let text = write(format, true, &tables);
        let rows = read(&text, format, true).into_iter().map(|row| row.expect("a row"));
        let wanted = tables.iter().flat_map(|(table, rows)| {
            let row = |(key, value): &(Vec<u8>, Vec<u8>)| Row {
                table: table.to_string(),
                key: key.clone(),
                value: value.clone(),
            };
            let alone = rows.is_empty().then(|| Row { table: table.to_string(), ..Row::default() });
            rows.iter().map(row).chain(alone).collect::<Vec<_>>()
        });
        assert_eq!(rows.collect::<Vec<_>>(), wanted.collect::<Vec<_>>(), "{format:?}");
    }
}

#[test]
fn utf_8_is_written_as_it_is_and_controls_are_escaped() {
    assert_eq!(escape("grün 🦊".as_bytes()), "grün 🦊");
    assert_eq!(escape(b"\x1b[2J\xc3"), "\\x1b[2J\\xc3");
    assert_eq!(escape("\u{202e}".as_bytes()), "\\xe2\\x80\\xae");
    let rows = vec![("ü".into(), b"\xff".to_vec())];
    assert_eq!(write(Format::Csv, false, &[("t", rows.clone())]), "key,value\nü,\\xff\n".as_bytes());
    let json = write(Format::Json, false, &[("t", rows)]);
    assert_eq!(json, "{\"key\":\"ü\",\"value_base64\":\"/w==\"}\n".as_bytes());
}

#[test]
fn raw_bytes_are_accepted() {
    assert_eq!(unescape("grün".as_bytes()).expect("raw"), "grün".as_bytes());
}

#[test]
fn a_bad_line_is_named_and_reading_continues() {
    for (format, head, bad, wanted) in [
        (Format::Tsv, "", "nothing", "column 8: no tab"),
        (Format::Tsv, "", "a\tb\tc", "column 4: a second tab"),
        (Format::Tsv, "", "a\\q\tb", "column 2: unknown escape"),
        (Format::Tsv, "", "a\tb\\x4", "column 4: `\\x` needs"),
        (Format::Tsv, "", "a\tbc\\", "column 5: a lone backslash"),
        (Format::Tsv, "", "\tb", "an empty key"),
        (Format::Csv, "key,value\n", "a", "1 field instead of 2"),
        (Format::Csv, "key,value\n", "a,b,c", "3 fields instead of 2"),
        (Format::Csv, "value,key\n", "a,\\x4", "pairs of digits"),
        (Format::Json, "", "{", "column 1: EOF"),
        (Format::Json, "", "{\"key\":\"a\",\"value\":1}", "column 20: invalid type"),
        (Format::Json, "", "{\"key\":\"a\"}", "no member `value`"),
        (Format::Json, "", "{\"key\":\"a\",\"key_base64\":\"\",\"value\":\"\"}", "both `key`"),
        (Format::Json, "", "{\"key\":\"a\",\"value_base64\":\"?\"}", "not base64"),
        (Format::Json, "", "{\"key\":\"a\",\"value\":\"b\",\"other\":\"c\"}", "unknown field"),
        (Format::Json, "", "{\"table\":\"t\",\"key\":\"a\",\"value\":\"b\"}", "--all"),
    ] {
        let good = match format {
            Format::Tsv => "k\tv\r\n",
            Format::Csv => "k,v\n",
            Format::Json => "{\"key\":\"k\",\"value\":\"v\"}\n",
        };
        let text = format!("{head}{good}{bad}\n{good}");
        let rows = read(text.as_bytes(), format, false);
        let line = 2 + head.lines().count() as u64;
        assert!(rows.len() == 3 && rows[0].is_ok() && rows[2].is_ok(), "{bad}: {rows:?}");
        assert!(rows[1].as_ref().is_err_and(|(at, what)| *at == line && what.contains(wanted)), "{rows:?}");
    }
}

#[test]
fn csv_needs_its_header() {
    for (text, has_tables, wanted) in [
        ("a,1\n", false, "the header `key,value`"),
        ("table,key,value\n", false, "--all"),
        ("key,value\n", true, "the header `table,key,value`"),
    ] {
        let mut reader = reader(text.as_bytes(), Format::Csv, has_tables, Names::default()).expect("memory");
        let error = reader.next(&mut Row::default()).expect_err("refused");
        assert!(format!("{error:#}").contains(wanted), "{error:#}");
    }
    let layout =
        Layout { format: Format::Csv, has_tables: false, has_header: false, names: Names::default() };
    let text = &b"\"a\nb\",1\nc,2\n"[..];
    let mut reader = RowReader::new("it".into(), Box::new(text), layout).expect("memory");
    let mut row = Row::default();
    assert_eq!(reader.next(&mut row).expect("a row"), Found::Row);
    assert_eq!((&*row.key, reader.lines()), (&b"a\nb"[..], (1, 2)));
    assert_eq!(reader.next(&mut row).expect("a row"), Found::Row);
    assert_eq!(read::place("it", reader.lines()), "it line 3");
}
