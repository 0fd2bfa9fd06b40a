//! Rank 4: which pages are in memory?
