//! Streams of appends.

use super::faults::{RapidFault, RapidStep};
use super::objects::{Opened, absent, taken_over};
use super::options::RapidMistake;
use super::shared::Shared;
use bytes::Bytes;
use prost::Message;
use quenchdb::internals::device::objects::rapid::{
    Any, BidiWriteHandle, BidiWriteObjectRedirectedError, BidiWriteObjectRequest, BidiWriteObjectResponse,
    ChecksummedData, DATA_BYTES_MAX, FirstMessage, RpcStatus, WriteStatus,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use tonic::{Code, Status, Streaming};

/// Where answers go.
pub(super) type Answers = UnboundedSender<Result<BidiWriteObjectResponse, Status>>;

/// For so long a late message waits for its effect.
const LATE: Duration = Duration::from_millis(20);

/// A flush under way.
struct Flush {
    due: Instant,
    end: usize,
    answers: bool,
}

/// One stream, from its first message to its end.
pub(super) struct Appends {
    pub shared: Arc<Shared>,
    pub answers: Answers,
    /// The token of the request's header.
    pub token: Option<String>,
}

fn lost() -> Status {
    Status::unavailable("the emulator has cut the stream")
}

fn handle_of(own: &Opened) -> BidiWriteHandle {
    BidiWriteHandle { handle: Bytes::from(format!("{}-{}", own.generation, own.writer)) }
}

fn writer_of(handle: &BidiWriteHandle) -> Option<u64> {
    std::str::from_utf8(&handle.handle).ok()?.split_once('-')?.1.parse().ok()
}

impl Appends {
    /// Answers messages until the stream ends.
    pub async fn run(self, mut messages: Streaming<BidiWriteObjectRequest>) {
        let ended = self.serve(&mut messages).await;
        if let Err(status) = ended {
            // The client may have gone.
            let _ = self.answers.send(Err(status));
        }
    }

    async fn serve(&self, messages: &mut Streaming<BidiWriteObjectRequest>) -> Result<(), Status> {
        let Some(first) = messages.message().await? else {
            return Err(Status::invalid_argument("the stream has no message"));
        };
        let own = self.open(&first).await?;
        let result = self.go_on(&own, first, messages).await;
        let keeps = self.shared.keeps_unflushed();
        self.shared.objects().lose(&own, keeps);
        result
    }

    /// Creates or opens the object of the first message.
    async fn open(&self, first: &BidiWriteObjectRequest) -> Result<Opened, Status> {
        let shared = &self.shared;
        let (step, wait) = match &first.first_message {
            Some(FirstMessage::WriteObjectSpec(_)) => (RapidStep::Create, shared.open_time()),
            Some(FirstMessage::AppendObjectSpec(spec)) if spec.write_handle.is_some() => {
                (RapidStep::Resume, shared.open_time())
            }
            Some(FirstMessage::AppendObjectSpec(_)) => (RapidStep::TakeOver, shared.open_time()),
            None => return Err(Status::invalid_argument("the first message names no object")),
        };
        shared.rest(wait).await;
        let fault = shared.draw(step).filter(|fault| *fault != RapidFault::Redirect || self.token.is_none());
        match fault {
            None => self.take_effect(first),
            Some(RapidFault::Before) => Err(lost()),
            Some(RapidFault::Throttle) => Err(Status::resource_exhausted("too many changes of an object")),
            Some(RapidFault::Deny) => Err(shared.denied()),
            Some(RapidFault::Expire) => {
                self.expire(first);
                Err(taken_over())
            }
            Some(RapidFault::Late) => {
                let (shared, answers) = (self.shared.clone(), self.answers.clone());
                let (late, first) = (Appends { shared, answers, token: None }, first.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(LATE).await;
                    // No client waits for the outcome.
                    let _ = late.take_effect(&first);
                });
                Err(lost())
            }
            Some(RapidFault::Redirect) if step == RapidStep::Create && shared.chance() => {
                let own = self.take_effect(first)?;
                Err(redirect(Some(&own)))
            }
            Some(RapidFault::Redirect) => Err(redirect(None)),
            Some(_) => {
                self.take_effect(first)?;
                Err(lost())
            }
        }
    }

    fn expire(&self, first: &BidiWriteObjectRequest) {
        if let Some(FirstMessage::AppendObjectSpec(spec)) = &first.first_message {
            // It is forgotten if that can be kept.
            let _ = self.shared.objects().expire(&spec.object);
        }
    }

    fn take_effect(&self, first: &BidiWriteObjectRequest) -> Result<Opened, Status> {
        let (shared, keeps) = (&self.shared, self.shared.keeps_unflushed());
        match &first.first_message {
            Some(FirstMessage::WriteObjectSpec(spec)) => {
                let resource = spec.resource.clone().unwrap_or_default();
                shared.check_bucket(&resource.bucket)?;
                if spec.appendable != Some(true) || resource.name.is_empty() {
                    return Err(Status::invalid_argument("only objects that take appends can be created"));
                }
                shared.objects().create(&resource.name, spec.if_generation_match)
            }
            Some(FirstMessage::AppendObjectSpec(spec)) => {
                shared.check_bucket(&spec.bucket)?;
                let writer = match &spec.write_handle {
                    None => None,
                    Some(handle) => Some(writer_of(handle).ok_or_else(taken_over)?),
                };
                shared.objects().open(&spec.object, spec.generation, writer, keeps)
            }
            None => Err(Status::invalid_argument("the first message names no object")),
        }
    }

    /// Serves the first message and all later ones.
    async fn go_on(
        &self,
        own: &Opened,
        first: BidiWriteObjectRequest,
        messages: &mut Streaming<BidiWriteObjectRequest>,
    ) -> Result<(), Status> {
        let mut flushes: VecDeque<Flush> = VecDeque::new();
        let mut last = Instant::now();
        let mut message = Some(first);
        let mut is_first = true;
        loop {
            if let Some(message) = message.take() {
                if message.finish_write {
                    return self.finalize(own, &message).await;
                }
                self.take(own, &message)?;
                if message.flush {
                    last = self.begin_flush(own, &message, &mut flushes, last)?;
                } else if message.state_lookup {
                    self.answer(own, &mut is_first)?;
                }
            }
            // Without a model of latency a flush ends at once.
            while flushes.front().is_some_and(|flush| flush.due <= Instant::now()) {
                self.end_flush(own, flushes.pop_front(), &mut is_first)?;
            }
            let due = flushes.front().map_or(Instant::now() + Duration::from_hours(1), |flush| flush.due);
            let revoked = own.revoked.notified();
            tokio::select! {
                next = messages.message() => match next {
                    Ok(Some(next)) => message = Some(next),
                    Ok(None) | Err(_) => return Ok(()),
                },
                () = self.shared.timer.until(due) => self.end_flush(own, flushes.pop_front(), &mut is_first)?,
                () = revoked => {
                    self.shared.objects().of_stream(own)?;
                }
            }
        }
    }

    /// Takes the data of a message.
    fn take(&self, own: &Opened, message: &BidiWriteObjectRequest) -> Result<(), Status> {
        let Some(data) = &message.checksummed_data else { return Ok(()) };
        if data.content.len() > DATA_BYTES_MAX {
            return Err(Status::invalid_argument("a message has more than 2 MiB of data"));
        }
        if !data.is_whole() {
            return Err(Status::invalid_argument("the data have another checksum"));
        }
        let offset = u64::try_from(message.write_offset).unwrap_or(0);
        let flush = |objects: &mut super::objects::Objects, part: usize| -> Result<(), Status> {
            objects.append(own, offset, &data.content.slice(..part))?;
            let end = objects.end(own)?;
            objects.flush(own, end).map(drop)
        };
        let whole = data.content.len();
        match self.shared.draw(RapidStep::Append) {
            Some(RapidFault::Before) => Err(lost()),
            Some(RapidFault::Deny) => Err(self.shared.denied()),
            Some(RapidFault::Late) => {
                self.take_late(own.clone(), offset, data.clone());
                Err(lost())
            }
            Some(RapidFault::Torn) => {
                flush(&mut self.shared.objects(), self.shared.below(whole + 1))?;
                Err(lost())
            }
            Some(_) => {
                flush(&mut self.shared.objects(), whole)?;
                Err(lost())
            }
            None => {
                self.shared.objects().append(own, offset, &data.content)?;
                self.persist(own)
            }
        }
    }

    /// The service also persists by itself: a server that may be killed, so that blocks are torn.
    fn persist(&self, own: &Opened) -> Result<(), Status> {
        if self.shared.options.directory.is_none() || !self.shared.chance() {
            return Ok(());
        }
        let mut objects = self.shared.objects();
        let object = objects.of_stream(own)?;
        let end = object.durable.len() + self.shared.below(object.unflushed.len() + 1);
        objects.flush(own, end).map(drop)
    }

    fn take_late(&self, own: Opened, offset: u64, data: ChecksummedData) {
        let shared = self.shared.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LATE).await;
            let mut objects = shared.objects();
            if objects.append(&own, offset, &data.content).is_ok()
                && let Ok(end) = objects.end(&own)
            {
                // It is late: no client waits for the outcome.
                let _ = objects.flush(&own, end);
            }
        });
    }

    fn begin_flush(
        &self,
        own: &Opened,
        message: &BidiWriteObjectRequest,
        flushes: &mut VecDeque<Flush>,
        last: Instant,
    ) -> Result<Instant, Status> {
        let bytes = message.checksummed_data.as_ref().map_or(0, |data| data.content.len());
        let latency = self.shared.options.latency;
        let takes = self.shared.flush_time(bytes);
        let due = (Instant::now() + takes).max(last + latency.between_flushes());
        self.shared.count("flushes");
        let end = self.shared.objects().end(own)?;
        flushes.push_back(Flush { due, end, answers: message.state_lookup });
        Ok(due)
    }

    fn end_flush(&self, own: &Opened, flush: Option<Flush>, is_first: &mut bool) -> Result<(), Status> {
        let Some(flush) = flush else { return Ok(()) };
        self.shared.objects().flush(own, flush.end)?;
        if flush.answers { self.answer(own, is_first) } else { Ok(()) }
    }

    /// Says how much is durable; the first time with the whole description.
    fn answer(&self, own: &Opened, is_first: &mut bool) -> Result<(), Status> {
        let mut objects = self.shared.objects();
        let reports_all = objects.makes(RapidMistake::UnflushedReported);
        let object = objects.of_stream(own)?;
        let unflushed = if reports_all { object.unflushed.len() } else { 0 };
        let size = object.durable.len() + unflushed;
        let status = match std::mem::replace(is_first, false) {
            true => WriteStatus::Resource(object.describe(&own.key, &self.shared.options.bucket, size)),
            false => WriteStatus::PersistedSize(size as i64),
        };
        let (write_status, write_handle) = (Some(status), Some(handle_of(own)));
        let _ = self.answers.send(Ok(BidiWriteObjectResponse { write_status, write_handle }));
        Ok(())
    }

    async fn finalize(&self, own: &Opened, message: &BidiWriteObjectRequest) -> Result<(), Status> {
        let offset = u64::try_from(message.write_offset).unwrap_or(0);
        let wait = self.shared.open_time();
        self.shared.rest(wait).await;
        match self.shared.draw(RapidStep::Finalize) {
            Some(RapidFault::Before) => return Err(lost()),
            Some(RapidFault::Deny) => return Err(self.shared.denied()),
            Some(RapidFault::Late) => {
                let (shared, own) = (self.shared.clone(), own.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(LATE).await;
                    // No client waits for the outcome.
                    let _ = shared.objects().finalize(&own, offset);
                });
                return Err(lost());
            }
            Some(_) => {
                self.shared.objects().finalize(own, offset)?;
                return Err(lost());
            }
            None => {}
        }
        let mut objects = self.shared.objects();
        let size = objects.finalize(own, offset)?;
        let object = objects.all.get(&own.key).ok_or_else(|| absent(&own.key))?;
        let status = WriteStatus::Resource(object.describe(&own.key, &self.shared.options.bucket, size));
        let (write_status, write_handle) = (Some(status), None);
        let _ = self.answers.send(Ok(BidiWriteObjectResponse { write_status, write_handle }));
        Ok(())
    }
}

/// Returns the answer that sends a stream elsewhere.
fn redirect(created: Option<&Opened>) -> Status {
    let error = BidiWriteObjectRedirectedError {
        routing_token: Some("elsewhere".into()),
        write_handle: created.map(handle_of),
        generation: created.map(|own| own.generation),
    };
    redirected("BidiWriteObjectRedirectedError", &error)
}

/// Returns `ABORTED` with a detail.
pub(super) fn redirected(name: &str, detail: &impl Message) -> Status {
    let (code, message) = (Code::Aborted as i32, "the object is elsewhere".to_string());
    let any = Any {
        type_url: format!("type.googleapis.com/google.storage.v2.{name}"),
        value: detail.encode_to_vec().into(),
    };
    let status = RpcStatus { code, message: message.clone(), details: vec![any] };
    Status::with_details(Code::Aborted, message, status.encode_to_vec().into())
}
