//! What every preset does: a table of properties, each a function of a preset in the module that is
//! about it.
//!
//! Each row is a test. At its whole depth it asks all presets, otherwise as many as the row says:
//! the next row begins with the preset where this one ended, so that the table asks all of them.

use crate::faults::space;
use crate::{
    basics, chunks, concurrency, damage, faults, feeds, full_disk, isolation, larger_than_memory, verify,
};
use quenchdb::Preset;
use quenchdb::internals::base::depth::is_deep;

/// The number of presets that all rows before `name` ask.
fn asked_before(name: &str) -> usize {
    ROWS.iter().take_while(|(row, _)| *row != name).map(|(_, few)| few).sum()
}

/// Asks `few` presets, or all at its whole depth.
fn ask(name: &str, few: usize, property: fn(Preset)) {
    let first = asked_before(name);
    let count = if is_deep() { Preset::ALL.len() } else { few };
    for step in 0..count {
        let preset = Preset::ALL[(first + step) % Preset::ALL.len()];
        println!("preset {preset}");
        property(preset);
    }
}

macro_rules! every_preset {
    ($($module:ident { $($name:ident: $few:expr,)* })*) => {
        /// Name of a property, and how many presets a shallow run asks.
        const ROWS: &[(&str, usize)] = &[$($((stringify!($name), $few),)*)*];

        $($(
            #[test]
            fn $name() {
                ask(stringify!($name), $few, $module::$name);
            }
        )*)*
    };
}

const ALL: usize = Preset::ALL.len();

every_preset! {
    basics {
        transfers_from_many_threads_keep_the_sum: ALL,
    }
    chunks {
        levels_and_asynchronous_commits_work_with_chunks: ALL,
        long_transactions_that_fill_the_log_commit_or_fail_clearly: ALL,
    }
    concurrency {
        no_update_is_lost_with_threads_on_one_counter: 3,
        readers_see_transfers_whole_beside_checkpoints: 3,
        asynchronous_commits_may_be_waited_for_in_other_threads: 3,
        nobody_reads_what_is_aborted: 3,
        deletes_and_inserts_and_ranges_agree_with_an_exact_model: 3,
    }
    damage {
        the_samples_are_whole: ALL,
        a_crashed_database_without_any_log_is_refused: ALL,
        a_hole_in_the_log_is_refused_in_every_preset: ALL,
    }
    faults {
        a_failed_open_can_be_repeated: 1,
        a_full_disk_refuses_work_loses_nothing_and_resumes: ALL,
        every_waiter_learns_of_a_failed_write: ALL,
    }
    space {
        opening_on_a_full_disk_loses_nothing: ALL,
    }
    feeds {
        iterator_waits_and_ends_with_the_database: ALL,
    }
    full_disk {
        changes_in_place_go_on_while_the_disk_is_full: 2,
        a_long_transaction_on_a_full_disk_stops_nobody_for_long: ALL,
        a_database_on_a_full_disk_can_be_reopened_and_emptied: ALL,
    }
    isolation {
        a_snapshot_sees_what_any_transaction_read_before_it_began: 3,
    }
    larger_than_memory {
        content_is_right_with_a_pool_of_a_few_dozen_pages: 1,
    }
    verify {
        verify_beside_writers_and_checkpoints_finds_nothing: 2,
    }
}

#[test]
fn the_table_asks_every_preset_in_a_shallow_run() {
    let asked = ROWS.iter().filter(|(_, few)| *few < ALL).map(|(_, few)| few).sum::<usize>();
    assert!(asked >= ALL, "rows that ask only some presets ask {asked} in all");
}
