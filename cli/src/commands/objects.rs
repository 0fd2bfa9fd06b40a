//! `objects`: what lies in a store of objects, and why.

use super::source::{is_url, shown};
use crate::errors::complain;
use crate::output::{Outcome, print_json, print_text};
use anyhow::{Context, Result, bail};
use quenchdb::{LogObject, LogRecords, ObjectContent, ObjectList, ObjectState, Pin, Place, StoredObject};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// `quench objects`
#[derive(clap::Args)]
#[command(
    after_help = "Only reads, the log included; writers and readers continue. Exit code 1: an object is missing.\n\n\
                        Stores without appends keep fences: 48 bytes each, of writers that never closed the database.\n\
                        With 16 of them, a writer leaves no more, and each commit costs one more read. --remove-fences is\n\
                        safe when every process that had the database open for writing has ended, except the newest.\n\n\
                        Example:\n  quench objects s3://accounts--usw2-az1--x-s3/production"
)]
pub struct ObjectsArgs {
    /// Database URL
    database: PathBuf,
    /// First remove the fences of writers that have ended: see below when that is safe
    #[arg(long)]
    remove_fences: bool,
}

/// Objects of one class and state.
#[derive(Default)]
struct Total {
    objects: u64,
    bytes: u64,
    /// Of pages.
    live_bytes: u64,
}

/// Runs `objects`.
pub fn run(args: &ObjectsArgs, as_json: bool) -> Result<Outcome> {
    if !is_url(&args.database) {
        bail!("{} is no URL: only a database in a store of objects has objects", shown(&args.database));
    }
    let place = Place::from(&args.database);
    if args.remove_fences {
        let removed = place.remove_fences();
        let removed =
            removed.with_context(|| format!("cannot remove fences of {}", shown(&args.database)))?;
        complain(&format!("{removed} fences removed"));
    }
    let found = place.objects();
    let list = found.with_context(|| format!("cannot list the objects of {}", shown(&args.database)))?;
    let mut totals: BTreeMap<(&str, ObjectState), Total> = BTreeMap::new();
    for object in &list.objects {
        let total = totals.entry((class(&object.content), object.state)).or_default();
        total.objects += 1;
        total.bytes += object.bytes;
        if let ObjectContent::Pages { live_bytes } = object.content {
            total.live_bytes += live_bytes;
        }
    }
    if as_json {
        print_json(&as_value(&list, &totals))?
    } else {
        print_text(&as_text(&list, &totals))?
    }
    Ok(if list.missing.is_empty() { Outcome::Done } else { Outcome::Wrong })
}

fn class(content: &ObjectContent) -> &'static str {
    match content {
        ObjectContent::Manifest => "manifest",
        ObjectContent::Log(_) => "log",
        ObjectContent::Pages { .. } => "pages",
        ObjectContent::File { .. } => "file",
        ObjectContent::Pin(_) => "pin",
        ObjectContent::Probe => "probe",
        _ => "unknown",
    }
}

fn state_name(state: ObjectState) -> &'static str {
    match state {
        ObjectState::Used => "used",
        ObjectState::Pinned => "pinned",
        ObjectState::Recent => "recent",
        ObjectState::Orphan => "orphan",
        ObjectState::Fence => "fence",
        _ => "foreign",
    }
}

fn records_name(records: LogRecords) -> &'static str {
    match records {
        LogRecords::Needed => "needed",
        LogRecords::Covered => "covered",
        LogRecords::Absent => "absent",
        LogRecords::Ignored => "ignored",
        LogRecords::Unnamed => "unnamed",
        _ => "unknown",
    }
}

fn as_value(list: &ObjectList, totals: &BTreeMap<(&str, ObjectState), Total>) -> Value {
    let totals = totals.iter().map(|((class, state), total)| {
        let Total { objects, bytes, live_bytes } = total;
        let mut value =
            json!({"class": class, "state": state_name(*state), "objects": objects, "bytes": bytes});
        if *class == "pages" {
            value["live_bytes"] = json!(live_bytes);
        }
        value
    });
    json!({
        "store": list.store,
        "writer_epoch": list.writer_epoch,
        "generation": list.generation,
        "closed": list.closed,
        "objects": list.objects.iter().map(object_value).collect::<Vec<_>>(),
        "totals": totals.collect::<Vec<_>>(),
        "missing": list.missing,
    })
}

fn object_value(object: &StoredObject) -> Value {
    let mut value = json!({
        "name": object.name,
        "bytes": object.bytes,
        "class": class(&object.content),
        "state": state_name(object.state),
        "epoch": object.epoch,
        "number": object.number,
    });
    match &object.content {
        ObjectContent::Log(log) => {
            value["segment"] = json!(log.segment);
            value["lane"] = json!(log.lane);
            value["block"] = json!(log.block);
            value["fenced_by"] = json!(log.fenced_by);
            value["records"] = json!(records_name(log.records));
        }
        ObjectContent::Pages { live_bytes } => value["live_bytes"] = json!(live_bytes),
        ObjectContent::File { path } => value["path"] = json!(path),
        ObjectContent::Pin(pin) => {
            value["owner"] = json!(pin.owner);
            value["expires"] = json!(pin.expires);
        }
        _ => {}
    }
    value
}

fn as_text(list: &ObjectList, totals: &BTreeMap<(&str, ObjectState), Total>) -> String {
    let ended = if list.closed { "closed" } else { "not closed: a writer is alive, or was killed" };
    let mut text = format!(
        "{}: writer epoch {} ({ended}), manifest number {}\n",
        list.store, list.writer_epoch, list.generation
    );
    // A foreign name may have any characters.
    let name = |object: &StoredObject| object.name.escape_debug().to_string();
    let width = list.objects.iter().map(|object| name(object).len()).max().unwrap_or(0);
    for object in &list.objects {
        let (name, bytes) = (name(object), object.bytes);
        let _ = writeln!(text, "{name:<width$} {bytes:>11}  {}", reason(object));
    }
    for ((class, state), total) in totals {
        let Total { objects, bytes, live_bytes } = total;
        let live = match *class == "pages" && *state == ObjectState::Used {
            true => format!(", {live_bytes} of them live"),
            false => String::new(),
        };
        let what = if *objects == 1 { "object" } else { "objects" };
        let _ =
            writeln!(text, "total: {class}, {}: {objects} {what}, {bytes} bytes{live}", state_name(*state));
    }
    for name in &list.missing {
        let _ = writeln!(text, "MISSING: {name}, which the manifest names");
    }
    text
}

/// Returns why an object is there.
fn reason(object: &StoredObject) -> String {
    let what = match &object.content {
        ObjectContent::Manifest => "manifest: names everything that counts".into(),
        ObjectContent::Log(log) => log_reason(log),
        ObjectContent::Pages { live_bytes } if object.state == ObjectState::Used => {
            format!("pages: {live_bytes} bytes live")
        }
        ObjectContent::Pages { .. } => "pages: none live".into(),
        ObjectContent::File { path: Some(path) } => format!("file {path}"),
        ObjectContent::File { path: None } => "file".into(),
        ObjectContent::Pin(pin) => pin_reason(pin),
        ObjectContent::Probe if object.name.starts_with("probe/raced-") => {
            "probe: the mark that racing requests have passed at this server".into()
        }
        ObjectContent::Probe => "probe: a process tests or measures the store, or was killed then".into(),
        _ => "unknown: no object of this database".into(),
    };
    let why = match object.state {
        ObjectState::Pinned => "; the pin of a reader keeps it",
        ObjectState::Recent => {
            "; the last writer has made it: not named yet, or no longer; the next writer deletes what is left"
        }
        ObjectState::Orphan => "; orphan: the next writer deletes it",
        ObjectState::Fence => "; stays, so that no earlier writer takes its place (see --remove-fences)",
        _ => "",
    };
    what + why
}

fn log_reason(log: &LogObject) -> String {
    let mut text = match log.segment {
        Some(segment) => format!("log: segment {segment}"),
        None => "log".into(),
    };
    if let Some(lane) = log.lane {
        let _ = write!(text, ", lane {lane}");
    }
    if let Some(block) = log.block {
        let _ = write!(text, ", block {block}");
    }
    text += match log.records {
        LogRecords::Needed => ", needed for recovery",
        LogRecords::Covered => ", not needed: a checkpoint covers it",
        LogRecords::Absent if log.fenced_by.is_some() => "",
        LogRecords::Absent => ", without a block yet",
        LogRecords::Ignored => ", not needed: a lower block is missing",
        LogRecords::Unnamed => "",
        _ => ", could not be read",
    };
    if let Some(epoch) = log.fenced_by {
        let _ = write!(text, ", fenced by epoch {epoch}");
    }
    text
}

fn pin_reason(pin: &Pin) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    format!("pin of {}, ends in {} hours", pin.owner, pin.expires.saturating_sub(now) / 3600)
}
