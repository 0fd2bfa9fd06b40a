//! Connection strings.

use super::*;

fn value(settings: &[(AzureConfigKey, String)], key: AzureConfigKey) -> Option<&str> {
    settings.iter().find(|(known, _)| *known == key).map(|(_, value)| &value[..])
}

#[test]
fn connection_string_names_account_key_and_server() {
    let portal =
        "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=a2V5PT0=;EndpointSuffix=core.windows.net";
    let settings = of_connection_string(portal).unwrap();
    assert_eq!(value(&settings, AzureConfigKey::AccountName), Some("me"));
    assert_eq!(value(&settings, AzureConfigKey::AccessKey), Some("a2V5PT0="));
    assert_eq!(value(&settings, AzureConfigKey::Endpoint), Some("https://me.blob.core.windows.net"));
    let own = of_connection_string(
        "AccountName=me;BlobEndpoint=http://127.0.0.1:1/me/;SharedAccessSignature=sv=1&sig=2;",
    );
    let own = own.unwrap();
    assert_eq!(value(&own, AzureConfigKey::Endpoint), Some("http://127.0.0.1:1/me"));
    assert_eq!(value(&own, AzureConfigKey::SasKey), Some("sv=1&sig=2"));
    for wrong in ["", "SECRETHIDDEN", "Other=SECRETHIDDEN"] {
        let error = of_connection_string(wrong).unwrap_err();
        assert!(!error.message().contains("HIDDEN"), "{error}");
    }
}
