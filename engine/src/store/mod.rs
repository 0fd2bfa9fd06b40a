//! Rank 3: where is a page image?
