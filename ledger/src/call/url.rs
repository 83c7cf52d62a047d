//! Where a server is: the prefix of a log, or the submission prefix of a policy's witness line.

use axum::http::Uri;
use thiserror::Error;

/// An `http` address without the last part, such as `http://witness.example/w1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl {
    /// Host and port, as they are connected to and named in requests.
    pub authority: String,
    /// Path without a slash at its end; empty for the root.
    pub prefix: String,
}

/// Why a text is not such an address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UrlError {
    /// Encrypted connections are left to others.
    #[error(
        "{found} is https, expected http; let a proxy on this machine add TLS, and name the proxy's address here"
    )]
    Https {
        /// The address found.
        found: String,
    },
    /// Something else.
    #[error("{found:?} is no address of the form http://<host>[:<port>][/<path>]")]
    BadForm {
        /// The text found.
        found: String,
    },
}

impl HttpUrl {
    /// Parses an address strictly: no user, query or fragment.
    pub fn parse(text: &str) -> Result<HttpUrl, UrlError> {
        let bad = || UrlError::BadForm { found: text.to_owned() };
        let uri: Uri = text.parse().map_err(|_| bad())?;
        if uri.scheme_str() == Some("https") {
            return Err(UrlError::Https { found: text.to_owned() });
        }
        let authority =
            uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(bad)?;
        // A port that is there must be a number, or a connection would go elsewhere.
        let host = authority.host();
        let port = match authority.as_str().strip_prefix(host) {
            Some("") => 80,
            Some(_) => authority.port_u16().ok_or_else(bad)?,
            None => return Err(bad()),
        };
        if uri.scheme_str() != Some("http") || uri.query().is_some() || text.contains('#') || host.is_empty()
        {
            return Err(bad());
        }
        Ok(HttpUrl {
            authority: format!("{host}:{port}"),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_everything_else_is_told() {
        let parsed = |text: &str| HttpUrl::parse(text).map(|url| (url.authority, url.prefix));
        let expected = |authority: &str, prefix: &str| Ok((authority.to_owned(), prefix.to_owned()));
        assert_eq!(parsed("http://w.example"), expected("w.example:80", ""));
        assert_eq!(parsed("http://w.example/"), expected("w.example:80", ""));
        assert_eq!(parsed("http://w.example:7181/a/b/"), expected("w.example:7181", "/a/b"));
        assert_eq!(parsed("http://[::1]:80/w"), expected("[::1]:80", "/w"));
        let https = "https://w.example/";
        assert_eq!(parsed(https), Err(UrlError::Https { found: https.to_owned() }));
        for text in [
            "",
            "w.example",
            "/w",
            "//w.example",
            "ftp://w.example",
            "http://",
            "http:///w",
            "http://a@w.example",
            "http://w.example?x",
            "http://w.example/#x",
            "http://w.example:x/",
            "http://w.example:99999/",
            "http://w.example:/",
            "http://w example/",
        ] {
            assert_eq!(parsed(text), Err(UrlError::BadForm { found: text.to_owned() }));
        }
    }
}
