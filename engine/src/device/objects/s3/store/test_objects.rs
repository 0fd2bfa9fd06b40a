//! A small server of objects, with switches for what it ignores and for replies that it loses.

use super::super::super::super::client::test_server::{Answer, Seen, Server, error, reply};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What the server does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    IgnoresIfNoneMatch,
    IgnoresIfMatch,
    /// An append replaces the object, as on servers that do not know the header.
    IgnoresOffsetHeader,
    /// An append at any offset goes to the end.
    AppendsAnywhere,
    /// An append to no object creates one.
    AppendCreates,
    IgnoresRange,
    KnowsNoAppends,
    /// The reply to the n-th write, from 0, is lost; the write is applied.
    LosesReply(usize),
    /// As `LosesReply`, and nothing is applied.
    LosesRequest(usize),
    /// Every third write is refused with `SlowDown`.
    Throttles,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, (Vec<u8>, u64)>,
    versions: u64,
    writes: usize,
}

/// Starts a server with an empty bucket.
pub(super) fn start(fault: Option<Fault>) -> Server {
    let state = Arc::new(Mutex::new(State::default()));
    Server::start(move |seen, _| {
        let mut state = state.lock().unwrap();
        let (path, query) = seen.path.split_once('?').unwrap_or((&seen.path, ""));
        let key = path.trim_start_matches('/').split_once('/').map_or("", |(_, key)| key);
        match &seen.method[..] {
            "PUT" => state.write(seen, key, fault),
            "DELETE" => {
                state.objects.remove(key);
                reply(204, "", "")
            }
            _ if query.contains("list-type") => state.list(query),
            _ => state.read(seen, key, fault),
        }
    })
}

impl State {
    fn write(&mut self, seen: &Seen, key: &str, fault: Option<Fault>) -> Answer {
        let number = self.writes;
        self.writes += 1;
        match fault {
            Some(Fault::LosesRequest(lost)) if lost == number => Answer::Close,
            Some(Fault::Throttles) if number % 3 == 2 => error(503, "SlowDown"),
            Some(Fault::LosesReply(lost)) if lost == number => {
                self.put(seen, key, fault);
                Answer::Close
            }
            _ => self.put(seen, key, fault),
        }
    }

    fn put(&mut self, seen: &Seen, key: &str, fault: Option<Fault>) -> Answer {
        let ignores = |other| fault == Some(other);
        let current = self.objects.get(key).map(|(_, version)| format!("\"{version}\""));
        if seen.header("if-none-match").is_some() && current.is_some() && !ignores(Fault::IgnoresIfNoneMatch)
        {
            return error(412, "PreconditionFailed");
        }
        let changed = seen.header("if-match").is_some_and(|version| current.as_deref() != Some(version));
        if changed && !ignores(Fault::IgnoresIfMatch) {
            return error(if current.is_some() { 412 } else { 404 }, "PreconditionFailed");
        }
        let mut content = Vec::new();
        if let Some(offset) = seen.header("x-amz-write-offset-bytes") {
            let offset: usize = offset.parse().unwrap();
            match self.objects.get(key) {
                _ if ignores(Fault::KnowsNoAppends) => return error(501, "NotImplemented"),
                _ if ignores(Fault::IgnoresOffsetHeader) => {}
                None if ignores(Fault::AppendCreates) => {}
                None => return error(404, "NoSuchKey"),
                Some((old, _)) if old.len() == offset || ignores(Fault::AppendsAnywhere) => {
                    content.clone_from(old);
                }
                Some(_) => return error(400, "InvalidWriteOffset"),
            }
        }
        content.extend_from_slice(&seen.body);
        self.versions += 1;
        let headers = format!("etag: \"{}\"\nx-amz-object-size: {}", self.versions, content.len());
        self.objects.insert(key.into(), (content, self.versions));
        reply(200, &headers, "")
    }

    fn read(&self, seen: &Seen, key: &str, fault: Option<Fault>) -> Answer {
        let Some((body, version)) = self.objects.get(key) else {
            return if seen.method == "HEAD" {
                reply(404, "content-length: 0", "")
            } else {
                error(404, "NoSuchKey")
            };
        };
        let (len, tag) = (body.len(), format!("etag: \"{version}\""));
        if seen.method == "HEAD" {
            return reply(200, &format!("{tag}\ncontent-length: {len}"), "");
        }
        match seen.header("range") {
            Some(range) if fault != Some(Fault::IgnoresRange) => {
                let (first, last) = range.trim_start_matches("bytes=").split_once('-').unwrap();
                let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
                if first >= len {
                    return error(416, "InvalidRange");
                }
                let last = last.min(len - 1);
                let headers = format!("{tag}\ncontent-range: bytes {first}-{last}/{len}");
                reply(206, &headers, &body[first..=last])
            }
            _ => reply(200, &tag, &body[..]),
        }
    }

    fn list(&self, query: &str) -> Answer {
        let prefix = query.split('&').find_map(|part| part.strip_prefix("prefix=")).unwrap_or("");
        let prefix = prefix.replace("%2F", "/");
        let objects: String = self
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix))
            .map(|(key, (body, _))| {
                format!("<Contents><Key>{key}</Key><Size>{}</Size></Contents>", body.len())
            })
            .collect();
        reply(
            200,
            "",
            format!("<ListBucketResult><IsTruncated>false</IsTruncated>{objects}</ListBucketResult>"),
        )
    }
}
