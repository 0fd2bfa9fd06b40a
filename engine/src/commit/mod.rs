//! Rank 4: when may we say committed?
