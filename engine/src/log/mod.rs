//! Rank 3: what changed, in what order?
