//! Rank 7: how far back must redo start?
