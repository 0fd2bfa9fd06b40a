//! Workloads and drivers that measure QuenchDB.
