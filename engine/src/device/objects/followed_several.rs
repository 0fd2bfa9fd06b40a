//! The log for a reader beside its writer, in several buckets: the blocks that a majority has.
//!
//! ```text
//!   bucket 1    1 2 3 4 5 6        6 blocks without a gap
//!   bucket 2    1 2 3 4 . 6        4 blocks
//!   bucket 3    1 2                slow: what its last answer said
//!
//!   4 blocks count. A takeover that does not reach bucket 1 discards block 5.
//! ```
//!
//! 1. A block counts when a majority of the buckets has the block and all lower ones (O38). A
//!    takeover fences a majority and takes what the longest of these buckets has (O32), so one of
//!    them has the block. A bucket that was emptied gets all blocks that were sent before it counts
//!    again (O35).
//! 2. A manifest counts when a majority has accepted it: that is what a later claim continues from.
//!    If no manifest is known to be accepted, the last one that was stays the newest.
//! 3. A bucket is used if its register is its own in this database, and not older than what the
//!    bucket has confirmed. When its identity changes, what it had is forgotten.
//! 4. Each bucket is asked for itself. A bucket that does not answer is not asked again before it
//!    does, and delays nothing.
//! 5. Of a segment that a takeover has ended, the manifest says what counts (O34): the same blocks,
//!    under other names.

use super::body::{Body, MANIFEST_NAME, ObjectId, SegmentEntry};
use super::buckets::{Bucket, Buckets, Known, Record, Standing, most_frequent};
use super::fence::accepted_parts;
use super::followed::{BLOCKS_TOGETHER, IDLE_LOOKS, another_database};
use super::frame::is_fence;
use super::numbered::{block_name, number_of};
use super::patience::place;
use super::register::no_database;
use super::request::{Failure, FailureKind, Request};
use super::segment_reader::{Part, SegmentReader};
use super::store::{Done, ObjectStore, Outcome};
use crate::base::clock::{Clock, Nanos};
use crate::base::planted::{self, Bug};
use crate::base::{Error, ErrorKind, Result, SegmentId};
use crate::device::{FollowedLog, LogPosition, NewBytes, path_of};
use crate::sync::{Event, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The longest time that a look waits for a majority.
const LOOK_MAX: Duration = Duration::from_secs(10);
/// How long a look waits for the other buckets if a majority does not agree.
const AGREE_MAX: Duration = Duration::from_millis(200);

/// What is asked of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question {
    Manifest,
    /// All blocks of a segment.
    Blocks(ObjectId),
    /// One block, by its number.
    Block(ObjectId, u64),
}

impl Question {
    fn request(self) -> Request {
        match self {
            Question::Manifest => Request::Get { name: MANIFEST_NAME.into(), range: None },
            Question::Blocks(id) => Request::List { prefix: format!("{}/", id.log_name()) },
            Question::Block(id, number) => Request::Head { name: block_name(id, number) },
        }
    }
}

/// An answer of a bucket.
struct Answer {
    bucket: usize,
    /// The turn of the bucket when it was asked.
    turn: u32,
    question: Question,
    outcome: Outcome,
}

/// The answers that were not looked at yet.
#[derive(Default)]
struct Answers {
    all: Mutex<Vec<Answer>>,
    came: Event,
}

/// Adds an answer when it is dropped, with or without an outcome.
struct Expected {
    answers: Arc<Answers>,
    answer: Option<Answer>,
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.answers.all.lock().extend(self.answer.take());
        self.answers.came.notify_all();
    }
}

/// How far a segment was read in a bucket.
#[derive(Clone, Copy, Default, Debug)]
struct Series {
    /// Its blocks were listed once.
    is_listed: bool,
    /// Blocks without a gap.
    blocks: u64,
    /// The last question has found all that it asked for.
    is_growing: bool,
    /// A fence follows: nothing more will come.
    has_ended: bool,
}

/// One of the buckets.
#[derive(Default)]
struct Followed {
    /// Answers that are missing.
    owed: usize,
    /// Rises when what the bucket had is forgotten.
    turn: u32,
    /// Its register, as it was read last, and whether that was for the present look.
    record: Option<Record>,
    is_fresh: bool,
    /// Rule 3.
    is_used: bool,
    series: BTreeMap<ObjectId, Series>,
    /// Why the last question has no answer.
    failure: Option<Failure>,
}

/// A segment, and what was returned of it.
struct FollowedSegment {
    entry: SegmentEntry,
    /// Lengths of blocks that some bucket has, above those that were returned.
    lens: BTreeMap<u64, u64>,
    /// Blocks that were returned, and their bytes.
    returned: u64,
    returned_bytes: u64,
    /// Looks since something came.
    idle: u32,
}

/// See the module's text.
pub(super) struct SpreadLog {
    buckets: Buckets,
    patience: Duration,
    clock: Clock,
    answers: Arc<Answers>,
    all: Vec<Followed>,
    segments: BTreeMap<ObjectId, FollowedSegment>,
    /// The newest body that a majority has accepted.
    newest: Option<Body>,
    /// What was found of ended segments, and not returned yet.
    found: Vec<NewBytes>,
}

impl std::fmt::Debug for SpreadLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpreadLog").field("buckets", &self.buckets).finish_non_exhaustive()
    }
}

impl SpreadLog {
    /// Returns one that knows nothing. `buckets` are its own: what it finds out about them is for
    /// its reads only.
    pub(super) fn new(buckets: Buckets, patience: Duration) -> SpreadLog {
        let all = buckets.all().iter().map(|_| Followed::default()).collect();
        let (answers, clock) = (Arc::default(), Clock::real());
        let (segments, newest, found) = (BTreeMap::new(), None, Vec::new());
        SpreadLog { buckets, patience, clock, answers, all, segments, newest, found }
    }

    /// Asks each bucket that owes no answer what `ask` returns for it, and waits until `needed` of
    /// them have answered, for at most `most`. Nothing to ask counts as an answer.
    fn look(
        &mut self,
        needed: usize,
        most: Duration,
        ask: &dyn Fn(&SpreadLog, usize) -> Vec<Question>,
    ) -> Result<()> {
        let until = Nanos(self.clock.now().0.saturating_add(most.as_nanos() as u64));
        let mut asked = vec![false; self.all.len()];
        loop {
            let ticket = self.answers.came.ticket();
            self.take_answers();
            for (bucket, asked) in asked.iter_mut().enumerate() {
                if self.all[bucket].owed == 0 && !std::mem::replace(asked, true) {
                    let questions = ask(self, bucket);
                    self.send(bucket, &questions);
                }
            }
            let is_free = |bucket: &usize| asked[*bucket] && self.all[*bucket].owed == 0;
            let free: Vec<usize> = (0..self.all.len()).filter(is_free).collect();
            let answered = free.iter().filter(|bucket| self.all[**bucket].failure.is_none()).count();
            if answered >= needed {
                return Ok(());
            }
            let now = self.clock.now();
            if free.len() == self.all.len() || now >= until {
                return Err(self.too_few(answered, needed));
            }
            self.answers.came.wait(ticket, Some(until.since(now)));
        }
    }

    fn send(&mut self, bucket: usize, questions: &[Question]) {
        let followed = &mut self.all[bucket];
        (followed.owed, followed.failure) = (questions.len(), None);
        for &question in questions {
            let what = "the bucket has not answered".into();
            let outcome = Err(Failure { kind: FailureKind::Unknown, what });
            let answer = Some(Answer { bucket, turn: followed.turn, question, outcome });
            let mut expected = Expected { answers: self.answers.clone(), answer };
            let done: Done = Box::new(move |outcome| {
                if let Some(answer) = &mut expected.answer {
                    answer.outcome = outcome;
                }
            });
            self.buckets.all()[bucket].store.start(question.request(), done);
        }
    }

    fn too_few(&self, answered: usize, needed: usize) -> Error {
        let failure = self.all.iter().find_map(|bucket| bucket.failure.as_ref());
        let why = failure.map_or("the others have not answered", |failure| &failure.what);
        let what = format!("{answered} of {} buckets answer, and {needed} are needed: {why}", self.all.len());
        Error::new(ErrorKind::Io, what)
    }

    /// Notes what the buckets have answered.
    fn take_answers(&mut self) {
        let mut answers = std::mem::take(&mut *self.answers.all.lock());
        // Blocks in their order.
        answers.sort_by_key(|answer| match answer.question {
            Question::Block(_, number) => number,
            Question::Manifest | Question::Blocks(_) => 0,
        });
        for Answer { bucket, turn, question, outcome } in answers {
            self.all[bucket].owed -= 1;
            if turn == self.all[bucket].turn {
                self.note(bucket, question, outcome);
            }
        }
    }

    fn note(&mut self, bucket: usize, question: Question, outcome: Outcome) {
        let SpreadLog { all, segments, .. } = self;
        let followed = &mut all[bucket];
        let reply = match (outcome, question) {
            (Ok(reply), _) => Some(reply),
            (Err(failure), Question::Manifest | Question::Block(..))
                if failure.kind == FailureKind::Absent =>
            {
                None
            }
            (Err(failure), _) => return followed.failure = Some(failure),
        };
        let id = match question {
            Question::Manifest => {
                let record = reply.map(|reply| Record::decode(&reply.body));
                followed.is_fresh = true;
                followed.record = match record.transpose() {
                    Ok(record) => record,
                    Err(error) => {
                        let what = error.to_string();
                        followed.failure = Some(Failure { kind: FailureKind::Denied, what });
                        None
                    }
                };
                return;
            }
            Question::Blocks(id) | Question::Block(id, _) => id,
        };
        let (Some(segment), Some(series)) = (segments.get_mut(&id), followed.series.get_mut(&id)) else {
            return;
        };
        match (question, reply) {
            (Question::Block(_, number), Some(reply)) => series.add(segment, number, reply.len),
            (Question::Blocks(_), Some(reply)) => {
                let number = |name: &str| number_of(&id.log_name(), name);
                let listed =
                    reply.listed.iter().filter_map(|object| Some((number(&object.name)?, object.len)));
                series.is_listed = true;
                listed.collect::<BTreeMap<u64, u64>>().into_iter().for_each(|(number, len)| {
                    series.add(segment, number, len);
                });
            }
            _ => series.is_growing = false,
        }
    }

    /// Returns the registers that were read for the present look.
    fn fresh(&self) -> impl Iterator<Item = (usize, &Record)> {
        let fresh = self.all.iter().enumerate().filter(|(_, followed)| followed.is_fresh);
        fresh.filter_map(|(bucket, followed)| Some((bucket, followed.record.as_ref()?)))
    }

    /// Returns the identity of the database that is followed, or of the one that most buckets have.
    ///
    /// # Errors
    /// `NotFound` if there is none any more; `InvalidArgument` if another one has taken its place.
    fn identity(&self) -> Result<u64> {
        let identities = || self.fresh().map(|(_, record)| record.body.identity);
        let found = most_frequent(identities()).ok_or_else(no_database)?;
        let Some(newest) = &self.newest else { return Ok(found) };
        match identities().any(|identity| identity == newest.identity) {
            true => Ok(newest.identity),
            false => Err(another_database()),
        }
    }

    /// Rule 3: finds out which buckets are used.
    ///
    /// # Errors
    /// `InvalidArgument` if the database has other buckets; `Io` if too few are used.
    fn check_buckets(&mut self, identity: u64) -> Result<()> {
        let ours =
            |followed: &Followed| followed.record.clone().filter(|record| record.body.identity == identity);
        let records: Vec<Option<Record>> = self.all.iter().map(ours).collect();
        let newest = records.iter().flatten().max_by_key(|record| record.turn());
        let members = newest.map(|newest| newest.members.clone()).unwrap_or_default();
        self.buckets.are_given(&members).map_err(|what| {
            Error::invalid(what).with_advice("open the standby again with the buckets of the database")
        })?;
        let known = Known { identity: Some(identity), members };
        for (bucket, record) in records.iter().enumerate() {
            let is_fresh = self.all[bucket].is_fresh;
            // A register that was read earlier may have been replaced since.
            let is_kept = |record: &Record| {
                let member = self.buckets.check(bucket, record, &known);
                member.is_ok_and(|member| !is_fresh || member.confirmed <= record.turn())
            };
            self.all[bucket].set_used(&self.buckets.all()[bucket], record.as_ref().is_some_and(is_kept));
        }
        let (used, needed) =
            (self.all.iter().filter(|followed| followed.is_used).count(), self.buckets.quorum());
        if used < needed {
            let what = format!(
                "{used} of {} buckets hold the newest manifest, and {needed} are needed",
                self.all.len()
            );
            return Err(Error::new(ErrorKind::Io, what).at(place(MANIFEST_NAME, 0)));
        }
        Ok(())
    }

    /// Returns the newest body that a majority is known to have accepted, of those that were read.
    fn accepted(&self, identity: u64) -> Option<Body> {
        let ours = |(bucket, record): &(usize, &Record)| {
            self.all[*bucket].is_used && record.body.identity == identity
        };
        let records: Vec<&Record> = self.fresh().filter(ours).map(|(_, record)| record).collect();
        let is_accepted = |record: &&&Record| {
            let Body { epoch, nonce, generation, .. } = &record.body;
            let of_writer =
                || records.iter().filter(|other| (&other.body.epoch, &other.body.nonce) == (epoch, nonce));
            // A writer puts a body when the one before is accepted.
            of_writer().filter(|other| other.body.generation == *generation).count() >= self.buckets.quorum()
                || of_writer().any(|other| other.body.generation > *generation)
        };
        let accepted = records.iter().filter(is_accepted).max_by_key(|record| record.turn());
        accepted.map(|record| record.body.clone())
    }

    /// Notes the segments of a body, and finds what counts of those that have ended.
    fn note_segments(&mut self, body: &Body) -> Result<()> {
        let named: BTreeMap<ObjectId, &SegmentEntry> =
            body.segments.iter().flat_map(|entry| entry.ids().map(move |id| (id, entry))).collect();
        self.segments.retain(|id, _| named.contains_key(id));
        self.all.iter_mut().for_each(|followed| followed.series.retain(|id, _| named.contains_key(id)));
        for (id, entry) in named {
            let segment = self.segments.entry(id).or_insert_with(|| FollowedSegment::new(entry));
            if segment.entry.accepted.is_some() {
                continue;
            }
            if entry.accepted.is_some() {
                let parts = accepted_parts(&self.buckets, entry, self.patience)?.parts;
                let rest = rest_of(parts, segment.returned_bytes).ok_or_else(|| {
                    let what =
                        "a takeover has discarded blocks of the log that a majority of the buckets had";
                    Error::corruption(what).at(place(&id.log_name(), segment.returned_bytes))
                })?;
                let of_segment = |part: &Part| number_of(&id.log_name(), &part.name).is_some();
                let (blocks, tails): (Vec<Part>, Vec<Part>) = rest.into_iter().partition(of_segment);
                let last = blocks.last().and_then(|part| number_of(&id.log_name(), &part.name));
                let number = SegmentId(entry.number);
                if let Some(at) = last {
                    let position = LogPosition { part: id.log_name(), at };
                    self.found.push(bytes_of(&self.buckets, self.patience, number, position, blocks));
                }
                for part in tails {
                    let position = LogPosition { part: part.name.clone(), at: part.range.end };
                    self.found.push(bytes_of(&self.buckets, self.patience, number, position, vec![part]));
                }
            }
            segment.entry = entry.clone();
        }
        Ok(())
    }

    /// Returns what is to be asked of a bucket about the segments that are written.
    fn questions(&self, bucket: usize, all: bool) -> Vec<Question> {
        let followed = &self.all[bucket];
        let is_asked = |(_, segment): &(&ObjectId, &FollowedSegment)| {
            let is_active = all || segment.idle < IDLE_LOOKS || segment.is_blank();
            segment.entry.accepted.is_none() && is_active
        };
        let asked = self.segments.iter().filter(|one| followed.is_used && is_asked(one));
        let questions = asked.flat_map(|(id, _)| match followed.series.get(id) {
            Some(series) if series.has_ended => Vec::new(),
            Some(series) if series.is_listed => vec![Question::Block(*id, series.blocks + 1)],
            _ => vec![Question::Blocks(*id)],
        });
        questions.collect()
    }

    /// Returns what is to be asked of a bucket where the last question found something.
    fn more_questions(&self, bucket: usize) -> Vec<Question> {
        let growing = self.all[bucket].series.iter().filter(|(_, series)| series.is_growing);
        let numbers = |series: &Series| series.blocks + 1..=series.blocks + BLOCKS_TOGETHER;
        growing.flat_map(|(id, series)| numbers(series).map(|number| Question::Block(*id, number))).collect()
    }

    /// Returns how many blocks of a segment are in a majority, without a gap.
    fn blocks(&self, id: ObjectId) -> u64 {
        let used = self.all.iter().filter(|followed| followed.is_used);
        let mut blocks: Vec<u64> =
            used.map(|followed| followed.series.get(&id).map_or(0, |series| series.blocks)).collect();
        blocks.sort_unstable_by(|a, b| b.cmp(a));
        let needed = if planted::is(Bug::MinorityFollowed) { 1 } else { self.buckets.quorum() };
        blocks.get(needed - 1).copied().unwrap_or(0)
    }

    /// Returns what was found and not returned yet.
    fn take_found(&mut self) -> Vec<NewBytes> {
        let ids: Vec<(ObjectId, u64)> = self.segments.keys().map(|id| (*id, self.blocks(*id))).collect();
        for (id, blocks) in ids {
            let Some(segment) = self.segments.get_mut(&id).filter(|segment| segment.returned < blocks) else {
                continue;
            };
            let rest = segment.lens.split_off(&(blocks + 1));
            let lens = std::mem::replace(&mut segment.lens, rest);
            (segment.idle, segment.returned) = (0, blocks);
            segment.returned_bytes += lens.values().sum::<u64>();
            let part = |(number, len)| Part { name: block_name(id, number), range: 0..len };
            let parts: Vec<Part> = lens.into_iter().map(part).collect();
            let (number, position) =
                (SegmentId(segment.entry.number), LogPosition { part: id.log_name(), at: blocks });
            self.found.push(bytes_of(&self.buckets, self.patience, number, position, parts));
        }
        std::mem::take(&mut self.found)
    }
}

impl Followed {
    /// Uses the bucket, or forgets what it had.
    fn set_used(&mut self, bucket: &Bucket, is_used: bool) {
        match bucket.standing() {
            Standing::Unknown if is_used => bucket.count(),
            Standing::Excluded { .. } if is_used => bucket.joined(),
            Standing::Counted if !is_used => {
                bucket.exclude("its manifest is gone, or not the newest one", true)
            }
            _ => {}
        }
        if self.is_used && !is_used {
            self.turn += 1;
            self.series.clear();
        }
        self.is_used = is_used;
    }
}

impl Series {
    /// Notes a block, or a fence, if it is the next one.
    fn add(&mut self, segment: &mut FollowedSegment, number: u64, len: u64) {
        self.is_growing = number == self.blocks + 1 && !is_fence(len);
        if self.is_growing {
            self.blocks = number;
            if number > segment.returned {
                segment.lens.insert(number, len);
            }
        } else if number == self.blocks + 1 {
            self.has_ended = true;
        }
    }
}

impl FollowedSegment {
    fn new(entry: &SegmentEntry) -> FollowedSegment {
        let entry = SegmentEntry { accepted: None, ..entry.clone() };
        FollowedSegment { entry, lens: BTreeMap::new(), returned: 0, returned_bytes: 0, idle: 0 }
    }

    fn is_blank(&self) -> bool {
        self.returned == 0 && self.lens.is_empty()
    }
}

fn bytes_of(
    buckets: &Buckets,
    patience: Duration,
    segment: SegmentId,
    position: LogPosition,
    parts: Vec<Part>,
) -> NewBytes {
    let store: Arc<dyn ObjectStore> = Arc::new(buckets.clone());
    let file = Arc::new(SegmentReader { store, path: path_of(segment), parts, patience });
    NewBytes { segment, position, file }
}

/// Returns the parts without their first `bytes` bytes; `None` if they are shorter.
fn rest_of(parts: Vec<Part>, bytes: u64) -> Option<Vec<Part>> {
    let (mut rest, mut left) = (Vec::new(), bytes);
    for part in parts {
        let skipped = left.min(part.len());
        left -= skipped;
        let range = part.range.start + skipped..part.range.end;
        rest.extend((!range.is_empty()).then_some(Part { range, ..part }));
    }
    (left == 0).then_some(rest)
}

impl FollowedLog for SpreadLog {
    fn read_manifest(&mut self) -> Result<Vec<u8>> {
        self.all.iter_mut().for_each(|followed| followed.is_fresh = false);
        let ask: &dyn Fn(&SpreadLog, usize) -> Vec<Question> = &|_, _| vec![Question::Manifest];
        self.look(self.buckets.quorum(), self.patience.min(LOOK_MAX), ask)?;
        let identity = self.identity()?;
        self.check_buckets(identity)?;
        let mut accepted = self.accepted(identity);
        if accepted.is_none() {
            // One is being put, perhaps. A bucket that does not answer is known by now.
            let _ = self.look(self.all.len(), self.patience.min(AGREE_MAX), ask);
            self.check_buckets(identity)?;
            accepted = self.accepted(identity);
        }
        let is_new = |body: &Body| {
            let turn = |body: &Body| (body.epoch, body.generation);
            self.newest.as_ref().is_none_or(|newest| turn(newest) < turn(body))
        };
        // The first body of a database that is being created has no contents.
        if let Some(body) = accepted.filter(|body| is_new(body) && !body.contents.is_empty()) {
            self.note_segments(&body)?;
            self.newest = Some(body);
        }
        let unknown = || {
            let what = "no manifest is known to be in a majority of the buckets";
            Error::new(ErrorKind::Busy, what).with_advice("try again when a writer has opened the database")
        };
        self.newest.as_ref().map(|newest| newest.contents.to_vec()).ok_or_else(unknown)
    }

    fn poll(&mut self, all: bool) -> Result<Vec<NewBytes>> {
        let is_active = |segment: &FollowedSegment| segment.entry.accepted.is_none();
        for segment in self.segments.values_mut().filter(|segment| is_active(segment)) {
            segment.idle = segment.idle.saturating_add(1);
        }
        let (quorum, most) = (self.buckets.quorum(), self.patience.min(LOOK_MAX));
        let ids: Vec<ObjectId> =
            self.segments.iter().filter(|(_, segment)| is_active(segment)).map(|(id, _)| *id).collect();
        for followed in self.all.iter_mut().filter(|followed| followed.is_used) {
            for id in &ids {
                followed.series.entry(*id).or_default();
            }
        }
        self.look(quorum, most, &|log, bucket| log.questions(bucket, all))?;
        let has_more = |log: &SpreadLog| {
            (0..log.all.len())
                .any(|bucket| log.all[bucket].owed == 0 && !log.more_questions(bucket).is_empty())
        };
        while has_more(self) {
            self.look(quorum, most, &|log, bucket| log.more_questions(bucket))?;
        }
        Ok(self.take_found())
    }
}
