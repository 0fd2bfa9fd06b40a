//! What each paper shows, and how this program measures it. Tables of our own.

mod measures;
mod autonomous;
mod objects;
mod early_release;
mod group;
mod passive;
mod presets;

use super::spec::Figure;

/// Returns all figures and tables, paper by paper, and then our own.
#[must_use]
pub fn all() -> Vec<Figure> {
    [
        autonomous::figures(),
        objects::figures(),
        early_release::figures(),
        group::figures(),
        passive::figures(),
        presets::figures(),
    ]
    .concat()
}

#[cfg(test)]
mod tests;
