//! Rank 9: what can a user call?
