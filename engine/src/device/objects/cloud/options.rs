//! Settings of the client, with defaults for a store in the same region.

use super::super::client::Effort;
use std::fmt;
use std::time::Duration;

/// Settings of a [`CloudStore`](super::CloudStore). Printing them shows no secret.
#[derive(Clone)]
pub struct CloudOptions {
    /// Settings that overrule the environment, by the names of its variables:
    /// `AZURE_STORAGE_ACCOUNT_NAME`, `GOOGLE_BASE_URL` and so on.
    pub settings: Vec<(String, String)>,
    /// Time to establish a connection.
    pub connect_timeout: Duration,
    /// Time of one attempt; an attempt has a second more for each MiB that it transfers. A write
    /// has one attempt.
    pub attempt_timeout: Duration,
    /// For so long a read is sent again after failures that may pass.
    pub read_deadline: Duration,
    /// Threads of the client.
    pub threads: usize,
}

impl Default for CloudOptions {
    fn default() -> CloudOptions {
        CloudOptions {
            settings: Vec::new(),
            connect_timeout: Duration::from_secs(3),
            attempt_timeout: Duration::from_secs(10),
            read_deadline: Duration::from_secs(60),
            threads: 2,
        }
    }
}

impl CloudOptions {
    pub(in super::super) fn effort(&self) -> Effort {
        let CloudOptions { attempt_timeout, read_deadline, threads, .. } = *self;
        Effort { attempt_timeout, read_deadline, threads }
    }

    /// Returns all settings, those of the environment first. Only names that begin with `prefix`.
    pub(in super::super) fn with_environment(&self, prefix: &str) -> Vec<(String, String)> {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let all = environment.chain(self.settings.iter().cloned());
        all.filter(|(name, value)| name.starts_with(prefix) && !value.is_empty()).collect()
    }
}

impl fmt::Debug for CloudOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.settings.iter().map(|(name, _)| name).collect();
        f.debug_struct("CloudOptions").field("settings", &names).finish_non_exhaustive()
    }
}
