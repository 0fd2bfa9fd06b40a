//! A stateright model of acknowledgment and recovery.
