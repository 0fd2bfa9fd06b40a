//! Streams of reads, lists and deletes.

use super::appends::redirected;
use super::faults::{RapidFault, RapidStep};
use super::objects::absent;
use super::shared::Shared;
use quenchdb::internals::device::objects::rapid::{
    BidiReadObjectRedirectedError, BidiReadObjectRequest, BidiReadObjectResponse, ChecksummedData,
    DATA_BYTES_MAX, DeleteObjectRequest, Empty, GetObjectRequest, ListObjectsRequest, ListObjectsResponse,
    Object, ObjectRangeData, ReadRange,
};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;
use tonic::{Status, Streaming};

/// Objects of a part of a list.
const PAGE: usize = 100;

fn lost() -> Status {
    Status::unavailable("the emulator has lost the answer")
}

impl Shared {
    /// Answers a stream of reads.
    pub async fn read(
        self: Arc<Self>,
        token: Option<String>,
        mut messages: Streaming<BidiReadObjectRequest>,
        answers: UnboundedSender<Result<BidiReadObjectResponse, Status>>,
    ) {
        let mut about = None;
        while let Ok(Some(message)) = messages.message().await {
            let answered = self.answer_read(&mut about, token.as_deref(), message, &answers).await;
            if let Err(status) = answered {
                // The client may have gone.
                let _ = answers.send(Err(status));
                return;
            }
        }
    }

    async fn answer_read(
        &self,
        about: &mut Option<(String, i64)>,
        token: Option<&str>,
        message: BidiReadObjectRequest,
        answers: &UnboundedSender<Result<BidiReadObjectResponse, Status>>,
    ) -> Result<(), Status> {
        if let Some(spec) = message.read_object_spec {
            self.check_bucket(&spec.bucket)?;
            let wait = self.read_time();
            self.rest(wait).await;
            match self.draw(RapidStep::Read) {
                Some(RapidFault::Redirect) if token.is_none() => {
                    let routing_token = Some("elsewhere".into());
                    let error = BidiReadObjectRedirectedError { read_handle: None, routing_token };
                    return Err(redirected("BidiReadObjectRedirectedError", &error));
                }
                Some(RapidFault::Throttle) => return Err(Status::resource_exhausted("too many reads")),
                Some(RapidFault::Deny) => return Err(self.denied()),
                Some(RapidFault::Redirect) | None => {}
                Some(_) => return Err(lost()),
            }
            let metadata = Some(self.describe(&spec.object, spec.generation)?);
            let (object_data_ranges, object) = (Vec::new(), spec.object.clone());
            let _ = answers.send(Ok(BidiReadObjectResponse { metadata, object_data_ranges }));
            *about = Some((object, spec.generation));
        }
        let Some((key, generation)) = about else {
            return Err(Status::invalid_argument("the first message names no object"));
        };
        for range in message.read_ranges {
            self.send_range(key, *generation, range, answers)?;
        }
        Ok(())
    }

    fn send_range(
        &self,
        key: &str,
        generation: i64,
        range: ReadRange,
        answers: &UnboundedSender<Result<BidiReadObjectResponse, Status>>,
    ) -> Result<(), Status> {
        let bytes = {
            let objects = self.objects();
            let object = objects.all.get(key).filter(|object| [0, object.generation].contains(&generation));
            object.ok_or_else(|| absent(key))?.durable.clone().freeze()
        };
        let start = usize::try_from(range.read_offset).unwrap_or(usize::MAX);
        if start >= bytes.len() {
            return Err(Status::out_of_range(format!("the object has {} bytes", bytes.len())));
        }
        let len = match range.read_length {
            0 => usize::MAX,
            len => usize::try_from(len).unwrap_or(0),
        };
        let end = start.saturating_add(len).min(bytes.len());
        let mut at = start;
        while at < end {
            let to = end.min(at + DATA_BYTES_MAX);
            let checksummed_data = Some(ChecksummedData::new(bytes.slice(at..to)));
            let (read_offset, read_length) = (at as i64, (to - at) as i64);
            let read_range = Some(ReadRange { read_offset, read_length, ..range });
            let piece = ObjectRangeData { checksummed_data, read_range, range_end: to == end };
            let answer = BidiReadObjectResponse { metadata: None, object_data_ranges: vec![piece] };
            let _ = answers.send(Ok(answer));
            at = to;
        }
        Ok(())
    }

    /// Returns the description that a stream of reads shows: with the right length.
    fn describe(&self, key: &str, generation: i64) -> Result<Object, Status> {
        let objects = self.objects();
        let object = objects.all.get(key).filter(|object| [0, object.generation].contains(&generation));
        let object = object.ok_or_else(|| absent(key))?;
        Ok(object.describe(key, &self.options.bucket, object.durable.len()))
    }

    /// Returns a description with a length that is old, unless the object is finalized.
    pub fn get_object(&self, request: &GetObjectRequest) -> Result<Object, Status> {
        self.check_bucket(&request.bucket)?;
        let object = self.describe(&request.object, request.generation)?;
        Ok(self.stale(object))
    }

    fn stale(&self, object: Object) -> Object {
        match object.finalize_time {
            None if !self.options.as_testbench => Object { size: 0, ..object },
            _ => object,
        }
    }

    /// Returns a part of a list.
    pub async fn list(&self, request: &ListObjectsRequest) -> Result<ListObjectsResponse, Status> {
        self.check_bucket(&request.parent)?;
        let wait = self.read_time();
        self.rest(wait).await;
        match self.draw(RapidStep::List) {
            Some(RapidFault::Throttle) => return Err(Status::resource_exhausted("too many lists")),
            Some(RapidFault::Deny) => return Err(self.denied()),
            Some(_) => return Err(lost()),
            None => {}
        }
        let objects = self.objects();
        let from = objects.all.range(request.prefix.clone()..);
        let all = from.take_while(|(key, _)| key.starts_with(&request.prefix));
        let mut rest = all.filter(|(key, _)| **key > request.page_token || request.page_token.is_empty());
        let describe = |(key, object): (&String, &super::objects::Stored)| {
            self.stale(object.describe(key, &self.options.bucket, object.durable.len()))
        };
        let page: Vec<Object> = rest.by_ref().take(PAGE).map(describe).collect();
        let next_page_token = match rest.next() {
            Some(_) => page.last().map(|object| object.name.clone()).unwrap_or_default(),
            None => String::new(),
        };
        Ok(ListObjectsResponse { objects: page, next_page_token })
    }

    /// Removes an object.
    pub async fn delete(&self, request: &DeleteObjectRequest) -> Result<Empty, Status> {
        self.check_bucket(&request.bucket)?;
        let wait = self.read_time();
        self.rest(wait).await;
        let fault = self.draw(RapidStep::Delete);
        match fault {
            Some(RapidFault::Throttle) => return Err(Status::resource_exhausted("too many deletes")),
            Some(RapidFault::Deny) => return Err(self.denied()),
            Some(RapidFault::Before) => return Err(lost()),
            _ => {}
        }
        let removed = self.objects().delete(&request.object);
        match fault {
            Some(_) => Err(lost()),
            None => removed.map(|()| Empty {}),
        }
    }
}
