//! Rank 5: where is this key?
