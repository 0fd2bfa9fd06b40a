//! A log: buffers that are filled, sealed into blocks, written by the commit layer, and completed.
//!
//! ```text
//!    append           seal                    (commit layer writes)        complete
//!   ───────▶ FILLING ─────▶ SEALED: sequence, place ──────────▶ COMPLETED ───────▶ buffer free
//!                                  in flight                    │
//!                                  └─ durable frontier: end of the gap-free prefix of COMPLETED
//! ```
//!
//! A peer may *carry* what a log holds: it becomes a block of its owner, with the owner's next
//! sequence, and its place is in the peer's segment, behind the peer's own block, so that one write
//! takes both.
//!
//! 1. `reserve` guarantees the room for a record in the filling buffer *and* the place on the
//!    device for the block that will hold it, so that neither `append` nor `seal` can fail.
//! 2. A block gets its sequence and place when it is sealed, under the latch: sequence order is
//!    position order.
//! 3. Records appended while blocks are in flight go to another buffer: nothing that was handed out
//!    is read again.
//! 4. What is in flight is counted by sequences, never by comparing positions: full and empty
//!    cannot look alike.
//! 5. A segment is retired with the highest CSN of any block in it, carried ones included: no
//!    checkpoint below frees it.
//!
//! Another medium than ordinary memory ([`super::medium`]) may make a record durable before its
//! block is completed; the frontier then passes records, not blocks. A record that brought its own
//! buffer is in ordinary memory: only its block makes it durable, and nothing behind it in the log
//! is durable before it.

use super::block::{BLOCK_HEADER_BYTES, BlockHeader, block_bytes};
use super::buffer_size::BufferSize;
use super::medium::{Fenced, Medium, Ordinary, Place};
use super::parking::{PLACES, ParkingLot};
use super::record::{RecordHeader, record_bytes};
use super::sealed::SealedBlock;
use super::segment::{OpenBlock, OpenBlocks, Segment, SegmentPool};
use crate::base::planted::{self, Bug};
use crate::base::{Account, Csn, DatabaseId, Epoch, LogId, SegmentId};
use crate::device::{AlignedBuffer, File, SECTOR_BYTES};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::consolidation::Latch;
use crate::sync::{Mutex, MutexGuard};
use std::sync::Arc;

/// Buffers of one log: one is filled while the others are in flight.
pub const BUFFERS: usize = 4;

/// True if a record may be appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserve {
    /// Yes, and `append` cannot fail.
    Ready,
    /// All buffers are full, or the block would be longer than a segment: have blocks written
    /// first.
    BuffersFull,
    /// There is no segment for the next block: wait for one.
    NoSegment,
    /// The record is larger than a buffer: bring one of its own.
    NeedsLargeBuffer,
}

#[derive(Debug)]
struct Filling {
    buffer: AlignedBuffer,
    /// Bytes used, the block header included.
    used: usize,
    records: u32,
    first_csn: Csn,
    last_csn: Csn,
    place: Place,
}

impl Filling {
    fn new(buffer: AlignedBuffer, place: Place) -> Filling {
        Filling {
            buffer,
            used: BLOCK_HEADER_BYTES,
            records: 0,
            first_csn: Csn::ZERO,
            last_csn: Csn::ZERO,
            place,
        }
    }
}

#[derive(Debug)]
struct Active {
    segment: Segment,
    offset: u64,
    max_csn: Csn,
    open: OpenBlocks,
}

impl Active {
    fn new(segment: Segment) -> Active {
        Active { offset: 0, max_csn: Csn::ZERO, open: OpenBlocks::of(&segment), segment }
    }

    fn has_room(&self, len: usize) -> bool {
        self.offset + len as u64 <= self.segment.len
    }

    /// Gives the next `len` bytes to a block that ends with `last_csn`.
    fn place(&mut self, len: usize, last_csn: Csn) -> InSegment {
        debug_assert!(self.has_room(len), "a block lies in its segment");
        debug_assert!(
            self.offset.is_multiple_of(SECTOR_BYTES as u64) && len.is_multiple_of(SECTOR_BYTES),
            "no sector is written twice"
        );
        let (file, segment) = (self.segment.file.clone(), self.segment.id);
        let place = InSegment { file, segment, offset: self.offset, open: self.open.open() };
        self.offset += len as u64;
        self.max_csn = self.max_csn.max(last_csn);
        place
    }
}

/// The place of a block in a segment.
struct InSegment {
    file: Arc<dyn File>,
    segment: SegmentId,
    offset: u64,
    open: OpenBlock,
}

#[derive(Debug)]
struct State {
    filling: Option<Filling>,
    free: Vec<AlignedBuffer>,
    /// Buffers that exist, wherever they are; large ones are not counted.
    buffers: usize,
    size: BufferSize,
    active: Option<Active>,
    next_segment: Option<Segment>,
    next_sequence: u64,
    last_sealed_csn: Csn,
    in_flight: ParkingLot,
    /// The last CSN in the gap-free prefix of completed blocks.
    completed_csn: Csn,
    medium: Box<dyn Medium>,
}

/// One log. Many threads may append; the commit layer writes the blocks.
#[derive(Debug)]
pub struct Log {
    id: LogId,
    database: DatabaseId,
    epoch: Epoch,
    /// The most that a buffer has.
    buffer_bytes_most: usize,
    segments: Arc<SegmentPool>,
    /// Pays for the buffers.
    memory: Arc<Account>,
    /// Length of the next buffer. Written under the latch.
    buffer_bytes: AtomicUsize,
    /// Bytes appended and not sealed. Written under the latch.
    unsealed: AtomicUsize,
    /// Every record up to it is durable. Written under the latch, read by acknowledgers.
    durable: AtomicU64,
    state: Mutex<State>,
}

impl Log {
    /// An empty log of `epoch`. Buffers, charged to `memory`, and segments are taken when they are
    /// needed.
    #[must_use]
    pub fn new(
        id: LogId,
        database: DatabaseId,
        epoch: Epoch,
        size: BufferSize,
        segments: Arc<SegmentPool>,
        memory: Arc<Account>,
    ) -> Log {
        Log {
            id,
            database,
            epoch,
            buffer_bytes_most: size.most(),
            segments,
            memory,
            buffer_bytes: AtomicUsize::new(size.bytes()),
            unsealed: AtomicUsize::new(0),
            durable: AtomicU64::new(0),
            state: Mutex::new(State {
                filling: None,
                free: Vec::new(),
                buffers: 0,
                size,
                active: None,
                next_segment: None,
                next_sequence: 1,
                last_sealed_csn: Csn::ZERO,
                in_flight: ParkingLot::new(),
                completed_csn: Csn::ZERO,
                medium: Box::new(Ordinary),
            }),
        }
    }

    /// From now on records go to `medium`, too. To be called before anything is shared, and after
    /// what recovery appends again.
    pub(super) fn attach_medium(&self, medium: Box<dyn Medium>) {
        let mut latch = self.lock();
        debug_assert!(latch.filled().is_none(), "nothing is half filled");
        // Those of a medium have the most.
        latch.state.size = BufferSize::fixed(self.buffer_bytes_most);
        latch.publish_size();
        if let Some(empty) = latch.state.filling.take() {
            latch.give_back(empty.buffer);
        }
        latch.state.medium = medium;
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> LogId {
        self.id
    }

    /// Returns the segment that the log writes to, and up to where blocks have a place in it.
    #[must_use]
    pub fn active_segment(&self) -> Option<(Segment, u64)> {
        let state = self.state.lock();
        state.active.as_ref().map(|active| (active.segment.clone(), active.offset))
    }

    /// Bytes appended and not yet sealed.
    #[must_use]
    pub fn unsealed_bytes(&self) -> usize {
        self.unsealed.load(Ordering::SeqCst)
    }

    /// Every record of this log up to this CSN is durable.
    #[must_use]
    pub fn durable_csn(&self) -> Csn {
        Csn(self.durable.load(Ordering::SeqCst))
    }

    /// Bytes that a block can hold besides its header, unless a record brings its own buffer.
    #[must_use]
    pub fn block_payload_bytes(&self) -> usize {
        self.buffer_bytes_most - BLOCK_HEADER_BYTES
    }

    /// Length of the log's next buffer.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes.load(Ordering::Relaxed)
    }

    /// A buffer for a record larger than [`Log::block_payload_bytes`], to be made before the latch
    /// is taken.
    #[must_use]
    pub fn large_buffer(&self, record_len: usize) -> AlignedBuffer {
        AlignedBuffer::charged(block_bytes(record_len), &self.memory)
    }

    /// Takes the log's latch.
    pub fn lock(&self) -> LogGuard<'_> {
        LogGuard { log: self, state: self.state.lock() }
    }

    /// The latch, if it is free.
    pub fn try_lock(&self) -> Option<LogGuard<'_>> {
        self.state.try_lock().map(|state| LogGuard { log: self, state })
    }

    /// Waiting for a segment: see [`SegmentPool::prepared`].
    #[must_use]
    pub fn segments(&self) -> &Arc<SegmentPool> {
        &self.segments
    }
}

impl Latch for Log {
    type Guard<'a> = LogGuard<'a>;

    fn lock(&self) -> LogGuard<'_> {
        Log::lock(self)
    }

    fn try_lock(&self) -> Option<LogGuard<'_>> {
        Log::try_lock(self)
    }
}

/// A log while its latch is held.
#[derive(Debug)]
pub struct LogGuard<'a> {
    log: &'a Log,
    state: MutexGuard<'a, State>,
}

impl LogGuard<'_> {
    /// Makes room for a record of `record_len` bytes. `large` is used for a record that no buffer
    /// holds, and left alone otherwise. To be called before the CSN is drawn: after
    /// [`Reserve::Ready`] nothing can fail.
    pub fn reserve(&mut self, record_len: usize, large: &mut Option<AlignedBuffer>) -> Reserve {
        let ready = if record_len > self.log.block_payload_bytes() {
            self.reserve_large(record_len, large)
        } else {
            self.reserve_buffer(record_len)
        };
        if ready != Reserve::Ready {
            return ready;
        }
        let used = self.filled().map_or(0, |filling| filling.used - BLOCK_HEADER_BYTES);
        debug_assert!(
            self.state.filling.as_ref().is_some_and(|own| own.used + record_len <= own.buffer.len()),
            "the filling buffer has room for the record"
        );
        self.reserve_place(used, record_len)
    }

    fn reserve_buffer(&mut self, record_len: usize) -> Reserve {
        let needed = BLOCK_HEADER_BYTES + record_len;
        // Left by an attempt that found no segment.
        if let Some(short) =
            self.state.filling.take_if(|filling| filling.records == 0 && filling.buffer.len() < needed)
        {
            self.put_back(short.buffer, short.place);
        }
        if self.state.filling.is_none() {
            self.state.size.make_fit(needed);
            self.publish_size();
            let Some((buffer, place)) = self.take_buffer() else { return Reserve::BuffersFull };
            self.state.filling = Some(Filling::new(buffer, place));
        }
        match &self.state.filling {
            Some(filling) if filling.used + record_len <= filling.buffer.len() => Reserve::Ready,
            _ => Reserve::BuffersFull,
        }
    }

    /// An empty buffer, and the place of its block; `None` if all are in use.
    fn take_buffer(&mut self) -> Option<(AlignedBuffer, Place)> {
        let state = &mut *self.state;
        let (len, most) = (state.size.bytes(), state.medium.buffers().unwrap_or(BUFFERS));
        let others = state.free.extract_if(.., |buffer| buffer.len() != len);
        state.buffers -= others.count();
        if state.free.is_empty() && state.buffers == most {
            return None;
        }
        let place = state.medium.take(state.next_sequence, state.last_sealed_csn)?;
        debug_assert!(state.filling.is_none(), "one buffer is filled at a time");
        let buffer = state.free.pop().unwrap_or_else(|| {
            state.buffers += 1;
            AlignedBuffer::charged(len, &self.log.memory)
        });
        Some((buffer, place))
    }

    /// Returns true if another buffer can be filled as soon as the filling one is sealed.
    #[must_use]
    pub fn has_free_buffer(&self) -> bool {
        let most = self.state.medium.buffers().unwrap_or(BUFFERS);
        !self.state.free.is_empty() || self.state.buffers < most
    }

    fn publish_size(&self) {
        self.log.buffer_bytes.store(self.state.size.bytes(), Ordering::Relaxed);
    }

    fn reserve_large(&mut self, record_len: usize, large: &mut Option<AlignedBuffer>) -> Reserve {
        let state = &mut *self.state;
        match &state.filling {
            Some(filling) if filling.records > 0 => return Reserve::BuffersFull,
            // Left by an attempt that found no segment.
            Some(filling) if BLOCK_HEADER_BYTES + record_len <= filling.buffer.len() => {
                return Reserve::Ready;
            }
            _ => {}
        }
        match large.take() {
            Some(buffer) if BLOCK_HEADER_BYTES + record_len <= buffer.len() => {
                if let Some(empty) = state.filling.replace(Filling::new(buffer, Place::Ordinary)) {
                    self.put_back(empty.buffer, empty.place);
                }
                Reserve::Ready
            }
            _ => Reserve::NeedsLargeBuffer,
        }
    }

    /// Makes sure that a block with `used` bytes of records, and one more, has a place: here or in
    /// a segment held for it.
    fn reserve_place(&mut self, used: usize, record_len: usize) -> Reserve {
        let (state, bytes) = (&mut *self.state, block_bytes(used + record_len));
        if state.active.as_ref().is_some_and(|active| active.has_room(bytes)) {
            return Reserve::Ready;
        }
        let (len, most) = (bytes as u64, self.log.segments.segment_bytes());
        if state.next_segment.as_ref().is_none_or(|segment| segment.len < len) {
            // More than a segment only for a record that needs it alone. Those in the buffer have
            // their place.
            if used > 0 && len > most && block_bytes(record_len) as u64 <= most {
                return Reserve::BuffersFull;
            }
            let Some(segment) = self.log.segments.take(len) else { return Reserve::NoSegment };
            if let Some(too_small) = state.next_segment.replace(segment) {
                self.log.segments.put_back(too_small);
            }
        }
        Reserve::Ready
    }

    fn put_back(&mut self, buffer: AlignedBuffer, place: Place) {
        self.give_back(buffer);
        if let Place::Buffer(buffer) = place {
            self.state.medium.give_back(buffer);
        }
    }

    /// Takes back the buffer of a block that is written, or carried by a peer.
    pub fn give_back(&mut self, buffer: AlignedBuffer) {
        if buffer.len() == self.state.size.bytes() {
            self.state.free.push(buffer);
            debug_assert!(self.state.free.len() <= self.state.buffers, "each buffer is given back once");
        } else if buffer.len() <= self.log.buffer_bytes_most {
            self.state.buffers -= 1;
        }
    }

    /// Copies a record behind the others. Only after [`Reserve::Ready`] for at least this length,
    /// under the same latch.
    pub fn append(&mut self, header: &RecordHeader, body: &[u8]) {
        let filling = self.state.filling.as_mut().expect("reserve() said Ready");
        debug_assert!(filling.last_csn < header.csn, "CSNs rise within a log");
        debug_assert!(header.dsn < header.csn, "a transaction depends on earlier ones");
        debug_assert!(header.watermark <= header.csn, "what is drawn now is not durable yet");
        debug_assert_eq!(header.epoch, self.log.epoch, "the CSN was drawn in the epoch of the log");
        let start = filling.used;
        let body_start = start + super::RECORD_HEADER_BYTES;
        let body_end = body_start + body.len();
        let end = start + record_bytes(body.len());
        filling.buffer[start..body_start].copy_from_slice(&header.encode(body.len()));
        filling.buffer[body_start..body_end].copy_from_slice(body);
        filling.buffer[body_end..end].fill(0);
        self.appended(header.csn, end);
    }

    /// Copies a whole record of an earlier epoch (recovery). Only after [`Reserve::Ready`].
    pub fn append_copy(&mut self, csn: Csn, record: &[u8]) {
        let filling = self.state.filling.as_mut().expect("reserve() said Ready");
        let end = filling.used + record.len();
        filling.buffer[filling.used..end].copy_from_slice(record);
        self.appended(csn, end);
    }

    fn appended(&mut self, csn: Csn, end: usize) {
        let state = &mut *self.state;
        let filling = state.filling.as_mut().expect("reserve() said Ready");
        debug_assert!(state.last_sealed_csn.max(filling.last_csn) < csn, "CSNs rise within a log");
        debug_assert!(filling.used < end && end <= filling.buffer.len(), "a record fits in the buffer");
        debug_assert!((end - filling.used).is_multiple_of(8), "records are whole words");
        if filling.records == 0 {
            filling.first_csn = csn;
        }
        filling.records += 1;
        filling.last_csn = csn;
        let start = std::mem::replace(&mut filling.used, end);
        if let Place::Buffer(buffer) = filling.place {
            state.medium.insert(buffer, start, &filling.buffer[start..end], csn);
        }
        self.log.unsealed.store(end - BLOCK_HEADER_BYTES, Ordering::SeqCst);
    }

    /// At or below the smallest CSN appended and not yet durable, and above everything durable.
    #[must_use]
    pub fn first_volatile_csn(&self) -> Option<Csn> {
        if !self.state.medium.holds_records() {
            return self.first_unwritten_csn();
        }
        let in_flight = self.state.in_flight.first_ordinary_csn();
        let filling = self.filled().filter(|filling| filling.place == Place::Ordinary);
        let ordinary = in_flight.or(filling.map(|filling| filling.first_csn));
        [self.state.medium.first_unfenced(), ordinary].into_iter().flatten().min()
    }

    /// The smallest CSN that is not in the gap-free prefix of completed blocks.
    #[must_use]
    pub fn first_unwritten_csn(&self) -> Option<Csn> {
        let in_flight = self.state.in_flight.first_csn();
        in_flight.or_else(|| self.filled().map(|filling| filling.first_csn))
    }

    /// Makes everything durable that the medium holds.
    pub fn fence(&mut self) -> Fenced {
        let fenced = self.state.medium.fence();
        if fenced != Fenced::Nothing {
            self.publish_durable();
        }
        fenced
    }

    /// The calling thread has fenced after its last append.
    pub fn fenced_own(&mut self) -> Fenced {
        let fenced = self.state.medium.fenced_own();
        self.publish_durable();
        fenced
    }

    /// The last record in the medium that is not durable, if there is one.
    #[must_use]
    pub fn last_unfenced_csn(&self) -> Option<Csn> {
        self.state.medium.last_unfenced()
    }

    /// Returns true if [`LogGuard::first_volatile_csn`] is that of a record. Otherwise it is a
    /// bound, and may be another log's.
    #[must_use]
    pub fn knows_first_volatile(&self) -> bool {
        self.state.medium.knows_first_unfenced()
    }

    /// A barrier in all threads, begun after `csn` was inserted, has ended.
    pub fn fenced_up_to(&mut self, csn: Csn) {
        self.state.medium.fenced_up_to(csn);
        self.publish_durable();
    }

    /// Returns true if what is appended now is durable without being written to a segment.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.state.filling.as_ref().is_some_and(|filling| filling.place != Place::Ordinary)
    }

    fn publish_durable(&self) {
        let last = self.filled().map_or(self.state.last_sealed_csn, |filling| filling.last_csn);
        let durable = self.first_volatile_csn().map_or(last, |first| Csn(first.0 - 1));
        debug_assert!(durable <= last, "what was not appended is not durable");
        debug_assert!(durable >= self.log.durable_csn(), "what is durable stays durable");
        self.log.durable.fetch_max(durable.0, Ordering::SeqCst);
    }

    fn filled(&self) -> Option<&Filling> {
        self.state.filling.as_ref().filter(|filling| filling.records > 0)
    }

    /// Turns everything appended into one block with a sequence and a place. `None` if there is
    /// nothing.
    pub fn seal(&mut self) -> Option<SealedBlock> {
        let (len, last_csn) = self.next_block()?;
        // Before it can be written: see rule 3 of `memory`.
        self.fence();
        let state = &mut *self.state;
        if !state.active.as_ref().is_some_and(|active| active.has_room(len)) {
            let segment = state.next_segment.take().expect("reserve() held a segment for this block");
            let next = Active::new(segment);
            if let Some(full) = state.active.replace(next) {
                self.log.segments.retire(full.segment, full.max_csn, full.open);
            }
        }
        let place = state.active.as_mut().expect("set above").place(len, last_csn);
        Some(self.seal_at(place, None))
    }

    /// Continues in a short segment if the active one is long, so that the next checkpoint can free
    /// that. Does nothing if no short one is READY.
    pub fn leave_long_segment(&mut self) {
        let needed = self.next_block().map_or(1, |(len, _)| len as u64);
        let (log, state) = (self.log, &mut *self.state);
        let short = log.segments.short_bytes();
        let is_long = state.active.as_ref().is_some_and(|active| active.segment.len > short);
        // A segment that is held has the place of what was appended.
        if !is_long || needed > short || state.next_segment.is_some() {
            return;
        }
        let Some(segment) = log.segments.take(needed) else { return };
        if segment.len > short {
            log.segments.put_back(segment);
            return;
        }
        let next = Active::new(segment);
        if let Some(long) = state.active.replace(next) {
            log.segments.retire(long.segment, long.max_csn, long.open);
        }
    }

    /// Seals the records of `owner` as a block of its log, at most `room` bytes long, with its
    /// place behind `own`, to be written with that (piggybacked). Returns `None` if there is
    /// nothing, or no room, or if a block of this log has that place or is promised it.
    pub fn carry(&mut self, own: &SealedBlock, owner: &mut LogGuard<'_>, room: usize) -> Option<SealedBlock> {
        let (len, last_csn) = owner.next_block()?;
        // A record that a medium holds is durable without a write.
        let in_memory = self.state.medium.holds_records() || owner.state.medium.holds_records();
        let is_newest = own.sequence + 1 == self.state.next_sequence && self.filled().is_none();
        let is_newest = is_newest || planted::is(Bug::StolenBehindOlder);
        if in_memory || !is_newest || len > room || owner.state.in_flight.len() >= PLACES {
            return None;
        }
        let active = self.state.active.as_mut().filter(|active| active.has_room(len))?;
        // From here on nothing can fail.
        let counted = if planted::is(Bug::StolenCsnNotCounted) { Csn::ZERO } else { last_csn };
        let place = active.place(len, counted);
        Some(owner.seal_at(place, Some(self.log.id)))
    }

    /// Length and last CSN of the block that what was appended would become.
    fn next_block(&self) -> Option<(usize, Csn)> {
        self.filled().map(|filling| (block_bytes(filling.used - BLOCK_HEADER_BYTES), filling.last_csn))
    }

    fn seal_at(&mut self, place: InSegment, carrier: Option<LogId>) -> SealedBlock {
        let log = self.log;
        let state = &mut *self.state;
        let filling = state.filling.take().expect("there is a next block");
        let payload_len = filling.used - BLOCK_HEADER_BYTES;
        debug_assert!(filling.records > 0 && filling.first_csn <= filling.last_csn, "a block has records");
        debug_assert!(block_bytes(payload_len) <= filling.buffer.len(), "a block fits in its buffer");
        debug_assert!(carrier != Some(log.id), "a log carries blocks of others");
        let header = BlockHeader {
            database: log.database,
            log: log.id,
            epoch: log.epoch,
            sequence: state.next_sequence,
            payload_len: payload_len as u32,
            payload_crc: 0,
            record_count: filling.records,
            first_csn: filling.first_csn,
            last_csn: filling.last_csn,
            previous_csn: state.last_sealed_csn,
            carrier,
        };
        state.last_sealed_csn = filling.last_csn;
        state.next_sequence += 1;
        state.size.sealed(block_bytes(payload_len));
        let BlockHeader { sequence, first_csn, last_csn, .. } = header;
        state.in_flight.depart(sequence, first_csn, last_csn, filling.place.buffer(), Some(place.open));
        log.unsealed.store(0, Ordering::SeqCst);
        self.publish_size();
        SealedBlock {
            file: place.file,
            segment: place.segment,
            offset: place.offset,
            buffer: filling.buffer,
            len: block_bytes(payload_len),
            sequence: header.sequence,
            first_csn: header.first_csn,
            last_csn: header.last_csn,
            header,
        }
    }

    /// A block is durable. Moves the frontier over the gap-free prefix and returns it.
    ///
    /// A sequence that is not in flight is ignored: it cannot move the frontier.
    pub fn complete(&mut self, sequence: u64) -> Csn {
        let state = &mut *self.state;
        if let Some(buffer) = state.in_flight.take_buffer(sequence) {
            state.medium.give_back(buffer);
        }
        if let Some(frontier) = state.in_flight.complete(sequence) {
            debug_assert!(frontier > state.completed_csn, "the durable frontier never falls");
            debug_assert!(frontier <= state.last_sealed_csn, "what was not sealed is not completed");
            state.completed_csn = frontier;
        }
        match state.medium.holds_records() {
            false => self.log.durable.store(state.completed_csn.0, Ordering::SeqCst),
            true => self.publish_durable(),
        }
        self.log.durable_csn()
    }

    /// Returns the CSN of the newest record that was appended; zero if none was.
    #[must_use]
    pub fn newest_csn(&self) -> Csn {
        self.filled().map_or(self.state.last_sealed_csn, |filling| filling.last_csn)
    }

    /// Sequence and last CSN of the block up to which all are durable in segments; zeros if none
    /// is.
    #[must_use]
    pub fn durable_end(&self) -> (u64, Csn) {
        let first_open = self.state.in_flight.first_sequence().unwrap_or(self.state.next_sequence);
        (first_open - 1, self.state.completed_csn)
    }
}
