//! The tests of the program `quench`, in one program.

mod support;

mod buckets;
mod copies;
mod devices;
mod emulator;
mod engines;
mod figures;
mod fuse;
mod half_read;
mod live;
mod manual;
mod pipes;
mod places;
mod program;
mod protocols;
mod rapid;
mod real_faults;
mod servers;
mod shell;
mod standby;
mod stat;
mod stores;
mod top;
mod transcripts;
mod verify;
mod workloads;
