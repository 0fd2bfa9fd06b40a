//! What each paper shows, and how this program measures it.

mod measures;
mod autonomous;
mod objects;
mod early_release;
mod group;
mod passive;

use super::spec::Figure;

/// Returns all figures and tables, paper by paper.
#[must_use]
pub fn all() -> Vec<Figure> {
    [
        autonomous::figures(),
        objects::figures(),
        early_release::figures(),
        group::figures(),
        passive::figures(),
    ]
    .concat()
}

#[cfg(test)]
mod tests;
