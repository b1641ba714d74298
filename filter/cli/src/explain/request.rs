//! From arguments to a request as the filter would see it.

use super::Arguments;
use crate::document::read_bytes;
use http::header::{HeaderName, HeaderValue};
use http::{Method, Uri};
use idempo_core::http::Headers;
use idempo_core::tenant::Facts;
use std::collections::BTreeMap;

/// What stands in for the request id that Envoy makes.
const REQUEST_ID: &str = "explained-attempt";

/// A request.
pub(crate) struct Request {
    pub(crate) headers: Headers,
    pub(crate) body: Vec<u8>,
    pub(crate) properties: Properties,
}

/// What the host would know of it, by path.
#[derive(Default)]
pub(crate) struct Properties(BTreeMap<String, Vec<u8>>);

impl Facts for Properties {
    fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        // Names of filters hold dots themselves, so paths are compared joined.
        let path = path.join(".");
        let inside = format!("{path}.");
        self.0.get(&path).cloned().or_else(|| {
            // An object is there where any of its members is; nobody reads its encoding.
            let first = self.0.keys().find(|name| name.starts_with(&inside))?;
            Some(first.clone().into_bytes())
        })
    }
}

/// Reads the arguments.
///
/// # Errors
/// One line that names the argument.
pub(crate) fn read(arguments: &Arguments) -> Result<Request, String> {
    let body = match (&arguments.data_file, &arguments.data) {
        (Some(path), _) => read_bytes(path).map_err(|e| format!("--data-file: {e}"))?,
        (None, Some(text)) => text.clone().into_bytes(),
        (None, None) => Vec::new(),
    };
    let method = match &arguments.method {
        Some(method) => Method::from_bytes(method.as_bytes())
            .map_err(|_| format!("-X {method:?}: is not a method"))?,
        None if body.is_empty() => Method::GET,
        None => Method::POST,
    };
    let url = &arguments.url;
    let uri: Uri = url
        .parse()
        .map_err(|e| format!("--url {url:?}: is not a URL ({e}); write http://host/path"))?;
    let (Some("http" | "https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(format!("--url {url:?}: write http://host/path"));
    };
    let mut headers = Headers::default();
    headers.push(":method", method.as_str());
    headers.push(":scheme", uri.scheme_str().unwrap_or_default());
    headers.push(":path", uri.path_and_query().map_or("/", |p| p.as_str()));
    let mut lines = Vec::new();
    let mut host = authority.as_str().as_bytes().to_vec();
    for line in &arguments.headers {
        let (name, value) = header(line)?;
        if name == http::header::HOST {
            // Envoy carries it as `:authority`.
            host = value;
        } else {
            lines.push((name.as_str().to_owned(), value));
        }
    }
    headers.push(":authority", host);
    for (name, value) in lines {
        headers.push(name, value);
    }
    if !headers.has("x-request-id") {
        headers.push("x-request-id", REQUEST_ID);
    }
    if !body.is_empty() && !headers.has("content-length") && !headers.has("transfer-encoding") {
        headers.push("content-length", body.len().to_string());
    }
    Ok(Request {
        headers,
        body,
        properties: properties(arguments)?,
    })
}

fn header(line: &str) -> Result<(HeaderName, Vec<u8>), String> {
    // The value may be a credential or the key itself: messages show the name at most.
    let (name, value) = line
        .split_once(':')
        .ok_or("-H: a header without a colon; write 'Name: value'")?;
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("-H {name:?}: is not a header name; write 'Name: value'"))?;
    let value = HeaderValue::from_bytes(value.trim_ascii().as_bytes())
        .map_err(|_| format!("-H {name}: its value holds a control character"))?;
    Ok((name, value.as_bytes().to_vec()))
}

fn properties(arguments: &Arguments) -> Result<Properties, String> {
    let mut all = BTreeMap::new();
    if let Some(name) = &arguments.envoy_route {
        all.insert("xds.route_name".to_owned(), name.clone().into_bytes());
    }
    let groups = [
        ("--property", "", &arguments.properties),
        (
            "--metadata",
            "xds.route_metadata.filter_metadata.idempo.",
            &arguments.metadata,
        ),
    ];
    for (option, base, list) in groups {
        for entry in list {
            let (path, value) = entry
                .split_once('=')
                .filter(|(path, _)| !path.is_empty())
                .ok_or_else(|| format!("{option}: write a name, =, and a value"))?;
            all.insert(format!("{base}{path}"), value.as_bytes().to_vec());
        }
    }
    Ok(Properties(all))
}
