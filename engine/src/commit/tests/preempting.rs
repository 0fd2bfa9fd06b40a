//! A scheduler that takes threads off the processor.
//!
//! A scheduler that draws the next thread afresh at each step never leaves a thread behind. The
//! chance that a thread does not run for the fifty steps of another thread's write is one in a
//! million, so bugs between two of its steps are not found. Here, in three schedules of four, a
//! thread that has just run is now and then put off for up to 512 steps. Each schedule follows from
//! its number.
//!
//! Not priorities, as in shuttle's `PctScheduler`: the thread that moves the clock would be the
//! first in line for a whole schedule, or the last.

use crate::base::random::Random;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use std::collections::BTreeMap;

/// A thread is put off for up to 1, 2, 4 … steps: so many powers.
const LONGEST_LOG2: u64 = 10;
/// Steps between two times that a thread is put off, about, in the schedules that do so.
const STEPS: [u64; 3] = [8, 32, 128];

/// See the module's text.
pub struct Preempting {
    schedules: u64,
    begun: u64,
    random: Random,
    /// Mean steps between two delays in this schedule; `None`: no thread is put off.
    steps_between: Option<u64>,
    step: u64,
    /// Until which step.
    put_off: BTreeMap<TaskId, u64>,
}

impl Preempting {
    pub fn new(schedules: u64) -> Preempting {
        let random = Random::from_seed(0);
        Preempting { schedules, begun: 0, random, steps_between: None, step: 0, put_off: BTreeMap::new() }
    }

    fn put_off(&mut self, task: TaskId) {
        let longest = 1 << self.random.below(LONGEST_LOG2);
        let steps = 1 + self.random.below(longest);
        self.put_off.insert(task, self.step + steps);
    }
}

impl Scheduler for Preempting {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.begun == self.schedules {
            return None;
        }
        self.begun += 1;
        self.random = Random::from_seed(self.begun);
        self.steps_between = STEPS.get((self.begun % 4) as usize).copied();
        self.step = 0;
        self.put_off.clear();
        Some(Schedule::new(self.begun))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, _yields: bool) -> Option<TaskId> {
        self.step += 1;
        if let (Some(steps), Some(current)) = (self.steps_between, current)
            && self.random.below(steps) == 0
        {
            self.put_off(current);
        }
        let is_free = |task: &&&Task| self.put_off.get(&task.id()).is_none_or(|until| *until <= self.step);
        let mut candidates: Vec<TaskId> = runnable.iter().filter(is_free).map(|task| task.id()).collect();
        if candidates.is_empty() {
            candidates = runnable.iter().map(|task| task.id()).collect();
        }
        Some(candidates[self.random.below(candidates.len() as u64) as usize])
    }

    fn next_u64(&mut self) -> u64 {
        self.random.next_u64()
    }
}
