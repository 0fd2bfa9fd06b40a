//! A queue of jobs: workers take the oldest job of the highest priority, each job exactly once. A
//! job is deleted when it is done, so that a job of a worker that crashed is done again.

use quenchdb::{Database, Result, TypedTable};
use std::cmp::Reverse;
use std::sync::atomic::{AtomicU32, Ordering};

/// Priority, highest first; then the number of the job.
type Place = (Reverse<u8>, u64);

struct Queue {
    db: Database,
    waiting: TypedTable<Place, String>,
    running: TypedTable<Place, String>,
    counters: TypedTable<String, i64>,
}

impl Queue {
    fn open(db: Database) -> Result<Queue> {
        let queue = Queue {
            waiting: db.typed_table("waiting")?,
            running: db.typed_table("running")?,
            counters: db.typed_table("counters")?,
            db,
        };
        // Jobs that were running when the process ended wait again.
        queue.db.transact(|tx| -> Result<()> {
            while let Some((place, job)) = queue.running.pop_first(tx)? {
                queue.waiting.insert(tx, place, &job)?;
            }
            Ok(())
        })?;
        Ok(queue)
    }

    fn push(&self, priority: u8, job: &str) -> Result<()> {
        self.db.transact(|tx| {
            let number = self.counters.add(tx, "jobs", 1)? as u64;
            self.waiting.insert(tx, (Reverse(priority), number), job)
        })
    }

    fn take(&self) -> Result<Option<(Place, String)>> {
        self.db.transact(|tx| -> Result<_> {
            let Some((place, job)) = self.waiting.pop_first(tx)? else { return Ok(None) };
            self.running.insert(tx, place, &job)?;
            Ok(Some((place, job)))
        })
    }

    fn done(&self, place: Place) -> Result<()> {
        self.db.transact(|tx| self.running.remove(tx, place).map(drop))
    }
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let queue = Queue::open(Database::open(directory.path().join("jobs"))?)?;
    for n in 0..20 {
        queue.push(n % 3, &format!("job {n}"))?;
    }
    let ((priority, _), first) = queue.take()?.expect("a job");
    assert_eq!((priority.0, first.as_str()), (2, "job 2"));

    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some((place, _job)) = queue.take().expect("the queue works") {
                    queue.done(place).expect("the queue works");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(done.into_inner(), 19);

    // The first job was never done. After a restart it waits again.
    let Queue { db, .. } = queue;
    let queue = Queue::open(db)?;
    assert_eq!(queue.take()?.map(|(_, job)| job), Some(first));
    Ok(())
}
