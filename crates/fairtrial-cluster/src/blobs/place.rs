//! Where a store is, as its URL says.

use std::path::PathBuf;

use fairtrial_exec::{parse_size, unknown_key};
use url::Url;

use super::http::{DEFAULT_MAX_BYTES, HttpPlace};
use super::s3::S3Place;
use super::wire::is_loopback;

/// A URL that names no store. Repeats of it only what cannot be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the blob store{} cannot be used: {problem}", shown(.store))]
pub struct BadStore {
    /// Its URL without user, password and query; empty if it cannot even be read.
    pub store: String,
    /// What is wrong.
    pub problem: String,
}

fn shown(store: &str) -> String {
    match store {
        "" => String::new(),
        store => format!(" `{store}`"),
    }
}

/// What a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Dir(PathBuf),
    S3(S3Place),
    Http(HttpPlace),
}

/// The place, and how it is called in messages.
pub(super) fn parse(text: &str) -> Result<(Place, String), BadStore> {
    let mut url = Url::parse(text).map_err(|error| BadStore {
        store: String::new(),
        problem: format!(
            "its URL cannot be read: {error}; write for example `file:///shared/blobs`, `s3://bucket/prefix` or `https://host/path`"
        ),
    })?;
    let options = Options::take(&mut url);
    let has_user = !url.username().is_empty() || url.password().is_some();
    // A URL without a host takes neither of these, and has neither.
    url.set_username("").ok();
    url.set_password(None).ok();
    let store = url.as_str().trim_end_matches('/').to_owned();
    let place = match has_user {
        true => Err("secrets do not belong into its URL; put a token into a file and add `?token_file=PATH`".to_owned()),
        false => of_scheme(&url, options),
    };
    match place {
        Ok(place) => Ok((place, store)),
        Err(problem) => Err(BadStore { store, problem }),
    }
}

fn of_scheme(url: &Url, options: Options) -> Result<Place, String> {
    match url.scheme() {
        "file" => {
            options.end(&[])?;
            let path = url.to_file_path().ok();
            let path = path.filter(|_| url.host_str().is_none_or(str::is_empty));
            path.map(Place::Dir)
                .ok_or_else(|| "it names a host; write `file:///` and an absolute path".to_owned())
        }
        "s3" => {
            options.end(&[])?;
            let bucket = url.host_str().unwrap_or_default().to_owned();
            let prefix = url.path().trim_matches('/').to_owned();
            match bucket.is_empty() {
                true => Err("it names no bucket".to_owned()),
                false => Ok(Place::S3(S3Place { bucket, prefix })),
            }
        }
        "http" | "https" => http(url, options),
        other => Err(unknown_key(
            other,
            " as its scheme",
            ["file", "s3", "http", "https"],
        )),
    }
}

fn http(url: &Url, mut options: Options) -> Result<Place, String> {
    let token_file = options.value("token_file").map(PathBuf::from);
    let max_bytes = options.value("max").map(|max| parse_size(&max));
    let insecure = options.value("insecure").is_some_and(|value| value == "1");
    options.end(&["token_file", "max", "insecure"])?;
    let is_local = is_loopback(url.host_str().unwrap_or_default());
    if token_file.is_some() && url.scheme() == "http" && !is_local && !insecure {
        return Err(
            "its token would go over the network in the clear; use `https`, or add `?insecure=1`"
                .to_owned(),
        );
    }
    Ok(Place::Http(HttpPlace {
        base: url.as_str().trim_end_matches('/').to_owned(),
        is_local,
        token_file,
        max_bytes: max_bytes.transpose()?.unwrap_or(DEFAULT_MAX_BYTES),
    }))
}

/// What stands behind the question mark: for us, not for the server.
struct Options(Vec<(String, String)>);

impl Options {
    fn take(url: &mut Url) -> Self {
        let pairs = url.query_pairs().into_owned().collect();
        url.set_query(None);
        url.set_fragment(None);
        Self(pairs)
    }

    fn value(&mut self, key: &str) -> Option<String> {
        let at = self.0.iter().position(|(name, _)| name == key)?;
        Some(self.0.remove(at).1)
    }

    fn end(self, known: &[&'static str]) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some((key, _)) if known.contains(&&**key) => {
                Err(format!("`{key}` stands twice in its URL"))
            }
            Some(_) if known.is_empty() => Err("such a URL takes no options".to_owned()),
            Some((key, _)) => Err(unknown_key(key, " in its URL", known.iter().copied())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Place {
        parse(text).unwrap().0
    }

    /// CL-51
    #[test]
    fn a_store_is_named_by_its_url() {
        assert_eq!(
            place("file:///shared/a%20b"),
            Place::Dir("/shared/a b".into())
        );
        let s3 = S3Place {
            bucket: "bucket".to_owned(),
            prefix: "a/b".to_owned(),
        };
        assert_eq!(place("s3://bucket/a/b/"), Place::S3(s3));
        let http = HttpPlace {
            base: "https://host:8443/blobs".to_owned(),
            is_local: false,
            token_file: Some("/run/token".into()),
            max_bytes: 1 << 30,
        };
        let (found, shown) =
            parse("https://host:8443/blobs/?token_file=/run/token&max=1G").unwrap();
        assert_eq!(found, Place::Http(http));
        assert_eq!(shown, "https://host:8443/blobs");
    }

    /// CL-48, CL-51
    #[test]
    fn what_names_no_store_is_refused_without_a_word_of_its_secrets() {
        for (url, hint) in [
            ("https://user:hunter2@host/x", "token_file"),
            ("http://host/x?token_file=/t", "insecure=1"),
            ("ftp://user:hunter2@host/x", "secrets"),
            ("ftp://host/x?key=hunter2", "scheme"),
            (
                "https://host/x?token_fil=hunter2",
                "did you mean `token_file`?",
            ),
            ("https://host/?max=hunter", "hunter"),
            ("https://host/?max=1G&max=2G", "twice"),
            ("file://host/x", "file:///"),
            ("file:///x?token_file=hunter2", "no options"),
            ("s3:///x", "bucket"),
            ("hunter2", "file:///shared/blobs"),
        ] {
            let text = parse(url).unwrap_err().to_string();
            assert!(text.contains(hint), "{url}: {text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
        assert!(parse("http://host/x?token_file=/t&insecure=1").is_ok());
        assert!(parse("http://[::1]:80/x?token_file=/t").is_ok());
    }
}
