//! From options and environment to a client of the SDK.

use super::super::client::Place;
use super::super::url::{ObjectUrl, Scheme};
use super::failure::AMAZON;
use super::operations::Operations;
use super::options::S3Options;
use crate::base::{Error, Result};
use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::ProvideCredentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    Builder, ResponseChecksumValidation, SharedHttpClient, StalledStreamProtectionConfig,
};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

/// The region for servers that have none of their own.
const REGION_OF_NO_REGION: &str = "us-east-1";

/// Buckets with such names are directory buckets: only they take appends.
const DIRECTORY_BUCKET_ENDING: &str = "--x-s3";

/// Returns whether objects of the bucket take appends.
pub(super) fn is_directory_bucket(bucket: &str) -> bool {
    bucket.ends_with(DIRECTORY_BUCKET_ENDING)
}

/// Finds the settings of the environment and returns the client. Sends nothing to the store.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`](crate::base::ErrorKind::InvalidArgument): the URL, the endpoint,
/// the region or the credentials.
pub(super) async fn connect(url: &ObjectUrl, options: &S3Options) -> Result<Operations> {
    if url.scheme != Scheme::S3 {
        return Err(Error::invalid(format!("{url} does not name a bucket of S3: write s3://bucket/prefix")));
    }
    let named = options.endpoint.clone().or_else(|| of_bucket("QUENCH_S3_ENDPOINT", &url.bucket));
    let profile = of_bucket("QUENCH_S3_PROFILE", &url.bucket);
    // A profile has an endpoint of its own.
    let named = if profile.is_some() { named } else { named.or_else(endpoint_of_environment) };
    let named = named.map(|text| Endpoint::parse(&text)).transpose()?;
    let config = load(options, named.as_ref(), profile).await;
    let endpoint = match (named, config.endpoint_url()) {
        (Some(endpoint), _) => Some(endpoint),
        (None, Some(text)) => Some(Endpoint::parse(text)?),
        (None, None) => None,
    };
    let region = match (config.region(), &endpoint) {
        (Some(region), _) => region.clone(),
        (None, Some(_)) => Region::from_static(REGION_OF_NO_REGION),
        (None, None) => {
            return Err(Error::invalid(format!("the region of {url} is unknown: set AWS_REGION")));
        }
    };
    if options.credentials.is_none() {
        check_credentials(&config).await?;
    }
    let shown = match &endpoint {
        Some(endpoint) => endpoint.url.clone(),
        None => format!("{AMAZON}{region}"),
    };
    let place = Place { bucket: url.bucket.clone(), endpoint: shown };
    let prefix = if url.prefix.is_empty() { String::new() } else { format!("{}/", url.prefix) };
    let client = Client::from_conf(settings(&config, options, endpoint, region).build());
    Ok(Operations { client, place, prefix })
}

async fn load(options: &S3Options, endpoint: Option<&Endpoint>, profile: Option<String>) -> SdkConfig {
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .retry_config(RetryConfig::disabled())
        .http_client(encrypted_client());
    if let Some(profile) = &profile {
        let credentials = ProfileFileCredentialsProvider::builder().profile_name(profile).build();
        loader = loader.profile_name(profile).credentials_provider(credentials);
    }
    if let Some(region) = &options.region {
        loader = loader.region(Region::new(region.clone()));
    } else if endpoint.is_some() && profile.is_none() && !names_a_region() {
        // Otherwise the SDK asks the machine's metadata service, which may be absent.
        loader = loader.region(Region::from_static(REGION_OF_NO_REGION));
    }
    if let Some(given) = &options.credentials {
        let token = given.token.clone();
        let credentials =
            Credentials::new(given.key_id.clone(), given.secret.clone(), token, None, "S3Options");
        loader = loader.credentials_provider(credentials);
    }
    loader.load().await
}

/// Fails if no credentials can be had. Later the same failure may pass, and is retried.
async fn check_credentials(config: &SdkConfig) -> Result<()> {
    let found = match config.credentials_provider() {
        Some(provider) => provider.provide_credentials().await.map(drop),
        None => Err(CredentialsError::not_loaded_no_source()),
    };
    found.map_err(|error| {
        let what = match error {
            CredentialsError::CredentialsNotLoaded(_) => "no credentials for S3 are found",
            CredentialsError::InvalidConfiguration(_) => "the configuration of the credentials for S3 is wrong",
            // The chain asks the machine last, and there the cause is.
            _ => "no credentials for S3 are found, and the machine's own source of credentials does not answer",
        };
        Error::invalid(format!(
            "{what}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine a role"
        ))
    })
}

/// Returns a variable of the environment for one bucket, whose name ends it in upper case, with `_`
/// for other characters than letters and digits. So the buckets of a database may lie on several
/// servers.
fn of_bucket(variable: &str, bucket: &str) -> Option<String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name = format!("{variable}_{}", bucket.chars().map(plain).collect::<String>());
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// Returns whether the environment or a profile may name a region.
fn names_a_region() -> bool {
    ["AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_CONFIG_FILE"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Returns the endpoint that only requests to S3 use. The SDK knows the others.
fn endpoint_of_environment() -> Option<String> {
    let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
    let ignored = variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    if ignored.is_some_and(|text| text.eq_ignore_ascii_case("true")) {
        return None;
    }
    variable("AWS_ENDPOINT_URL_S3")
}

fn encrypted_client() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
}

fn settings(config: &SdkConfig, options: &S3Options, endpoint: Option<Endpoint>, region: Region) -> Builder {
    // The store limits the time of an attempt.
    let timeouts = TimeoutConfig::builder().connect_timeout(options.connect_timeout);
    let mut builder = Builder::from(config)
        .region(region)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts.build())
        // The engine checks all that it reads.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired);
    if let Some(session_auth) = options.session_auth {
        builder = builder.disable_s3_express_session_auth(!session_auth);
    }
    // Without encryption there are no certificates to look for.
    if endpoint.as_ref().is_some_and(|endpoint| !endpoint.is_encrypted) {
        builder = builder.http_client(aws_smithy_http_client::Builder::new().build_http());
    }
    match endpoint {
        Some(endpoint) => builder.force_path_style(!endpoint.is_amazon).endpoint_url(endpoint.url),
        None => builder,
    }
}

/// A server that was named explicitly.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Endpoint {
    /// Without user and password, and without a slash at its end.
    url: String,
    is_encrypted: bool,
    /// Amazon's servers have the bucket in the host's name. For all others it stands in the path.
    is_amazon: bool,
}

impl Endpoint {
    /// # Errors
    /// The text is no URL of a server. The error does not quote it, because it may hold a password.
    fn parse(text: &str) -> Result<Endpoint> {
        let wrong = |what: &str| {
            Error::invalid(format!("the endpoint of S3 {what}: write http://host:port or https://host:port"))
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("has no scheme"))?;
        let is_encrypted = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(wrong("has an unknown scheme")),
        };
        if rest.contains(['@', '?', '#']) {
            return Err(wrong("holds credentials or a query"));
        }
        let rest = rest.trim_end_matches('/');
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        if host.is_empty() || host.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
            return Err(wrong("has no host"));
        }
        if port.is_some_and(|port| port.parse::<u16>().is_err()) {
            return Err(wrong("has a wrong port"));
        }
        let amazon = [".amazonaws.com", ".amazonaws.com.cn"];
        let is_amazon = amazon.iter().any(|ending| host.ends_with(ending));
        // Of a directory bucket, the SDK makes a host name below any name that is not an address.
        let host = if host == "localhost" && !is_encrypted { "127.0.0.1" } else { host };
        let mut url = format!("{scheme}://{host}");
        for (mark, part) in [(':', port), ('/', Some(path).filter(|path| !path.is_empty()))] {
            if let Some(part) = part {
                url = format!("{url}{mark}{part}");
            }
        }
        Ok(Endpoint { url, is_encrypted, is_amazon })
    }
}

#[cfg(test)]
mod tests;
