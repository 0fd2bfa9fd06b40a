//! Google Cloud Storage: its settings.

use super::super::url::ObjectUrl;
use super::connector::{Connector, no_retries};
use super::failure::wrong_settings;
use super::options::CloudOptions;
use crate::base::{Error, Result};
use object_store::gcp::{GcpCredential, GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{ClientOptions, StaticCredentialProvider};
use std::sync::Arc;

/// The server that Google's own programs ask instead of Google's.
const EMULATOR: &str = "STORAGE_EMULATOR_HOST";

const SERVER: &str = "https://storage.googleapis.com";

/// Google's store, and how to name it.
pub(super) struct Google {
    pub store: GoogleCloudStorage,
    pub endpoint: String,
    /// Requests carry no signature, so no credentials are looked for.
    pub is_open: bool,
}

impl Google {
    /// # Errors
    /// The settings are wrong or incomplete.
    pub fn new(url: &ObjectUrl, options: &CloudOptions, connector: Connector) -> Result<Google> {
        let mut builder = GoogleCloudStorageBuilder::new()
            .with_bucket_name(&url.bucket)
            .with_client_options(ClientOptions::new().with_allow_http(true))
            .with_retry(no_retries())
            .with_http_connector(connector);
        for (name, value) in options.with_environment("GOOGLE_") {
            if let Ok(key) = name.to_ascii_lowercase().parse::<GoogleConfigKey>()
                && key != GoogleConfigKey::Bucket
            {
                builder = builder.with_config(key, value);
            }
        }
        for (_, host) in options.with_environment(EMULATOR) {
            let server = if host.contains("://") { host } else { format!("http://{host}") };
            let server = server.trim_end_matches('/');
            builder = builder
                .with_config(GoogleConfigKey::BaseUrl, server)
                .with_config(GoogleConfigKey::SkipSignature, "true");
        }
        let is_open = builder.get_config_value(&GoogleConfigKey::SkipSignature).as_deref() == Some("true");
        if is_open {
            // The client's puts look for credentials all the same.
            let none = GcpCredential { bearer: String::new() };
            builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(none)));
        }
        let endpoint = builder.get_config_value(&GoogleConfigKey::BaseUrl).unwrap_or_else(|| SERVER.into());
        if endpoint.contains('@') {
            return Err(Error::invalid("the endpoint of Google's store holds credentials: remove them"));
        }
        let store = builder.build().map_err(|error| {
            wrong_settings(url, &error, "check GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT_KEY")
        })?;
        Ok(Google { store, endpoint, is_open })
    }
}
