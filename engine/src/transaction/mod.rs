//! Rank 6: what does it see, may it commit?
